"""The step size of an optimiser over a run."""

from __future__ import annotations

from typing import Literal

import keras

from rrl_tf.errors import InvalidInput

Schedule = Literal["constant", "cosine"]


def learning_rate_schedule(
    schedule: Schedule, peak: float, steps: int, warmup_steps: int = 0, end: float = 0.0
) -> float | keras.optimizers.schedules.LearningRateSchedule:
    """A straight line up for `warmup_steps` updates, then constant or half a cosine down to `end`.

    The cosine is that of [SGDR](https://arxiv.org/abs/1608.03983): after the warm-up, at the share
    u of the steps that are left, the step size is `end + (peak - end) (1 + cos(pi u)) / 2`.
    The line begins at 0 before a cosine, and at `peak / warmup_steps` before a constant.

    Args:
        schedule: `"constant"` or `"cosine"`.
        peak: the largest step size.
        steps: updates of the whole run, the warm-up among them.
        warmup_steps: 0 begins at `peak`.
        end: the step size at the end of a cosine.

    Returns:
        A number, or what an optimiser of Keras takes in place of one.

    Raises:
        InvalidInput: if a cosine has no steps left after the warm-up, or the name is unknown.

    Example:
        >>> optimizer = keras.optimizers.Adam(learning_rate_schedule("cosine", 1e-3, 1000, 50))
    """
    schedules = keras.optimizers.schedules
    if schedule == "constant":
        if warmup_steps == 0:
            return peak
        return schedules.PolynomialDecay(peak / warmup_steps, warmup_steps, peak)
    if schedule != "cosine":
        raise InvalidInput(f"schedule must be 'constant' or 'cosine'; received {schedule!r}")
    if steps <= warmup_steps:
        raise InvalidInput(
            f"warmup_steps must be less than the {steps:,} steps of the run; "
            f"received {warmup_steps:,}"
        )
    if warmup_steps == 0:
        return schedules.CosineDecay(peak, steps, alpha=end / peak)
    return schedules.CosineDecay(
        0.0,
        steps - warmup_steps,
        alpha=end / peak,
        warmup_target=peak,
        warmup_steps=warmup_steps,
    )
