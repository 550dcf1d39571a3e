"""Recipes of recordings: which policies play in an environment, and how they explore.

A recipe is plain data. A line of it is a share of the steps, a policy, and a level of exploration:
`(0.5, "tqc", 0.4)` is half of the steps, by the dense policy in `tqc.npz`, with noise of that
standard deviation. A policy of None is nothing but exploration; a function is a policy as it is.
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
from rrl_tf.offline.dense_policy import HELD, DensePolicy
from rrl_tf.offline.exploration import Policy
from rrl_tf.offline.recording import Player

Who: TypeAlias = str | Callable[[np.ndarray], Any] | None
"""The file of a dense policy without its ending, a policy, or nobody: nothing but exploration."""

Line: TypeAlias = tuple[float, Who, float]
"""Share of the steps, policy, level of exploration."""


@dataclasses.dataclass(frozen=True)
class Recipe:
    """What is played in a recording.

    Attributes:
        environment: id of the Gymnasium environment.
        lines: tuple of (share of the steps, policy, level of exploration).
        steps: of all policies together, unless another number is asked for.
        noise: how they explore, a name of `EXPLORATIONS`, unless another one is asked for.

    Example:

    >>> half = Recipe("Walker2d-v5", ((0.5, None, 1.0), (0.5, "mine", 0.4)), 100_000, "clipped")
    """

    environment: str
    lines: tuple[Line, ...]
    steps: int
    noise: str

    def players(self, folder: str | os.PathLike, noise: str = "") -> list[Player]:
        """Who plays, one after the other.

        Args:
            folder: holds `NAME.npz` for every policy that the recipe names.
            noise: in place of the recipe's; `"none"` leaves the policies alone, and those out
                that are nothing but exploration.

        Raises:
            InvalidInput: if files are missing, or do not hold a dense policy.
        """
        folder = pathlib.Path(folder)
        self._check_files(folder)
        kind = self.noise if noise in ("", "none") else noise
        return [
            Player(*_policy(who, folder), noise=kind, level=level, share=share)
            for share, who, level in (self._noise_free() if noise == "none" else self.lines)
        ]

    def _noise_free(self) -> list[Line]:
        """A line for every policy, with all of its steps."""
        shares: dict[Who, float] = collections.defaultdict(float)
        for share, who, _ in self.lines:
            shares[who] += share
        return [(share, who, 0.0) for who, share in shares.items() if who is not None]

    def _check_files(self, folder: pathlib.Path) -> None:
        """Raises `InvalidInput` that names every file that is missing."""
        names = dict.fromkeys(who for _, who, _ in self.lines if isinstance(who, str))
        missing = [name for name in names if not (folder / f"{name}.npz").is_file()]
        if missing:
            files = " and ".join(f"{name}.npz" for name in missing)
            raise InvalidInput(
                f"the recipe needs {files} in the folder of policies, each with {HELD}, for "
                f"{self.environment} (docs/your_data.md says how to get them); received {folder}"
            )


def _policy(who: Who, folder: pathlib.Path) -> tuple[str, Callable[[], Policy] | None]:
    """Name of a policy, and what makes it; a file's content is part of its name."""
    if who is None:
        return "random", None
    if callable(who):
        return who.__name__.replace("_", " "), lambda: who
    file = folder / f"{who}.npz"
    return with_digest(who, [file]), functools.partial(DensePolicy.load, file)


def with_digest(name: str, files: Iterable[pathlib.Path]) -> str:
    """A policy's name with a digest of its files: with other weights it is another player.

    Args:
        name: of the policy.
        files: all that its actions come from.
    """
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.read_bytes())
    return f"{name} {digest.hexdigest()[:8]}"


def swing_up(observation: np.ndarray) -> np.ndarray:
    """Torque for `Pendulum-v1`: swings it up by its energy, and holds it there by a spring.

    The energy of a pendulum that stands still upright is 5; a torque in the direction of the speed
    adds to it ([Åström and Furuta, 2000](https://doi.org/10.1016/S0005-1098(99)00140-5)).

    Example:

    >>> swing_up(np.array([-1.0, 0.0, 0.5]))  # hangs, and begins to move
    array([2.])
    """
    cosine, sine, speed = observation
    if cosine > 0.8:
        torque = -10 * np.arctan2(sine, cosine) - 2 * speed
    else:
        torque = speed * (5 - 5 * cosine - speed**2 / 6)
    return np.clip(np.array([torque], "float64"), -2, 2)


def balance(observation: np.ndarray) -> int:
    """Action for `CartPole-v1`: pushes to the side that the pole leans or falls to.

    Example:

    >>> balance(np.array([0.0, 0.0, 0.1, 0.0]))
    1
    """
    _, _, angle, speed = observation
    return int(angle + 0.5 * speed > 0)


def _walker2d(*lines: Line) -> Recipe:
    return Recipe("Walker2d-v5", lines, 200_000, "clipped")


def _of_a_training(environment: str, name: str) -> dict[str, Recipe]:
    """Of the policy at the end of a training, and a quarter of nothing but noise and of each of
    three that it went through."""
    early, middle, late = (f"{name}_{steps}k" for steps in (10, 30, 100))
    parts = ((0.25, None, 1.0), (0.25, early, 0.4), (0.25, middle, 0.4), (0.25, late, 0.4))
    kinds: dict[str, tuple[Line, ...]] = {"medium": ((1.0, late, 0.4),), "medium-replay": parts}
    return {
        f"{name}-{kind}": Recipe(environment, lines, 200_000, "clipped")
        for kind, lines in kinds.items()
    }


RECIPES = {
    "walker2d-medium": _walker2d((1.0, "tqc", 0.4)),
    "walker2d-medium-replay": _walker2d(
        (0.2, None, 1.0),
        (0.2, "a2c", 0.4),
        (0.2, "ars", 0.3),
        (0.2, "trpo", 0.4),
        (0.2, "tqc", 0.4),
    ),
    "walker2d-medium-expert": _walker2d((0.5, "tqc", 0.4), (0.5, "cs285_expert", 0.1)),
    "walker2d-expert": _walker2d((1.0, "cs285_expert", 0.1)),
    **_of_a_training("Hopper-v5", "hopper"),
    **_of_a_training("HalfCheetah-v5", "halfcheetah"),
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
"""Name → `Recipe`. Those of Walker2d, Hopper and HalfCheetah are like D4RL's data, and none of
them."""
