"""Configuration dataclasses that every run shares, and the checks of their numbers."""

from __future__ import annotations

import dataclasses
import math
import pathlib
from typing import Any, Literal, get_args

import keras

from rrl_tf._arguments import one_of
from rrl_tf.errors import InvalidInput
from rrl_tf.training.loggers import LoggerName
from rrl_tf.training.optimizers import (
    OptimizerName,
    Schedule,
    learning_rate_schedule,
    make_optimizer,
)

ClusterKind = Literal["tf_config", "slurm"]


MUTABLE = {"role": "mutable"}
"""Metadata of a field that may change when a run resumes, such as the number of steps.

A subclass that only changes the default of a field need not repeat its metadata."""
EVALUATION = {"role": "evaluation"}
"""Metadata of a field that only the final evaluation reads, such as the number of episodes.

It may change when a run resumes. A finished run is evaluated again when it changes."""


@dataclasses.dataclass(frozen=True)
class RunConfig:
    """Settings of every run. A script's own settings follow in a subclass.

    A configuration validates itself in `__post_init__`, before anything is written. All fields
    identify the run, except those with the metadata `MUTABLE` or `EVALUATION`.

    Example:
        >>> @dataclasses.dataclass(frozen=True)
        ... class Config(RunConfig):
        ...     steps: int = dataclasses.field(default=1000, metadata=MUTABLE)
        ...     width: int = 64
        ...     def __post_init__(self):
        ...         super().__post_init__()
        ...         require_positive(self, "steps", "width")
        >>> Config(name="mine", steps=0)
        Traceback (most recent call last):
        rrl_tf.errors.InvalidInput: steps must be greater than 0; received 0
    """

    preset: str = ""
    """Name of the preset that the other defaults come from."""
    seed: int = 0
    """Seed of weights, data and exploration."""
    name: str = dataclasses.field(default="", metadata=MUTABLE)
    """Folder under `runs`; by default the preset and the seed."""
    runs: str = dataclasses.field(default="runs", metadata=MUTABLE)
    """Parent folder of all runs."""
    logger: tuple[LoggerName, ...] = dataclasses.field(
        default=("csv", "tensorboard"), metadata=MUTABLE
    )
    """Loggers. `csv` is `metrics.csv`, which is always written because a run resumes from it; on
    its own it turns all other loggers off."""
    profile: bool = dataclasses.field(default=False, metadata=MUTABLE)
    """Record 20 steps for TensorBoard's profiler."""
    devices: int = dataclasses.field(default=1, metadata=MUTABLE)
    """Devices per host that share a batch: GPUs, or CPU devices if there is no GPU."""
    cluster: ClusterKind = dataclasses.field(default="tf_config", metadata=MUTABLE)
    """Source of the list of hosts: the variable TF_CONFIG, or Slurm."""

    def __post_init__(self) -> None:
        if not 0 <= self.seed < 2**32:
            raise InvalidInput(f"seed must be from 0 to 2**32 - 1; received {self.seed}")
        require_positive(self, "devices")
        for name in self.logger:
            one_of("logger", name, get_args(LoggerName))

    @property
    def path(self) -> pathlib.Path:
        """The run's folder."""
        return pathlib.Path(self.runs) / (self.name or self.default_name)

    @property
    def default_name(self) -> str:
        """The folder under `runs` if `name` is empty."""
        return f"{self.preset or 'run'}-seed{self.seed}"

    def settings(self) -> dict[str, Any]:
        """Return all fields by name."""
        return dataclasses.asdict(self)

    def mutable_fields(self) -> set[str]:
        """Return the names of the fields that may change when the run resumes."""
        return self._fields_with_role("mutable")

    def evaluation_fields(self) -> set[str]:
        """Return the names of the fields that only the final evaluation reads."""
        return self._fields_with_role("evaluation")

    def _fields_with_role(self, role: str) -> set[str]:
        # A subclass that overrides a default replaces the field, so the bases count too.
        bases = filter(dataclasses.is_dataclass, type(self).__mro__)
        declared = [field for base in bases for field in dataclasses.fields(base)]
        return {field.name for field in declared if field.metadata.get("role") == role}


@dataclasses.dataclass(frozen=True)
class FitConfig(RunConfig):
    """Settings of every run of `keras.Model.fit`. A subclass adds the number of steps.

    Example:
        >>> config = FitConfig(learning_rate=1e-3, schedule="constant", clip_norm=1.0)
        >>> config.optimizer_options(steps=1000)
        {'learning_rate': 0.001, 'global_clipnorm': 1.0}
    """

    learning_rate: float = 1e-3
    """Peak learning rate."""
    schedule: Schedule = "cosine"
    """Learning rate after the warm-up: constant, or half a cosine down to `learning_rate_end`."""
    warmup_steps: int = 0
    """Steps of a linear warm-up."""
    learning_rate_end: float = 0.0
    """Learning rate at the end of the cosine."""
    clip_norm: float | None = None
    """Maximum global norm of the gradient."""
    dtype: Literal["float32", "mixed_bfloat16", "mixed_float16"] = "float32"
    """Precision of the network."""
    jit_compile: bool = False
    """Compile the training step with XLA."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(self, "learning_rate", "clip_norm")
        require_not_negative(self, "learning_rate_end", "warmup_steps")

    def optimizer_options(self, steps: int) -> dict[str, Any]:
        """Return the keyword arguments of a Keras optimizer for a run of `steps` steps."""
        rate = learning_rate_schedule(
            self.schedule, self.learning_rate, steps, self.warmup_steps, self.learning_rate_end
        )
        return {"learning_rate": rate, "global_clipnorm": self.clip_norm}


@dataclasses.dataclass(frozen=True)
class SupervisedConfig(FitConfig):
    """Settings of a run of `keras.Model.fit` on labelled data. A step is one update.

    Example:
        >>> config = SupervisedConfig(steps=200, warmup_steps=50, optimizer="muon")
        >>> type(config.make_optimizer()).__name__
        'Muon'
    """

    optimizer: OptimizerName = "adam"
    """Muon updates matrices by the orthogonal part of their momentum, and the rest as Adam."""
    steps: int = 1000
    """Updates, a multiple of `log_every`."""
    batch_size: int = 32
    """Examples in a batch."""
    log_every: int = 50
    """Steps between rows of the log; a divisor of `steps`."""
    checkpoint_every: int = 100
    """Steps between checkpoints, a multiple of `log_every`."""
    draw_every: int = dataclasses.field(default=500, metadata=MUTABLE)
    """Steps between figures in TensorBoard, a multiple of `log_every`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(self, "steps", "batch_size", "log_every", "checkpoint_every", "draw_every")
        require_multiple(self, ("steps", "checkpoint_every", "draw_every"), "log_every")
        self.optimizer_options(self.steps)  # raises if the schedule has no steps left

    def make_optimizer(self) -> keras.optimizers.Optimizer:
        """Return a new optimizer for the whole run."""
        return make_optimizer(self.optimizer, **self.optimizer_options(self.steps))


def require_positive(config: Any, *names: str) -> None:
    """Raise `InvalidInput` for the first field that is not a finite number greater than 0.

    A field that is `None`, as options without a value are, passes this check and the next two.
    """
    _require(config, names, lambda value: 0 < value < math.inf, "greater than 0")


def require_not_negative(config: Any, *names: str) -> None:
    """Raise `InvalidInput` for the first field that is not a finite number of at least 0."""
    _require(config, names, lambda value: 0 <= value < math.inf, "a number from 0 up")


def require_fraction(config: Any, *names: str) -> None:
    """Raise `InvalidInput` for the first field that is not from 0 to 1."""
    _require(config, names, lambda value: 0 <= value <= 1, "from 0 to 1")


def _require(config, names, is_valid, expected):
    for name in names:
        value = getattr(config, name)
        if value is not None and not is_valid(value):
            raise InvalidInput(f"{name} must be {expected}; received {value}")


def require_multiple(config: Any, names: tuple[str, ...], divisor: str) -> None:
    """Raise `InvalidInput` for the first field that is not a multiple of the field `divisor`.

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
