"""What the configurations of all runs have in common, and how their numbers are checked."""

from __future__ import annotations

import dataclasses
import math
import pathlib
from typing import Any, Literal

from rrl_tf.errors import InvalidInput
from rrl_tf.training.cluster import ClusterKind
from rrl_tf.training.loggers import LoggerName, check_loggers
from rrl_tf.training.schedules import Schedule, learning_rate_schedule


@dataclasses.dataclass(frozen=True)
class RunConfig:
    """The numbers that every run has; a script's own come after them.

    A configuration checks itself: whoever holds one holds numbers that a run can have, and a
    mistake is told before anything is written. A subclass does so in its `__post_init__`, after
    that of its own base class, by `require_positive`, `require_multiple` and the like.

    Example:
        >>> @dataclasses.dataclass(frozen=True)
        ... class Config(RunConfig):
        ...     steps: int = 1000
        ...     def __post_init__(self):
        ...         super().__post_init__()
        ...         require_positive(self, "steps")
        >>> Config(name="mine", steps=0)
        Traceback (most recent call last):
        rrl_tf.errors.InvalidInput: steps must be greater than 0; received 0
    """

    preset: str = ""
    """Where the numbers below come from."""
    seed: int = 0
    """Of everything random: weights, data, exploration."""
    name: str = ""
    """Folder under `runs`; by default the preset and the seed."""
    runs: str = "runs"
    """Where runs are kept."""
    logger: tuple[LoggerName, ...] = ("csv", "tensorboard")
    """What the run is logged to. `csv` is metrics.csv, which the run goes on from: it is written in
    any case, and nothing else where it is named alone."""
    profile: bool = False
    """Record 20 steps for TensorBoard's profiler."""
    devices: int = 1
    """Devices of every host that share a batch: GPUs, or CPU devices where there is none."""
    cluster: ClusterKind = "tf_config"
    """What names the other hosts of the run, if there are any: TF_CONFIG, or Slurm."""

    def __post_init__(self) -> None:
        if not 0 <= self.seed < 2**32:
            raise InvalidInput(f"seed must be from 0 to 2**32 - 1; received {self.seed}")
        require_positive(self, "devices")
        check_loggers(self.logger)

    @property
    def path(self) -> pathlib.Path:
        """The run's folder."""
        return pathlib.Path(self.runs) / (self.name or self.default_name)

    @property
    def default_name(self) -> str:
        """The folder under `runs` where no name is given; every seed of a preset has its own."""
        return f"{self.preset or 'run'}-seed{self.seed}"

    def settings(self) -> dict[str, Any]:
        """All fields, by name."""
        return dataclasses.asdict(self)

    @classmethod
    def defaults(cls) -> dict[str, Any]:
        """What fields are where nobody says anything: those of a run older than the field."""
        fields = dataclasses.fields(cls)
        return {
            each.name: each.default for each in fields if each.default is not dataclasses.MISSING
        }


@dataclasses.dataclass(frozen=True)
class FitConfig(RunConfig):
    """The numbers of every run of `keras.Model.fit`; how long it takes is the script's own.

    Example:
        >>> config = FitConfig(learning_rate=1e-3, schedule="constant", clip_norm=1.0)
        >>> config.optimizer_options(steps=1000)
        {'learning_rate': 0.001, 'global_clipnorm': 1.0}
    """

    learning_rate: float = 1e-3
    """The largest step size."""
    schedule: Schedule = "cosine"
    """After the warm-up: constant, or half a cosine down to `learning_rate_end`."""
    warmup_steps: int = 0
    """A straight line up to the largest step size."""
    learning_rate_end: float = 0.0
    """The step size at the end of the cosine."""
    clip_norm: float | None = None
    """Largest global norm of the gradient."""
    dtype: Literal["float32", "mixed_bfloat16", "mixed_float16"] = "float32"
    """Precision of the network."""
    jit_compile: bool = False
    """Compile the step with XLA."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(self, "learning_rate")
        require_not_negative(self, "learning_rate_end", "warmup_steps")
        if self.clip_norm is not None:
            require_positive(self, "clip_norm")

    def optimizer_options(self, steps: int) -> dict[str, Any]:
        """Keyword arguments of an optimiser of Keras, for a run of so many steps."""
        rate = learning_rate_schedule(
            self.schedule, self.learning_rate, steps, self.warmup_steps, self.learning_rate_end
        )
        return {"learning_rate": rate, "global_clipnorm": self.clip_norm}


def require_positive(config: Any, *names: str) -> None:
    """Raises `InvalidInput` for the first of the fields that is not greater than zero."""
    for name in names:
        if not 0 < getattr(config, name) < math.inf:
            raise InvalidInput(f"{name} must be greater than 0; received {getattr(config, name)}")


def require_not_negative(config: Any, *names: str) -> None:
    """Raises `InvalidInput` for the first of the fields that is less than zero."""
    for name in names:
        if not 0 <= getattr(config, name) < math.inf:
            raise InvalidInput(
                f"{name} must be a number from 0 up; received {getattr(config, name)}"
            )


def require_share(config: Any, *names: str) -> None:
    """Raises `InvalidInput` for the first of the fields that is not from 0 to 1."""
    for name in names:
        if not 0 <= getattr(config, name) <= 1:
            raise InvalidInput(f"{name} must be from 0 to 1; received {getattr(config, name)}")


def require_multiple(config: Any, names: tuple[str, ...], divisor: str) -> None:
    """Raises `InvalidInput` for the first of the fields that is no multiple of field `divisor`.

    Example:
        >>> from types import SimpleNamespace
        >>> config = SimpleNamespace(steps=100, save_every=50, log_every=20)
        >>> require_multiple(config, ("steps", "save_every"), "log_every")
        Traceback (most recent call last):
        rrl_tf.errors.InvalidInput: save_every must be a multiple of log_every; received 50 and 20
    """
    for name in names:
        if getattr(config, name) % getattr(config, divisor):
            raise InvalidInput(
                f"{name} must be a multiple of {divisor}; received {getattr(config, name)} and "
                f"{getattr(config, divisor)}"
            )
