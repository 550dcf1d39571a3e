"""Records play of any policy in any Gymnasium environment as a Minari data set.

python -m train_scripts.collect_dataset                        # our DoorKey agent, good to bad
python -m train_scripts.collect_dataset --environment CartPole-v1 --policies random
python -m train_scripts.collect_dataset --environment DoorKey-6x6 --policies \
    grpc://localhost:8500/doorkey --dataset rrl/doorkey-6x6/served-v0
python -m train_scripts.collect_dataset --recipe pendulum
python -m train_scripts.collect_dataset --recipe walker2d-medium --policy-folder FOLDER
"""

from __future__ import annotations

import dataclasses
import functools
import pathlib
import re
from collections.abc import Callable, Mapping
from typing import Any, Literal

import gymnasium

from rrl_tf._arguments import one_of
from rrl_tf.envs.doorkey import doorkey_spec
from rrl_tf.errors import InvalidInput
from rrl_tf.offline.dense_policy import DensePolicy
from rrl_tf.offline.exploration import Policy
from rrl_tf.offline.recipes import RECIPES, with_digest
from rrl_tf.offline.recording import Player, check_dataset_id, record_episodes
from rrl_tf.presets import METADATA, POLICY
from rrl_tf.training.config import require_not_negative, require_positive
from train_scripts import command_line


@dataclasses.dataclass(frozen=True)
class Config:
    """What is played, by whom, and where it is kept."""

    environment: str = "DoorKey-5x5"
    """`DoorKey-NxN`, or the id of a Gymnasium environment."""
    policies: tuple[str, ...] = ("random", "agent")
    """`random`; `agent`, our DoorKey agent, trained first if need be; the folder of an export or of
    one version of it; the `.npz` file of a dense policy; or the address of a served policy,
    `grpc://HOST:PORT/NAME` or `http://...`. Each must take an observation alone: Decision
    Transformers, which look at their last steps, and recurrent policies cannot record."""
    explorations: tuple[float, ...] = (0.05, 0.3, 0.6)
    """Shares of random actions that every policy but the random one plays with, one after the
    other: its skill levels. With a noise, its standard deviations."""
    recipe: str = ""
    """A recipe of `rrl_tf.offline.recipes` that says environment, policies and explorations:
    `pendulum`, `cartpole`; `walker2d-` and medium, medium-replay, medium-expert or expert;
    `hopper-` or `halfcheetah-` and medium or medium-replay."""
    policy_folder: str = "policies"
    """Holds `NAME.npz` for every policy that a recipe names."""
    noise: Literal["random", "clipped", "tanh", "none"] | None = None
    """How policies explore: by random actions, or, continuous ones, by normal noise that is clipped
    to the bounds or added before a tanh; or not at all. By default what the recipe says, otherwise
    random."""
    episodes: int | None = None
    """Of each policy at each of its skill levels; by default 500, without a recipe."""
    steps: int | None = None
    """Of all policies together, in place of episodes; by default what the recipe says."""
    dataset: str = ""
    """Id of the data set, NAMESPACE/NAME-vN; by default `rrl/`, the environment and `random-v0`, or
    `mixed-v0` where others play too, or the recipe's words, and the noise if it is another one."""
    folder: str = "runs/datasets"
    """Where Minari data sets are kept; `$MINARI_DATASETS_PATH` of others who read it."""
    seed: int = 0
    """Of the environment, the exploration and, if it has to be trained, the agent."""

    def __post_init__(self) -> None:
        require_not_negative(self, "seed")
        for name in ("episodes", "steps"):
            if getattr(self, name) is not None:
                require_positive(self, name)
        if self.episodes is not None and self.steps is not None:
            raise InvalidInput(
                f"give either episodes or steps; received {self.episodes} and {self.steps}"
            )
        if not self.policies:
            raise InvalidInput("policies must name who plays; received none")
        if self.recipe:
            self._check_recipe()
        check_dataset_id(self.dataset_id)

    def _check_recipe(self) -> None:
        one_of("recipe", self.recipe, tuple(RECIPES))
        for name in ("environment", "policies", "explorations"):
            given = getattr(self, name)
            if given != getattr(Config, name):
                raise InvalidInput(f"a recipe says its own {name}; received {given!r}")

    @property
    def dataset_id(self) -> str:
        """Id of the data set: every environment, recipe and noise has its own."""
        if self.dataset:
            return self.dataset
        if self.recipe:
            environment, _, kind = self.recipe.partition("-")
            own = RECIPES[self.recipe].noise
        else:
            environment = re.sub(r"[^a-z0-9_]+", "-", self.environment.lower()).strip("-")
            kind, own = "random" if set(self.policies) == {"random"} else "mixed", "random"
        noise = "" if self.noise in (None, own) else f"-{self.noise}"
        return f"rrl/{environment}/{kind or 'mixed'}{noise}-v0"


def main(config: Config) -> pathlib.Path:
    """Records play as a Minari data set, and returns its folder; one that is there stays."""
    recipe = RECIPES.get(config.recipe)
    episodes, steps = config.episodes, config.steps
    if episodes is None and steps is None:
        episodes, steps = (None, recipe.steps) if recipe else (500, None)
    if recipe:
        players = recipe.players(config.policy_folder, config.noise or "")
    else:
        players = [player for name in config.policies for player in players_named(name, config)]
    environment = recipe.environment if recipe else config.environment
    return record_episodes(
        config.folder,
        config.dataset_id,
        functools.partial(make_env, environment),
        players,
        episodes,
        config.seed,
        steps,
    )


def make_env(name: str) -> gymnasium.Env:
    """The environment of that name, with a `spec` by which Minari makes it again.

    Raises:
        InvalidInput: if there is none.
    """
    size = re.fullmatch(r"DoorKey-(\d+)x\1", name)
    if size:
        return gymnasium.make(doorkey_spec(int(size[1])))
    try:
        return gymnasium.make(name)
    except (gymnasium.error.Error, ImportError) as error:
        raise InvalidInput(f"cannot make the environment {name!r}: {error}") from error


def players_named(name: str, config: Config) -> list[Player]:
    """Who plays under that name, at every level of skill.

    Raises:
        InvalidInput: if nobody does.
    """
    if name == "random":
        return [Player(name, level=1.0)]
    (its_name, make), noise = _named(name, config), config.noise or "random"
    make = functools.cache(make)
    if noise == "none":
        return [Player(its_name, make)]
    return [Player(its_name, make, noise, level) for level in config.explorations]


def _named(name: str, config: Config) -> tuple[str, Callable[[], Policy]]:
    """The policy's name in a recording, of which its files are a part, and what makes it."""
    if name == "agent":
        if config.environment != "DoorKey-5x5":
            raise InvalidInput(
                "the agent is for DoorKey-5x5; elsewhere, give --policies random, or the folder of "
                f"an export that plays in {config.environment}; received {config.environment!r}"
            )
        return name, functools.partial(trained_agent, config.seed)
    if "://" in name:
        return name, functools.partial(served_policy, name)
    if name.endswith(".npz"):
        policy = DensePolicy.load(name)  # says what is wrong with the file, if it is there at all
        return with_digest(name, [pathlib.Path(name)]), lambda: policy
    if pathlib.Path(name).is_dir():
        return with_digest(name, played_files(name)), functools.partial(loaded_policy, name)
    raise InvalidInput(
        "a policy is random, agent, the folder of an export, the .npz file of a dense policy, or "
        f"an address such as grpc://localhost:8500/doorkey; received {name!r}"
    )


def trained_agent(seed: int) -> Policy:
    """Our DoorKey agent, trained here unless it has been."""
    from train_scripts import train_doorkey  # needed only where it is to be trained

    training = dataclasses.replace(train_doorkey.FAST, seed=seed, stop_after_perfect=3)
    exports = training.path / "export"
    if not exports.exists():  # otherwise, with whatever number of steps it was trained
        exports = train_doorkey.main(training)[0].folder.export
    return loaded_policy(exports)


def played_files(folder: str) -> list[pathlib.Path]:
    """Graph and weights of what `loaded_policy` takes from that folder.

    Raises:
        InvalidInput: if it has no version.
    """
    from rrl_tf.export import newest_version  # it loads TensorFlow

    version = pathlib.Path(folder)
    if (version / METADATA).exists():  # a trained preset
        version /= POLICY
    if not (version / "saved_model.pb").exists():
        version = newest_version(version)
    return [*version.glob("saved_model.pb"), *sorted(version.glob("variables/*"))]


def loaded_policy(folder: str | pathlib.Path) -> Policy:
    """The policy in the folder of an export, the newest, or of one version of it.

    Raises:
        InvalidInput: if it needs more than an observation.
    """
    from rrl_tf.export import load_policy

    policy = load_policy(folder)
    _check_inputs(str(folder), policy.signatures)
    return policy.act


def _check_inputs(name: str, signatures: Mapping[str, Any]) -> None:
    """Raises `InvalidInput` for a policy that needs more than an observation."""
    inputs = signatures["act"]["inputs"].keys() if "act" in signatures else {"observation"}
    if inputs != {"observation"}:
        raise InvalidInput(
            f"{name} cannot record: only policies that take an observation alone can, neither "
            "Decision Transformers, which take their last steps, nor recurrent policies, which "
            f"take a memory; received one of {sorted(inputs)}"
        )


def served_policy(address: str) -> Policy:
    """The policy that a server at `grpc://HOST:PORT/NAME` answers for.

    Raises:
        InvalidInput: as it is called, too, if there is no answer; if it needs more than an
            observation.
    """
    from serving.client import ServingError, connect

    host, _, model = address.rpartition("/")

    def answer(ask):
        try:
            return ask()
        except (ServingError, ValueError) as error:
            raise InvalidInput(f"{address} gives no action: {error}") from error

    try:
        client = connect(host, model)
    except ValueError as error:
        raise InvalidInput(
            "no server can have this address: it must be grpc://HOST:PORT/NAME or "
            f"http://HOST:PORT/NAME; received {address!r}"
        ) from error
    _check_inputs(address, answer(lambda: client.signatures))
    return lambda observation: answer(lambda: client.act(observation))


if __name__ == "__main__":
    command_line.run(main, Config)
