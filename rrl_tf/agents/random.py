"""Stateless random numbers that are equal with and without XLA."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from rrl_tf._typing import Tensor

_ALGORITHM = "philox"  # XLA's default generator draws other numbers

ACTIONS, RESETS, SAMPLES = range(3)
"""Streams of random numbers, so that none is used for two purposes."""


def uniform(shape: Sequence[int], seed: Any) -> Tensor:
    """Return floats in [0, 1).

    Example:
        >>> uniform((3,), seed=(0, 1)).shape
        TensorShape([3])
    """
    # XLA makes other floats of the same random bits, but the same integers.
    return tf.cast(integers(shape, seed, 2**24), tf.float32) / 2**24


def integers(shape: Sequence[int], seed: Any, limit: int) -> Tensor:
    """Return int32 integers from 0 to `limit` - 1."""
    return tf.random.stateless_uniform(shape, seed, 0, limit, tf.int32, alg=_ALGORITHM)


def fold_in(seed: Any, number: Any) -> Tensor:
    """Return the seed `(2,)` of one number of the stream `seed`."""
    seed = tf.cast(seed, tf.int64)
    return tf.random.experimental.stateless_fold_in(seed, tf.cast(number, tf.int64), _ALGORITHM)


def split(seed: Any, count: int) -> list[Tensor]:
    """Return `count` independent seeds `(2,)`."""
    return tf.unstack(tf.random.experimental.stateless_split(seed, count, _ALGORITHM))


def epsilon_greedy(values: Tensor, epsilon: Any, seed: Any) -> Tensor:
    """Return actions `(B,)` int32: greedy for Q values `(B, A)`, or random with probability ε.

    Example:
        >>> epsilon_greedy(tf.constant([[0.0, 1.0]]), 0.0, seed=(0, 1))
        <tf.Tensor: shape=(1,), dtype=int32, numpy=array([1], dtype=int32)>
    """
    greedy = tf.argmax(values, axis=-1, output_type=tf.int32)
    explore_seed, action_seed = split(seed, 2)
    explore = uniform(tf.shape(greedy), explore_seed) < epsilon
    return tf.where(explore, integers(tf.shape(greedy), action_seed, values.shape[-1]), greedy)
