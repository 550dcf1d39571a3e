"""Record episodes of any policy in any Gymnasium environment as a Minari dataset.

python -m train_scripts.collect_dataset                        # the DoorKey agent, good to bad
python -m train_scripts.collect_dataset --env CartPole-v1 --policies random
python -m train_scripts.collect_dataset --recipe pendulum
python -m train_scripts.collect_dataset --recipe walker2d-medium --policy-folder FOLDER
"""

from __future__ import annotations

import dataclasses
import functools
import pathlib
import re
from collections.abc import Callable
from typing import Literal

import gymnasium

import rrl_tf
from rrl_tf._arguments import one_of
from rrl_tf.envs.doorkey import doorkey_spec
from rrl_tf.errors import InvalidInput
from rrl_tf.offline import RECIPES, DensePolicy, Player, record_episodes
from rrl_tf.offline.recipes import name_with_digest
from rrl_tf.offline.recording import Policy, check_dataset_id
from rrl_tf.offline.sources import RECORDINGS
from rrl_tf.training.config import require_not_negative, require_positive
from train_scripts import command_line, train_doorkey


@dataclasses.dataclass(frozen=True)
class Config:
    """Set the environment, the policies and the folder of a recording."""

    env: str = "DoorKey-5x5"
    """`DoorKey-NxN`, or the ID of a Gymnasium environment."""
    policies: tuple[str, ...] = ("random", "agent")
    """`random`; `agent`, the DoorKey agent, which is trained first in
    `runs/doorkey/recorder-seed<seed>`; the folder of an export or of one of its versions; or the
    `.npz` file of a dense policy. A policy must take an observation alone, so Decision
    Transformers and recurrent policies cannot record."""
    explorations: tuple[float, ...] = (0.05, 0.3, 0.6)
    """Skill levels of every policy except `random`: fractions of random actions, or standard
    deviations of the noise."""
    recipe: str = ""
    """A recipe of `rrl_tf.offline.recipes` with an environment, policies and explorations:
    `pendulum`, `cartpole`; `walker2d-` and medium, medium-replay, medium-expert or expert;
    `hopper-` or `halfcheetah-` and medium or medium-replay."""
    policy_folder: str = "policies"
    """Folder with `NAME.npz` for every policy of a recipe."""
    noise: Literal["random", "clipped", "tanh", "none"] | None = None
    """Exploration: `random` actions; for continuous actions normal noise, `clipped` to the bounds
    or added before a `tanh`; or `none`. By default that of the recipe or, without a recipe,
    `random`."""
    episodes: int | None = None
    """Episodes of each policy at each skill level; by default 500 without a recipe."""
    steps: int | None = None
    """Steps of all policies together, instead of episodes; by default those of the recipe."""
    dataset: str = ""
    """ID of the dataset, NAMESPACE/NAME-vN; if empty, it is built from the environment or recipe,
    the policies and the noise."""
    folder: str = RECORDINGS
    """Folder of the Minari datasets. To load them elsewhere, set `MINARI_DATASETS_PATH` to it."""
    seed: int = 0
    """Seed of the environment, the exploration and the training of the agent."""

    def __post_init__(self) -> None:
        require_not_negative(self, "seed")
        require_positive(self, "episodes", "steps")
        if self.episodes is not None and self.steps is not None:
            raise InvalidInput(
                f"pass either episodes or steps; received {self.episodes} and {self.steps}"
            )
        if not self.policies:
            raise InvalidInput("`policies` must have at least one policy; received none")
        if self.recipe:
            one_of("recipe", self.recipe, tuple(RECIPES))
            for name in ("env", "policies", "explorations"):
                if getattr(self, name) != getattr(Config, name):
                    raise InvalidInput(
                        f"a recipe has its own {name}; received {getattr(self, name)!r}"
                    )
        check_dataset_id(self.dataset_id)

    @property
    def dataset_id(self) -> str:
        """ID of the dataset; by default built from the environment or recipe and the noise."""
        if self.dataset:
            return self.dataset
        if self.recipe:
            env, _, kind = self.recipe.partition("-")
            default_noise = RECIPES[self.recipe].noise
        else:
            env = re.sub(r"[^a-z0-9_]+", "-", self.env.lower()).strip("-")
            kind = "random" if set(self.policies) == {"random"} else "mixed"
            default_noise = "random"
        noise = "" if self.noise in (None, default_noise) else f"-{self.noise}"
        return f"rrl/{env}/{kind or 'mixed'}{noise}-v0"


def main(config: Config) -> pathlib.Path:
    """Record episodes as a Minari dataset, unless this recording exists, and return its folder."""
    recipe = RECIPES.get(config.recipe)
    episodes, steps = config.episodes, config.steps
    if recipe:
        env = recipe.environment
        players = recipe.players(config.policy_folder, config.noise or "")
        steps = recipe.steps if episodes is None and steps is None else steps
    else:
        env = config.env
        players = [player for name in config.policies for player in make_players(name, config)]
        episodes = 500 if episodes is None and steps is None else episodes
    make = functools.partial(make_env, env)
    return record_episodes(
        config.folder, config.dataset_id, make, players, episodes, config.seed, steps
    )


def make_env(name: str) -> gymnasium.Env:
    """Make an environment whose `spec` lets Minari make it again."""
    if size := re.fullmatch(r"DoorKey-(\d+)x\1", name):
        return gymnasium.make(doorkey_spec(int(size[1])))
    try:
        return gymnasium.make(name)
    except (gymnasium.error.Error, ImportError) as error:
        raise InvalidInput(f"cannot make the environment {name!r}: {error}") from error


def make_players(name: str, config: Config) -> list[Player]:
    """Return the players of a policy, one per skill level."""
    if name == "random":
        return [Player(name, level=1.0)]
    (full_name, make), noise = _policy(name, config), config.noise or "random"
    make = functools.cache(make)
    if noise == "none":
        return [Player(full_name, make)]
    return [Player(full_name, make, noise, level) for level in config.explorations]


def _policy(name: str, config: Config) -> tuple[str, Callable[[], Policy]]:
    """Return the policy's name in a recording, with a digest of its files, and its maker."""
    if name == "agent":
        if config.env != "DoorKey-5x5":
            raise InvalidInput(
                "the agent is for DoorKey-5x5; elsewhere, use --policies random, or the folder of "
                f"an export for {config.env}; received {config.env!r}"
            )
        return name, functools.partial(trained_agent, config.seed)
    if name.endswith(".npz"):
        policy = DensePolicy.load(name)
        return name_with_digest(name, [pathlib.Path(name)]), lambda: policy
    folder = pathlib.Path(name)
    if folder.is_dir():
        graphs, weights = map(sorted, map(folder.rglob, ("saved_model.pb", "variables/*")))
        return name_with_digest(name, graphs + weights), lambda: rrl_tf.load_policy(name).act
    raise InvalidInput(
        "a policy must be random, agent, the folder of an export, or the .npz file of a dense "
        f"policy; received {name!r}"
    )


def trained_agent(seed: int) -> Policy:
    """Return the DoorKey agent, trained first unless its run is finished."""
    config = dataclasses.replace(
        train_doorkey.FAST, seed=seed, name=f"recorder-seed{seed}", stop_after_perfect=3
    )
    return rrl_tf.load_policy(train_doorkey.main(config)[0].folder.export).act


if __name__ == "__main__":
    command_line.run(main, Config)
