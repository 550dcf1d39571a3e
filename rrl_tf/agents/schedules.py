"""Numbers that change over a run."""

from __future__ import annotations


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
