"""Random numbers that are the same compiled by XLA or not: the generator is named."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from rrl_tf._typing import Tensor

_ALGORITHM = "philox"  # the one that XLA would choose draws other numbers


def uniform(shape: Sequence[int], seed: Any) -> Tensor:
    """Floats in [0, 1).

    Example:
        >>> uniform((3,), seed=(0, 1)).shape
        TensorShape([3])
    """
    # Of the same random bits XLA makes other floats; integers are the same.
    return tf.cast(integers(shape, seed, 2**24), tf.float32) / 2**24


def integers(shape: Sequence[int], seed: Any, limit: int) -> Tensor:
    """Integers from 0 to `limit` - 1, int32."""
    return tf.random.stateless_uniform(shape, seed, 0, limit, tf.int32, alg=_ALGORITHM)


def fold_in(seed: Any, number: Any) -> Tensor:
    """The seed `(2,)` of one number of a stream, which `seed` names."""
    seed = tf.cast(seed, tf.int64)
    return tf.random.experimental.stateless_fold_in(seed, tf.cast(number, tf.int64), _ALGORITHM)


def split(seed: Any, count: int) -> list[Tensor]:
    """So many seeds `(2,)`, of which no two draw the same."""
    return tf.unstack(tf.random.experimental.stateless_split(seed, count, _ALGORITHM))


def epsilon_greedy(values: Tensor, epsilon: Any, seed: Any) -> Tensor:
    """Actions `(B,)` int32 of Q values `(B, A)`: the most valued, or any, with probability ε.

    Example:
        >>> epsilon_greedy(tf.constant([[0.0, 1.0]]), 0.0, seed=(0, 1))
        <tf.Tensor: shape=(1,), dtype=int32, numpy=array([1], dtype=int32)>
    """
    greedy = tf.argmax(values, axis=-1, output_type=tf.int32)
    for_whether, for_which = split(seed, 2)
    explore = uniform(tf.shape(greedy), for_whether) < epsilon
    return tf.where(explore, integers(tf.shape(greedy), for_which, values.shape[-1]), greedy)
