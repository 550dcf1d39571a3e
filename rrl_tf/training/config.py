"""Define the base classes of all run configurations, and checks for their fields."""

from __future__ import annotations

import dataclasses
import math
import pathlib
from collections.abc import Collection
from typing import TYPE_CHECKING, Any, Literal, get_args

from rrl_tf._arguments import number_from, one_of
from rrl_tf.errors import InvalidInput
from rrl_tf.training.names import (
    ClusterKind,
    LoggerName,
    OptimizerName,
    Schedule,
    require_steps_after_warmup,
)

if TYPE_CHECKING:  # `--help` is shown without Keras
    import keras

MUTABLE = {"role": "mutable"}
"""Metadata of a field that may change when a run resumes, such as the number of steps.

A subclass that only changes the default of a field does not have to repeat the metadata."""
EVALUATION = {"role": "evaluation"}
"""Metadata of a field that only the final evaluation reads, such as the number of episodes.

It may change when a run resumes. A finished run is evaluated again when it changes."""


@dataclasses.dataclass(frozen=True)
class RunConfig:
    """Base class of run configurations. Scripts add their own settings in a subclass.

    A configuration validates itself in `__post_init__`, before the run writes any file. When a run
    resumes, every field must have the same value as before, except for fields with the metadata
    `MUTABLE` or `EVALUATION`.

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
        rrl_tf.errors.InvalidInput: `steps` must be greater than 0; received 0
    """

    preset: str = ""
    """Name of the preset that supplies the other defaults."""
    seed: int = 0
    """Random seed for weights, data and exploration, from 0 to 2**32 - 1."""
    name: str = dataclasses.field(default="", metadata=MUTABLE)
    """Name of the run folder inside `runs`; empty builds it from the preset and the seed."""
    runs: str = dataclasses.field(default="runs", metadata=MUTABLE)
    """Parent folder of the run folders."""
    logger: tuple[LoggerName, ...] = dataclasses.field(
        default=("csv", "tensorboard"), metadata=MUTABLE
    )
    """Loggers to use. `metrics.csv` is always written, because a run resumes from it; select
    `csv` alone to turn TensorBoard off."""
    keep_best: bool = dataclasses.field(default=False, metadata=MUTABLE)
    """Also keep the weights of the best evaluation, as `checkpoints/best-STEP.keras`. All results
    are of the last weights."""
    profile: bool = dataclasses.field(default=False, metadata=MUTABLE)
    """Record a profile of up to 20 training steps for TensorBoard."""
    devices: int = dataclasses.field(default=1, metadata=MUTABLE)
    """Number of devices on each host that share a batch: GPUs, or CPU devices if there are no
    GPUs."""
    cluster: ClusterKind = dataclasses.field(default="tf_config", metadata=MUTABLE)
    """Where to read the list of hosts: the environment variable TF_CONFIG, or Slurm."""

    def __post_init__(self) -> None:
        number_from("seed", self.seed, 0, 2**32 - 1)
        require_positive(self, "devices")
        for name in self.logger:
            one_of("logger", name, get_args(LoggerName))

    @property
    def path(self) -> pathlib.Path:
        """The run's folder."""
        return pathlib.Path(self.runs) / (self.name or self.default_name)

    @property
    def default_name(self) -> str:
        """The name of the run folder if `name` is empty."""
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
        # A subclass that overrides a default drops the metadata, so look at the bases as well.
        bases = filter(dataclasses.is_dataclass, type(self).__mro__)
        declared = [field for base in bases for field in dataclasses.fields(base)]
        return {field.name for field in declared if field.metadata.get("role") == role}


@dataclasses.dataclass(frozen=True)
class FitConfig(RunConfig):
    """Base configuration of runs that use `keras.Model.fit`. A subclass adds the number of steps.

    Example:
        >>> config = FitConfig(learning_rate=1e-3, schedule="constant", clip_norm=1.0)
        >>> config.optimizer_options(steps=1000)
        {'learning_rate': 0.001, 'global_clipnorm': 1.0}
    """

    learning_rate: float = 1e-3
    """Peak learning rate."""
    schedule: Schedule = "cosine"
    """Schedule after the warm-up: keep `learning_rate`, or decay it along a cosine to
    `learning_rate_end`."""
    warmup_steps: int = 0
    """Number of updates over which the learning rate rises linearly to `learning_rate`."""
    learning_rate_end: float = 0.0
    """Learning rate at the end of the cosine."""
    clip_norm: float | None = None
    """Clip the global norm of the gradient to this value; `None` does not clip."""
    dtype: Literal["float32", "mixed_bfloat16", "mixed_float16"] = "float32"
    """Keras dtype policy of the network."""
    jit_compile: bool = False
    """Compile the training step with XLA."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(self, "learning_rate", "clip_norm")
        require_not_negative(self, "learning_rate_end", "warmup_steps")

    def optimizer_options(self, steps: int) -> dict[str, Any]:
        """Return the keyword arguments of a Keras optimizer for a run of `steps` steps."""
        from rrl_tf.training.optimizers import learning_rate_schedule

        rate = learning_rate_schedule(
            self.schedule, self.learning_rate, steps, self.warmup_steps, self.learning_rate_end
        )
        return {"learning_rate": rate, "global_clipnorm": self.clip_norm}


@dataclasses.dataclass(frozen=True)
class SupervisedConfig(FitConfig):
    """Configuration of a supervised run of `keras.Model.fit`. A step is one weight update.

    Example:
        >>> config = SupervisedConfig(steps=200, warmup_steps=50, optimizer="muon")
        >>> type(config.make_optimizer()).__name__
        'Muon'
    """

    optimizer: OptimizerName = "adam"
    """Optimizer. Muon orthogonalizes the momentum of weight matrices and updates all other weights
    like Adam."""
    steps: int = 1000
    """Number of updates."""
    batch_size: int = 32
    """Examples per update, over all devices."""
    log_every: int = 50
    """Number of steps between log entries. Checkpoints and figures wait for the next entry."""
    checkpoint_every: int = 100
    """Number of steps between checkpoints."""
    draw_every: int = dataclasses.field(default=500, metadata=MUTABLE)
    """Number of steps between figures in TensorBoard."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(self, "steps", "batch_size", "log_every", "checkpoint_every", "draw_every")
        require_steps_after_warmup(self.schedule, self.steps, self.warmup_steps)

    def make_optimizer(self) -> keras.optimizers.Optimizer:
        """Return a new optimizer whose schedule covers the whole run."""
        from rrl_tf.training.optimizers import make_optimizer

        return make_optimizer(self.optimizer, **self.optimizer_options(self.steps))


def require_fields(config_class: type[RunConfig], options: Collection[str]) -> None:
    """Raise `InvalidInput` unless all options are names of fields of a configuration."""
    names = {field.name for field in dataclasses.fields(config_class)}
    if unknown := sorted(set(options) - names):
        raise InvalidInput(f"options must be fields of {config_class.__name__}; received {unknown}")


def require_positive(config: Any, *names: str) -> None:
    """Raise `InvalidInput` for the first field that is not a finite number greater than 0.

    Fields that are `None` are skipped, because `None` means that an option was not given.
    """
    _require(config, names, lambda value: 0 < value < math.inf, "greater than 0")


def require_not_negative(config: Any, *names: str) -> None:
    """Raise `InvalidInput` for the first field that is not a finite number of at least 0.

    Fields that are `None` are skipped.
    """
    _require(config, names, lambda value: 0 <= value < math.inf, "at least 0 and finite")


def require_fraction(config: Any, *names: str) -> None:
    """Raise `InvalidInput` for the first field that is not from 0 to 1.

    Fields that are `None` are skipped.
    """
    _require(config, names, lambda value: 0 <= value <= 1, "from 0 to 1")


def _require(config, names, is_valid, expected):
    for name in names:
        value = getattr(config, name)
        try:
            accepted = value is None or is_valid(value)
        except TypeError:  # not comparable with numbers
            accepted = False
        if not accepted:
            raise InvalidInput(f"`{name}` must be {expected}; received {value!r}")
