"""Define `Recipe` and `RECIPES`, which list the policies that record a dataset.

Each line of a recipe names a policy, its level of exploration and the fraction of the steps that it
plays. For example, with `(0.5, "tqc", 0.4)` the dense policy in `tqc.npz` plays half of the steps
with noise of level 0.4. Instead of a file name, a line can contain a function from observations to
actions, or None, which means exploration without a policy.
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
"""File name of a dense policy without `.npz`, a function that is the policy, or None (explore)."""

Line: TypeAlias = tuple[float, PolicySource, float]
"""The fraction of the steps, the policy and the level of exploration."""


@dataclasses.dataclass(frozen=True)
class Recipe:
    """The environment and the policies of a recording.

    Attributes:
        environment: ID of the Gymnasium environment.
        lines: tuple of (fraction of the steps, policy, level of exploration).
        steps: default number of steps, the sum over all policies.
        noise: default kind of exploration; see `rrl_tf.offline.recording.exploring`.

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
            folder: folder with a file `NAME.npz` for each policy that the recipe names.
            noise: kind of exploration that replaces that of the recipe. `"none"` means that the
                policies do not explore; lines without a policy are then left out. An empty string
                keeps the recipe's exploration.

        Raises:
            InvalidInput: if files are missing or do not contain a dense policy.
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
    """Return the name of a policy and a function that creates it, or None without a policy."""
    if source is None:
        return "random", None
    if callable(source):
        return source.__name__.replace("_", " "), lambda: source
    file = folder / f"{source}.npz"
    return name_with_digest(source, [file]), functools.partial(DensePolicy.load, file)


def name_with_digest(name: str, files: Iterable[pathlib.Path]) -> str:
    """Append a digest of a policy's files to its name, so that new weights change the name."""
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.read_bytes())
    return f"{name} {digest.hexdigest()[:8]}"


def swing_up(observation: np.ndarray) -> np.ndarray:
    """Return a torque for `Pendulum-v1` that swings the pendulum up and balances it.

    A torque in the direction of motion adds energy until the pendulum has the energy of the upright
    position at rest, which is 5
    ([Åström and Furuta, 2000](https://doi.org/10.1016/S0005-1098(99)00140-5)).

    Example:
        >>> swing_up(np.array([-1.0, 0.0, 0.5]))  # the pendulum hangs down and moves
        array([2.])
    """
    cosine, sine, speed = observation
    if cosine > 0.8:
        torque = -10 * np.arctan2(sine, cosine) - 2 * speed
    else:
        torque = speed * (5 - 5 * cosine - speed**2 / 6)
    return np.clip(np.array([torque], "float64"), -2, 2)


def balance(observation: np.ndarray) -> int:
    """Return an action for `CartPole-v1` that pushes the cart in the direction of the fall.

    Example:
        >>> balance(np.array([0.0, 0.0, 0.1, 0.0]))
        1
    """
    _, _, angle, speed = observation
    return int(angle + 0.5 * speed > 0)


def _mujoco(environment: str, *lines: Line) -> Recipe:
    return Recipe(environment, lines, 200_000, "clipped")


def _training_recipes(environment: str, name: str) -> dict[str, Recipe]:
    """Return two recipes that use policies from one training run.

    `NAME-medium` uses the last policy. `NAME-medium-replay` uses an early, a middle and the last
    policy, and random noise.
    """
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
"""Dict name -> `Recipe`. The recipes of Walker2d, Hopper and HalfCheetah resemble D4RL datasets."""
