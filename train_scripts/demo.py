"""Train an agent on DoorKey, draw its attention, serve its policy, and play through the server.

make demo
python -m train_scripts.demo --retrain
"""

from __future__ import annotations

import dataclasses
import shutil
import sys
from collections.abc import Callable

import numpy as np

from rrl_tf.envs import Task
from rrl_tf.training.config import require_positive
from serving.client import connect
from serving.local import served, server_command
from train_scripts import command_line, train_doorkey


@dataclasses.dataclass(frozen=True)
class Config:
    """Set the options of the demonstration."""

    retrain: bool = False
    """Delete the trained agent and train again."""
    episodes: int = 10
    """Number of episodes that are played through the server over each protocol."""
    seed: int = 0
    """Seed of the training."""

    def __post_init__(self) -> None:
        require_positive(self, "episodes")


def main(config: Config) -> None:
    """Train a relational agent on DoorKey, draw its attention, serve it, and play with it."""
    from rrl_tf.export import load_policy, newest_version

    training = dataclasses.replace(train_doorkey.QUICK, name="demo", seed=config.seed)
    if config.retrain:
        shutil.rmtree(training.path, ignore_errors=True)
    print("1. Train a relational double DQN to fetch the key, open the door and reach the goal")
    folder = train_doorkey.main(training)[0].folder

    print("\n2. Figures of its attention")
    for figure in sorted(folder.figures.iterdir()):
        print(f"   {figure}")

    version = newest_version(folder.export)
    print(f"\n3. Serve the policy over gRPC and REST\n   {version}", flush=True)
    task, policy = train_doorkey.make_task(training), load_policy(version)
    with served(folder.export, "doorkey") as addresses:
        for address in addresses:
            play_through(address, policy.act, task, config.episodes)
    print(f"\nServe it yourself:\n   {' '.join(server_command(folder.export, 'doorkey'))}")
    print(f"Watch the training:\n   {sys.executable} -m tensorboard.main --logdir {folder.path}")


def play_through(
    address: str, local_act: Callable[[np.ndarray], np.ndarray], task: Task, episodes: int
) -> None:
    """Play evaluation episodes with a server's actions and compare these with the local policy's.

    Raises:
        RuntimeError: if an action differs.
    """

    from rrl_tf.agents.evaluation import evaluate

    def act(observations):
        actions, expected = client.act(observations), local_act(observations)
        if (actions != expected).any():
            raise RuntimeError(f"{address} returned actions {actions}; expected {expected}")
        return actions

    resets = task.evaluation_resets(at_most=episodes)
    with connect(address, "doorkey") as client:
        success = evaluate(act, task.make_test_env, resets).summary().get("success", 0.0)
    solved = f"{success * len(resets):.0f}/{len(resets)} solved"
    print(f"   {address}: {solved}, all actions equal to the local policy's", flush=True)


if __name__ == "__main__":
    command_line.run(main, Config)
