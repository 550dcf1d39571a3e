"""Draw stateless random numbers that are equal with and without XLA."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from rrl_tf._typing import Tensor

_ALGORITHM = "philox"  # with the default algorithm, XLA draws different numbers

ACTIONS, RESETS, SAMPLES = range(3)
"""Numbers of independent random streams, one for each purpose."""


def uniform(shape: Sequence[int], seed: Any) -> Tensor:
    """Return floats in [0, 1).

    Example:
        >>> uniform((3,), seed=(0, 1)).shape
        TensorShape([3])
    """
    # From the same random bits, XLA generates equal integers but different floats.
    return tf.cast(integers(shape, seed, 2**24), tf.float32) / 2**24


def integers(shape: Sequence[int], seed: Any, limit: int) -> Tensor:
    """Return int32 integers from 0 to `limit` - 1."""
    return tf.random.stateless_uniform(shape, seed, 0, limit, tf.int32, alg=_ALGORITHM)


def fold_in(seed: Any, number: Any) -> Tensor:
    """Return a new seed `(2,)` derived from `seed` and a number."""
    seed = tf.cast(seed, tf.int64)
    return tf.random.experimental.stateless_fold_in(seed, tf.cast(number, tf.int64), _ALGORITHM)


def split(seed: Any, count: int) -> list[Tensor]:
    """Return `count` independent seeds `(2,)`."""
    return tf.unstack(tf.random.experimental.stateless_split(seed, count, _ALGORITHM))


def epsilon_greedy(values: Tensor, epsilon: Any, seed: Any) -> Tensor:
    """Return ε-greedy actions `(B,)` int32 for Q values `(B, A)`, where ε is `epsilon`.

    Example:
        >>> epsilon_greedy(tf.constant([[0.0, 1.0]]), 0.0, seed=(0, 1))
        <tf.Tensor: shape=(1,), dtype=int32, numpy=array([1], dtype=int32)>
    """
    greedy = tf.argmax(values, axis=-1, output_type=tf.int32)
    explore_seed, action_seed = split(seed, 2)
    explore = uniform(tf.shape(greedy), explore_seed) < epsilon
    return tf.where(explore, integers(tf.shape(greedy), action_seed, values.shape[-1]), greedy)
