"""Define optimizers and learning-rate schedules for training runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops
from keras.optimizers import schedules

from rrl_tf._arguments import integer, number_from, one_of, positive_int
from rrl_tf.training.names import OptimizerName, Schedule, require_steps_after_warmup


def learning_rate_schedule(
    schedule: Schedule, peak: float, steps: int, warmup_steps: int = 0, end: float = 0.0
) -> float | schedules.LearningRateSchedule:
    """Return a schedule with a linear warm-up, then a constant rate or a cosine decay to `end`.

    The cosine decay follows [SGDR](https://arxiv.org/abs/1608.03983): after the fraction u of the
    steps that follow the warm-up, the learning rate is `end + (peak - end) (1 + cos(pi u)) / 2`.
    The warm-up starts at 0 for `"cosine"` and at `peak / warmup_steps` for `"constant"`.

    Args:
        schedule: `"constant"` or `"cosine"`.
        peak: maximum learning rate.
        steps: number of updates in the whole run, including the warm-up.
        warmup_steps: number of updates in the warm-up; 0 starts at `peak`.
        end: learning rate at the end of the cosine decay.

    Returns:
        A number or a Keras schedule.

    Raises:
        InvalidInput: if the warm-up leaves no steps for the cosine, or `schedule` is unknown.

    Example:
        >>> optimizer = keras.optimizers.Adam(learning_rate_schedule("cosine", 1e-3, 1000, 50))
    """
    if one_of("schedule", schedule, ("constant", "cosine")) == "constant":
        if warmup_steps == 0:
            return peak
        return schedules.PolynomialDecay(peak / warmup_steps, warmup_steps, peak)
    require_steps_after_warmup(schedule, steps, warmup_steps)
    if warmup_steps == 0:
        return schedules.CosineDecay(peak, steps, alpha=end / peak)
    return schedules.CosineDecay(
        0.0,
        steps - warmup_steps,
        alpha=end / peak,
        warmup_target=peak,
        warmup_steps=warmup_steps,
    )


def linear_schedule(step: int, start: float, end: float, steps: int) -> float:
    """Return a value that falls linearly from `start` at step 0 to `end` at step `steps`.

    Args:
        step: current step.
        start: value at step 0.
        end: value from step `steps` on.
        steps: number of steps from `start` to `end`; 0 always returns `end`.

    Example:
        >>> linear_schedule(50, 1.0, 0.0, 100)
        0.5
    """
    if step >= steps:
        return end
    return start + (end - start) * step / steps


@keras.saving.register_keras_serializable("rrl_tf")
class LinearDecay(schedules.LearningRateSchedule):
    """A learning-rate schedule that is constant at first and then decays linearly.

    Args:
        start: learning rate of the first `hold` updates.
        end: learning rate from update `updates` on.
        updates: number of updates until the rate reaches `end`, including `hold`.
        hold: number of updates before the decay begins; less than `updates`.

    Raises:
        InvalidInput: if a learning rate is negative or not finite, `updates` is not from 1 to
            2**63 - 1, or `hold` is not from 0 to `updates` - 1.

    Example:
        >>> schedule = LinearDecay(1e-3, 1e-4, 1000, hold=400)
        >>> round(float(schedule(400)), 5), round(float(schedule(700)), 5)
        (0.001, 0.00055)
    """

    def __init__(self, start: float, end: float, updates: int, hold: int = 0) -> None:
        super().__init__()
        self.start, self.end = number_from("start", start, 0), number_from("end", end, 0)
        self.updates = number_from("updates", positive_int("updates", updates), 1, 2**63 - 1)
        self.hold = number_from("hold", integer("hold", hold), 0, self.updates - 1)
        self._decay = schedules.PolynomialDecay(start, self.updates - self.hold, end)

    def __call__(self, step: Any) -> Any:
        """Return the learning rate of an update; updates are counted from 0."""
        return self._decay(ops.maximum(step - self.hold, 0) if self.hold else step)

    def get_config(self) -> dict[str, Any]:
        """Return the constructor arguments."""
        return {"start": self.start, "end": self.end, "updates": self.updates, "hold": self.hold}


class _OneLearningRate:
    """Mixin that evaluates the learning-rate schedule once per update.

    Keras evaluates the schedule again for every weight with weight decay. A schedule with a warm-up
    is a `tf.cond` in the graph, so each evaluation costs time to trace and to run.
    """

    def _apply_weight_decay(self, variables: Sequence[keras.Variable]) -> None:
        decay = super()._apply_weight_decay.__func__  # type: ignore[misc]
        decay(_WithLearningRate(self), variables)


class _WithLearningRate:
    """Wraps an optimizer and caches the current value of its learning-rate schedule."""

    def __init__(self, optimizer: Any) -> None:
        self._optimizer = optimizer
        self.learning_rate = optimizer.learning_rate

    def __getattr__(self, name: str) -> Any:
        return getattr(self._optimizer, name)


@keras.saving.register_keras_serializable("rrl_tf")
class AdamW(_OneLearningRate, keras.optimizers.AdamW):
    """Keras' AdamW that evaluates a learning-rate schedule only once per update.

    Example:
        >>> from rrl_tf.training import learning_rate_schedule
        >>> optimizer = AdamW(learning_rate_schedule("cosine", 1e-3, 1000, 50))
        >>> float(optimizer.learning_rate)  # at the start of the warm-up
        0.0
    """


@keras.saving.register_keras_serializable("rrl_tf")
class Muon(_OneLearningRate, keras.optimizers.Muon):
    """Keras' Muon that evaluates a learning-rate schedule only once per update.

    Example:
        >>> from rrl_tf.training import learning_rate_schedule
        >>> optimizer = Muon(learning_rate_schedule("cosine", 1e-3, 1000, 50), weight_decay=1e-4)
        >>> float(optimizer.learning_rate)  # at the start of the warm-up
        0.0
    """


def make_optimizer(name: OptimizerName, **options: Any) -> keras.optimizers.Optimizer:
    """Return a Muon or Adam optimizer.

    Muon orthogonalizes the momentum of weight matrices. It updates all other weights, and the
    layer `head`, like Adam. Its weight decay is 1e-4.

    Args:
        name: `"muon"` or `"adam"`.
        **options: arguments of the Keras optimizer, such as `FitConfig.optimizer_options` returns.

    Example:
        >>> from rrl_tf.training import FitConfig
        >>> config = FitConfig(learning_rate=1e-3, warmup_steps=50, clip_norm=1.0)
        >>> optimizer = make_optimizer("muon", **config.optimizer_options(steps=1000))
        >>> optimizer.global_clipnorm
        1.0
    """
    if name == "adam":
        return keras.optimizers.Adam(**options)
    return Muon(exclude_layers=["head"], weight_decay=1e-4, **options)


def limit_loss_scale(optimizer: keras.optimizers.Optimizer) -> None:
    """Keep the scale of a `LossScaleOptimizer` from 1 to 2**100; call it after each update.

    Keras halves and doubles the scale without limits. A scale of 0 would result in gradients of 0 /
    0, which are applied to the weights, and an infinite scale would never decrease again.
    """
    if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        scale = optimizer.dynamic_scale
        scale.assign(keras.ops.clip(scale, 1.0, 2.0**100))
