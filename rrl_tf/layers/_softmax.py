"""The softmax of attention."""

from __future__ import annotations

from keras import ops

from rrl_tf._typing import Tensor


def softmax(scores: Tensor) -> Tensor:
    """Over the last axis; of a single score without the warning that Keras has for it."""
    return ops.ones_like(scores) if scores.shape[-1] == 1 else ops.softmax(scores, axis=-1)
