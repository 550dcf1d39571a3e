"""Numbers that change over a run."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from rrl_tf._arguments import integer, number_from, positive_int


def linear_schedule(step: int, start: float, end: float, steps: int) -> float:
    """`start` at step 0, `end` from step `steps` on, a straight line between.

    A constant is `start == end`, such as the book's exploration rate of 0.5.

    Args:
        step: int, environment steps so far.
        start: float, value at the beginning.
        end: float, value at the end.
        steps: int, steps the line takes; 0 means `end` at once.

    Example:
        >>> linear_schedule(50, 1.0, 0.0, 100)
        0.5
    """
    if step >= steps:
        return end
    return start + (end - start) * step / steps


@keras.saving.register_keras_serializable("rrl_tf")
class LinearDecay(keras.optimizers.schedules.LearningRateSchedule):
    """A step size that is held, and then falls along a straight line.

    Args:
        start: float, step size of the first `hold` updates.
        end: float, step size from update `updates` on.
        updates: int, when it has fallen.
        hold: int, updates before it begins to; less than `updates`, and counted within them.

    Raises:
        InvalidInput: if a step size is negative or not finite, `updates` is not from 1 to
            2**63 - 1, or `hold` not from 0 to less.

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
        falling = self.updates - self.hold
        self._falling = keras.optimizers.schedules.PolynomialDecay(start, falling, end)

    def __call__(self, step: Any) -> Any:
        """The step size of an update, which are counted from 0."""
        return self._falling(ops.maximum(step - self.hold, 0) if self.hold else step)

    def get_config(self) -> dict[str, Any]:
        """The arguments."""
        return {"start": self.start, "end": self.end, "updates": self.updates, "hold": self.hold}
