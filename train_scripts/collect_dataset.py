"""Records play of any policy in any Gymnasium environment as a Minari data set.

python -m train_scripts.collect_dataset                        # our DoorKey agent, good to bad
python -m train_scripts.collect_dataset --environment CartPole-v1 --policies random \
    --dataset rrl/cartpole/random-v0
python -m train_scripts.collect_dataset --environment DoorKey-6x6 --policies \
    grpc://localhost:8500/doorkey --dataset rrl/doorkey-6x6/served-v0
"""

import dataclasses
import os
import pathlib
import re
import warnings

import gymnasium
import numpy as np
from tqdm import tqdm

from rrl_tf.errors import InvalidInput
from rrl_tf.export import load_policy, newest_version
from train_scripts import command_line, train_doorkey


@dataclasses.dataclass(frozen=True)
class Config:
    """What is played, by whom, and where it is kept."""

    environment: str = "DoorKey-5x5"
    """`DoorKey-NxN`, or the id of a Gymnasium environment."""
    policies: tuple[str, ...] = ("random", "agent")
    """`random`; `agent`, our DoorKey agent, trained first if need be; the folder of an exported
    version; or the address of a served policy, `grpc://HOST:PORT/NAME` or `http://...`."""
    explorations: tuple[float, ...] = (0.05, 0.3, 0.6)
    """Shares of random actions that every policy but the random one plays with, one after the
    other: its skill levels."""
    episodes: int = 500
    """Of each policy at each of its skill levels."""
    dataset: str = "rrl/doorkey-5x5/mixed-v0"
    """Id of the data set, NAMESPACE/NAME-vN."""
    folder: str = "runs/datasets"
    """Where Minari data sets are kept; `$MINARI_DATASETS_PATH` of others who read it."""
    seed: int = 0
    """Of the environment, the random actions and, if it has to be trained, the agent."""


def main(config):
    """Records play as a Minari data set, and returns its folder; one that is there stays."""
    final = pathlib.Path(config.folder) / config.dataset
    if final.exists():
        print(f"{final} is there already")
        return final
    os.environ["MINARI_DATASETS_PATH"] = str(pathlib.Path(config.folder).resolve())
    import minari  # it looks for its folder once

    pathlib.Path(config.folder).mkdir(parents=True, exist_ok=True)
    env = minari.DataCollector(make_env(config.environment))
    rng = np.random.default_rng(config.seed)
    levels = [
        (policy, share)
        for policy in config.policies
        for share in ((1.0,) if policy == "random" else config.explorations)
    ]
    returns = []
    with tqdm(total=len(levels) * config.episodes, unit="episode", mininterval=0.5) as bar:
        for policy, share in levels:
            act = policy_named(policy, config)
            for _ in range(config.episodes):
                returns.append(play(env, act, share, rng))
                bar.update()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that nobody signed the data, and the like
        env.create_dataset(
            dataset_id=config.dataset,
            algorithm_name=", ".join(f"{p} ({s:.0%} random)" for p, s in levels),
            description=f"{config.episodes} episodes of each policy in {config.environment}",
        )
    env.close()
    print(
        f"{len(returns):,} episodes of {config.environment}, mean return {np.mean(returns):.3g} "
        f"({min(returns):.3g} to {max(returns):.3g})\nwritten: {final}"
    )
    return final


def play(env, act, share, rng):
    """Plays one episode with a share of random actions and returns its return."""
    observation, _ = env.reset(seed=int(rng.integers(2**31)))
    env.action_space.seed(int(rng.integers(2**31)))
    total, over = 0.0, False
    while not over:
        explore = rng.random() < share
        action = env.action_space.sample() if explore else act(observation)
        observation, reward, terminated, truncated, _ = env.step(action)
        total += float(reward)
        over = terminated or truncated
    return total


def make_env(name):
    """The environment of that name, with a `spec` by which Minari makes it again.

    Raises:
        ValueError: if there is none.
    """
    size = re.fullmatch(r"DoorKey-(\d+)x\1", name)
    if size:
        spec = gymnasium.envs.registration.EnvSpec(
            id=f"rrl_tf/{name}-v0",
            entry_point="rrl_tf.envs.doorkey:make_doorkey",
            kwargs={"size": int(size[1]), "observation": "compass"},
            disable_env_checker=True,
        )
        return gymnasium.make(spec)
    try:
        return gymnasium.make(name)
    except gymnasium.error.Error as error:
        raise InvalidInput(f"cannot make the environment {name!r}: {error}") from error


def policy_named(name, config):
    """A function from an observation to an action.

    Raises:
        ValueError: if there is no such policy.
    """
    if name == "random":
        return lambda observation: None
    if name == "agent":
        if config.environment != "DoorKey-5x5":
            raise InvalidInput(
                f"the agent is for DoorKey-5x5; give the folder of an exported version that plays "
                f"{config.environment}"
            )
        name = str(newest_version(trained_agent(config.seed)))
    address, _, model = name.rpartition("/")
    if "://" in address:
        from serving.client import connect

        client = connect(address, model)
        return lambda observation: client.act(observation)
    if not pathlib.Path(name, "saved_model.pb").exists():
        raise InvalidInput(
            f"unknown policy {name!r}; expected random, agent, the folder of an exported version, "
            "or an address such as grpc://localhost:8500/doorkey"
        )
    return load_policy(name).act


def trained_agent(seed):
    """The export folder of our DoorKey agent, trained here unless it has been."""
    training = dataclasses.replace(train_doorkey.FAST, seed=seed, stop_after_perfect=3)
    folder = command_line.run_path(training)
    if folder.exists():  # with whatever number of steps it was trained
        return folder / "export"
    return train_doorkey.main(training)[0].export


if __name__ == "__main__":
    command_line.run(main, Config)
