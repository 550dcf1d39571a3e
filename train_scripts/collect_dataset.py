"""Records play of any policy in any Gymnasium environment as a Minari data set.

python -m train_scripts.collect_dataset                        # our DoorKey agent, good to bad
python -m train_scripts.collect_dataset --environment CartPole-v1 --policies random
python -m train_scripts.collect_dataset --environment DoorKey-6x6 --policies \
    grpc://localhost:8500/doorkey --dataset rrl/doorkey-6x6/served-v0
"""

from __future__ import annotations

import dataclasses
import functools
import pathlib
import re
from collections.abc import Callable
from typing import Any

import gymnasium

from rrl_tf.data.recording import Player, check_dataset_id, record_episodes
from rrl_tf.errors import InvalidInput
from rrl_tf.training.config import require_not_negative, require_positive
from train_scripts import command_line


@dataclasses.dataclass(frozen=True)
class Config:
    """What is played, by whom, and where it is kept."""

    environment: str = "DoorKey-5x5"
    """`DoorKey-NxN`, or the id of a Gymnasium environment."""
    policies: tuple[str, ...] = ("random", "agent")
    """`random`; `agent`, our DoorKey agent, trained first if need be; the folder of an export or of
    one version of it; or the address of a served policy, `grpc://HOST:PORT/NAME` or `http://...`."""
    explorations: tuple[float, ...] = (0.05, 0.3, 0.6)
    """Shares of random actions that every policy but the random one plays with, one after the
    other: its skill levels."""
    episodes: int = 500
    """Of each policy at each of its skill levels."""
    dataset: str = ""
    """Id of the data set, NAMESPACE/NAME-vN; by default `rrl/`, the environment and `random-v0`, or
    `mixed-v0` where others play too."""
    folder: str = "runs/datasets"
    """Where Minari data sets are kept; `$MINARI_DATASETS_PATH` of others who read it."""
    seed: int = 0
    """Of the environment, the random actions and, if it has to be trained, the agent."""

    def __post_init__(self) -> None:
        require_positive(self, "episodes")
        require_not_negative(self, "seed")
        if not self.policies:
            raise InvalidInput("policies must name who plays; received none")
        check_dataset_id(self.dataset_id)

    @property
    def dataset_id(self) -> str:
        """Id of the data set: every environment has its own."""
        environment = re.sub(r"[^a-z0-9_]+", "-", self.environment.lower()).strip("-")
        players = "random" if set(self.policies) == {"random"} else "mixed"
        return self.dataset or f"rrl/{environment}/{players}-v0"


def main(config: Config) -> pathlib.Path:
    """Records play as a Minari data set, and returns its folder; one that is there stays."""
    return record_episodes(
        config.folder,
        config.dataset_id,
        functools.partial(make_env, config.environment),
        [player_named(name, config) for name in config.policies],
        config.episodes,
        config.seed,
    )


def make_env(name: str) -> gymnasium.Env:
    """The environment of that name, with a `spec` by which Minari makes it again.

    Raises:
        InvalidInput: if there is none.
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
    except (gymnasium.error.Error, ImportError) as error:
        raise InvalidInput(f"cannot make the environment {name!r}: {error}") from error


def player_named(name: str, config: Config) -> Player:
    """Who plays under that name.

    Raises:
        InvalidInput: if nobody does.
    """
    if name == "random":
        return Player(name, random_shares=(1.0,))
    if name == "agent":
        if config.environment != "DoorKey-5x5":
            raise InvalidInput(
                "the agent is for DoorKey-5x5; give the folder of an export that plays in another "
                f"environment; received {config.environment!r}"
            )
        make = functools.partial(trained_agent, config.seed)
    elif "://" in name:
        make = functools.partial(served_policy, name)
    elif pathlib.Path(name).is_dir():
        make = functools.partial(loaded_policy, name)
    else:
        raise InvalidInput(
            "a policy is random, agent, the folder of an export, or an address such as "
            f"grpc://localhost:8500/doorkey; received {name!r}"
        )
    return Player(name, make, config.explorations)


def trained_agent(seed: int) -> Callable[[Any], Any]:
    """Our DoorKey agent, trained here unless it has been."""
    from train_scripts import train_doorkey  # needed only where it is to be trained

    training = dataclasses.replace(train_doorkey.FAST, seed=seed, stop_after_perfect=3)
    exports = training.path / "export"
    if not exports.exists():  # otherwise, with whatever number of steps it was trained
        exports = train_doorkey.main(training)[0].folder.export
    return loaded_policy(exports)


def loaded_policy(folder: str | pathlib.Path) -> Callable[[Any], Any]:
    """The policy in the folder of an export, the newest, or of one version of it."""
    from rrl_tf.export import load_policy

    return load_policy(folder).act


def served_policy(address: str) -> Callable[[Any], Any]:
    """The policy that a server at `grpc://HOST:PORT/NAME` answers for.

    Raises:
        InvalidInput: as it is called, too, if there is no answer.
    """
    from serving.client import ServingError, connect

    host, _, model = address.rpartition("/")

    def act(observation):
        try:
            return client.act(observation)
        except (ServingError, ValueError) as error:
            raise InvalidInput(f"{address} gives no action: {error}") from error

    try:
        client = connect(host, model)
    except ValueError as error:
        raise InvalidInput(f"no server can have this address: {error}") from error
    return act


if __name__ == "__main__":
    command_line.run(main, Config)
