"""A dueling head: the value of a state and what each action adds to it."""

from __future__ import annotations

from keras import ops

from rrl_tf._typing import Tensor


def dueling_values(outputs: Tensor) -> Tensor:
    """`V + A - mean(A)` from V and the advantages beside it, `(..., 1 + A)` → `(..., A)`.

    References:
        - [Wang et al., 2016](https://arxiv.org/abs/1511.06581)
    """
    value, advantage = outputs[..., :1], outputs[..., 1:]
    return value + advantage - ops.mean(advantage, axis=-1, keepdims=True)
