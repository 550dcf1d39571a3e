"""A training that has diverged ends before anything that was good is overwritten."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rrl_tf.errors import InvalidInput


def require_finite(step: int, numbers: Mapping[str, Any]) -> None:
    """Raises `InvalidInput` for the first of a training's numbers that is nan or infinite.

    Args:
        step: how far the training has come.
        numbers: name → number or array, such as losses and weights; integers are finite.

    Example:
        >>> require_finite(500, {"train/loss": 0.3})
    """
    for name, value in numbers.items():
        array = np.asarray(value)
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise InvalidInput(
                f"the training had diverged at step {step:,} and ends without saving: try a "
                "smaller learning_rate under another name, and look for nan and huge numbers in "
                f"rewards and data; {name} must be finite; received {_first_wrong(array)}"
            )


def _first_wrong(array):
    return array[~np.isfinite(array)].flat[0]
