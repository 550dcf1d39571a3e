"""What the configurations of all runs have in common, and how their numbers are checked."""

from __future__ import annotations

import dataclasses
import pathlib
from typing import Any

from rrl_tf.errors import InvalidInput


@dataclasses.dataclass(frozen=True)
class RunConfig:
    """The numbers that every run has; a script's own come after them.

    A configuration checks itself: whoever holds one holds numbers that a run can have, and a
    mistake is told before anything is written. A subclass does so in its `__post_init__`, by
    `require_positive`, `require_multiple` and the like.
    """

    preset: str = ""
    """Where the numbers below come from."""
    seed: int = 0
    """Of everything random: weights, data, exploration."""
    name: str = ""
    """Folder under `runs`; by default the preset and the seed."""
    runs: str = "runs"
    """Where runs are kept."""
    profile_from: int | None = None
    """Record 20 steps from this one on for TensorBoard's profiler."""

    @property
    def path(self) -> pathlib.Path:
        """The run's folder."""
        return pathlib.Path(self.runs) / (self.name or f"{self.preset or 'run'}-seed{self.seed}")

    def settings(self) -> dict[str, Any]:
        """All fields, by name."""
        return dataclasses.asdict(self)


def require_positive(config: Any, *names: str) -> None:
    """Raises `InvalidInput` for the first of the fields that is not greater than zero."""
    for name in names:
        if not getattr(config, name) > 0:
            raise InvalidInput(f"{name} must be greater than 0; received {getattr(config, name)}")


def require_not_negative(config: Any, *names: str) -> None:
    """Raises `InvalidInput` for the first of the fields that is less than zero."""
    for name in names:
        if not getattr(config, name) >= 0:
            raise InvalidInput(f"{name} must not be negative; received {getattr(config, name)}")


def require_share(config: Any, *names: str) -> None:
    """Raises `InvalidInput` for the first of the fields that is not from 0 to 1."""
    for name in names:
        if not 0 <= getattr(config, name) <= 1:
            raise InvalidInput(f"{name} must be from 0 to 1; received {getattr(config, name)}")


def require_multiple(config: Any, names: tuple[str, ...], divisor: str) -> None:
    """Raises `InvalidInput` for the first of the fields that is no multiple of field `divisor`.

    Example:
        >>> require_multiple(config, ("steps", "checkpoint_every"), "log_every")
    """
    for name in names:
        if getattr(config, name) % getattr(config, divisor):
            raise InvalidInput(
                f"{name} must be a multiple of {divisor}; received {getattr(config, name)} and "
                f"{getattr(config, divisor)}"
            )
