"""From nothing to a served agent: trains on DoorKey, draws what it attends to, asks it for actions.

make demo
python -m train_scripts.demo --retrain
"""

from __future__ import annotations

import dataclasses
import shutil
import sys
import time
from collections.abc import Callable

import numpy as np

from rrl_tf.envs import Task
from rrl_tf.export import load_policy, newest_version
from rrl_tf.training.config import require_positive
from serving.client import connect
from serving.local import served, server_command
from train_scripts import command_line, train_doorkey


@dataclasses.dataclass(frozen=True)
class Config:
    """What the demonstration may be asked to do differently."""

    retrain: bool = False
    """Throw the trained agent away and train again."""
    episodes: int = 10
    """Episodes played through the server, over each transport."""
    seed: int = 0
    """Of the training."""

    def __post_init__(self) -> None:
        require_positive(self, "episodes")


def main(config: Config) -> None:
    """Trains a relational agent on MiniGrid DoorKey, draws it, serves it and plays through it."""
    training = dataclasses.replace(train_doorkey.QUICK, name="demo", seed=config.seed)
    if config.retrain:
        shutil.rmtree(training.path, ignore_errors=True)
    announce("1. A relational double DQN learns to fetch the key, open the door, reach the goal")
    begun = time.perf_counter()
    folder = train_doorkey.main(training)[0].folder
    print(f"   {time.perf_counter() - begun:.0f} s")

    announce("2. What it attends to")
    for picture in sorted(folder.figures.iterdir()):
        print(f"   {picture}")

    announce("3. The policy as a SavedModel, served over gRPC and REST")
    version = newest_version(folder.export)
    print(f"   {version}")
    task, policy = train_doorkey.make_task(training), load_policy(version)
    with served(folder.export, "doorkey") as addresses:
        for address in addresses:
            play_through(address, policy.act, task, config.episodes)
    print(f"\nServe it yourself:\n   {' '.join(server_command(folder.export, 'doorkey'))}")
    print(f"Watch the training:\n   {sys.executable} -m tensorboard.main --logdir {folder.path}")


def announce(title: str) -> None:
    """Prints a heading."""
    print(f"\n{title}", flush=True)


def play_through(
    address: str, expected: Callable[[np.ndarray], int], task: Task, episodes: int
) -> None:
    """Plays with actions asked from a server, and holds each against the policy in this process.

    Raises:
        RuntimeError: if an action differs.
    """
    env, resets = task.make_test_env(), task.evaluation_resets()[:episodes]
    solved, seconds = 0, []
    with connect(address, "doorkey") as client:
        for reset in resets:
            observation, _ = env.reset(**reset)
            over = False
            while not over:
                begun = time.perf_counter()
                action = client.act(observation)
                seconds.append(time.perf_counter() - begun)
                if action != expected(observation):
                    raise RuntimeError(
                        f"{address} answered {action}, expected {expected(observation)}"
                    )
                observation, _, terminated, truncated, info = env.step(action)
                over = terminated or truncated
            solved += info["success"]
    print(
        f"   {address}: {solved} of {len(resets)} episodes solved; {len(seconds)} actions, all "
        f"equal to those in process, the last one {task.action_names[action]!r}; "
        f"median {1e3 * np.median(seconds):.2f} ms an answer",
        flush=True,
    )


if __name__ == "__main__":
    command_line.run(main, Config)
