"""Recipes of recordings: which policies play in an environment, and how they explore.

A line of a recipe is a fraction of the steps, a policy and a level of exploration.
`(0.5, "tqc", 0.4)` is half of the steps by the dense policy in `tqc.npz`, with noise of level 0.4.
A policy of None explores only, and a function is used as the policy.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import hashlib
import os
import pathlib
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import numpy as np

from rrl_tf.errors import InvalidInput
from rrl_tf.offline.dense_policy import CONTENTS, DensePolicy
from rrl_tf.offline.recording import Player, Policy

PolicySource: TypeAlias = str | Callable[[np.ndarray], Any] | None
"""File of a dense policy without its extension, a policy, or None, which explores only."""

Line: TypeAlias = tuple[float, PolicySource, float]
"""Fraction of the steps, policy, level of exploration."""


@dataclasses.dataclass(frozen=True)
class Recipe:
    """Policies of a recording.

    Attributes:
        environment: ID of the Gymnasium environment.
        lines: tuple of (fraction of the steps, policy, level of exploration).
        steps: default number of steps of all policies together.
        noise: default exploration, see `exploring`.

    Example:
        >>> lines = ((0.5, None, 1.0), (0.5, "mine", 0.4))
        >>> recipe = Recipe("Walker2d-v5", lines, 100_000, "clipped")
    """

    environment: str
    lines: tuple[Line, ...]
    steps: int
    noise: str

    def players(self, folder: str | os.PathLike, noise: str = "") -> list[Player]:
        """Return the players, in the order in which they play.

        Args:
            folder: holds `NAME.npz` for each policy that the recipe names.
            noise: replaces the recipe's exploration. `"none"` lets the policies play without
                exploration and drops lines that only explore.

        Raises:
            InvalidInput: if files are missing or do not hold a dense policy.
        """
        folder = pathlib.Path(folder)
        self._check_files(folder)
        kind = self.noise if noise in ("", "none") else noise
        lines = self._greedy_lines() if noise == "none" else self.lines
        return [
            Player(*_policy(source, folder), noise=kind, level=level, fraction=fraction)
            for fraction, source, level in lines
        ]

    def _greedy_lines(self) -> list[Line]:
        """Return one line per policy, without exploration."""
        fractions: dict[PolicySource, float] = collections.defaultdict(float)
        for fraction, source, _ in self.lines:
            fractions[source] += fraction
        return [(fraction, source, 0.0) for source, fraction in fractions.items() if source]

    def _check_files(self, folder: pathlib.Path) -> None:
        names = dict.fromkeys(source for _, source, _ in self.lines if isinstance(source, str))
        missing = [f"{name}.npz" for name in names if not (folder / f"{name}.npz").is_file()]
        if missing:
            raise InvalidInput(
                f"the folder of policies must hold {' and '.join(missing)} for {self.environment}, "
                f"each with {CONTENTS} (see docs/tutorials/your_data.md); received {folder}"
            )


def _policy(source: PolicySource, folder: pathlib.Path) -> tuple[str, Callable[[], Policy] | None]:
    """Return the name of a policy and the function that makes it."""
    if source is None:
        return "random", None
    if callable(source):
        return source.__name__.replace("_", " "), lambda: source
    file = folder / f"{source}.npz"
    return name_with_digest(source, [file]), functools.partial(DensePolicy.load, file)


def name_with_digest(name: str, files: Iterable[pathlib.Path]) -> str:
    """Return a policy's name with a digest of its files, so that other weights change the name."""
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.read_bytes())
    return f"{name} {digest.hexdigest()[:8]}"


def swing_up(observation: np.ndarray) -> np.ndarray:
    """Return a torque for `Pendulum-v1` that swings the pendulum up and balances it.

    The energy of a pendulum at rest in the upright position is 5. A torque in the direction of the
    speed adds energy ([Åström and Furuta, 2000](https://doi.org/10.1016/S0005-1098(99)00140-5)).

    Example:
        >>> swing_up(np.array([-1.0, 0.0, 0.5]))  # hanging, and moving
        array([2.])
    """
    cosine, sine, speed = observation
    if cosine > 0.8:
        torque = -10 * np.arctan2(sine, cosine) - 2 * speed
    else:
        torque = speed * (5 - 5 * cosine - speed**2 / 6)
    return np.clip(np.array([torque], "float64"), -2, 2)


def balance(observation: np.ndarray) -> int:
    """Return an action for `CartPole-v1` that pushes to the side to which the pole falls.

    Example:
        >>> balance(np.array([0.0, 0.0, 0.1, 0.0]))
        1
    """
    _, _, angle, speed = observation
    return int(angle + 0.5 * speed > 0)


def _mujoco(environment: str, *lines: Line) -> Recipe:
    return Recipe(environment, lines, 200_000, "clipped")


def _training_recipes(environment: str, name: str) -> dict[str, Recipe]:
    """Return recipes of the last policy of a training, and of noise and three of its policies."""
    early, middle, late = (f"{name}_{steps}k" for steps in (10, 30, 100))
    parts = ((0.25, None, 1.0), (0.25, early, 0.4), (0.25, middle, 0.4), (0.25, late, 0.4))
    return {
        f"{name}-medium": _mujoco(environment, (1.0, late, 0.4)),
        f"{name}-medium-replay": _mujoco(environment, *parts),
    }


RECIPES = {
    "walker2d-medium": _mujoco("Walker2d-v5", (1.0, "tqc", 0.4)),
    "walker2d-medium-replay": _mujoco(
        "Walker2d-v5",
        (0.2, None, 1.0),
        (0.2, "a2c", 0.4),
        (0.2, "ars", 0.3),
        (0.2, "trpo", 0.4),
        (0.2, "tqc", 0.4),
    ),
    "walker2d-medium-expert": _mujoco("Walker2d-v5", (0.5, "tqc", 0.4), (0.5, "cs285_expert", 0.1)),
    "walker2d-expert": _mujoco("Walker2d-v5", (1.0, "cs285_expert", 0.1)),
    **_training_recipes("Hopper-v5", "hopper"),
    **_training_recipes("HalfCheetah-v5", "halfcheetah"),
    "pendulum": Recipe(
        "Pendulum-v1",
        ((0.25, None, 1.0), (0.25, swing_up, 1.0), (0.25, swing_up, 0.5), (0.25, swing_up, 0.2)),
        40_000,
        "clipped",
    ),
    "cartpole": Recipe(
        "CartPole-v1",
        ((0.25, None, 1.0), (0.25, balance, 0.6), (0.25, balance, 0.4), (0.25, balance, 0.1)),
        40_000,
        "random",
    ),
}
"""Name -> `Recipe`. Those of Walker2d, Hopper and HalfCheetah resemble D4RL's data sets."""
