"""MNIST, perturbed or clean, as arrays and as batches for `fit`.

Everything random is a function of the seed passed, so that a batch can be made again: a run that
resumes at a step sees what it would have seen, and an evaluation is the same every time.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tensorflow as tf

from rrl_tf.data.mnist import Split

Prepare = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]
"""From images `(B, 28, 28)` uint8 and a seed `(2,)` to a model's input, as `Perturbation` does."""


def prepared(
    split: Split, prepare: Prepare, seed: int, batch_size: int = 1000
) -> tuple[np.ndarray, np.ndarray]:
    """A whole split, prepared once: the same arrays for the same seed.

    Args:
        split: `Split`.
        prepare: function of `(images (B, 28, 28) uint8, seed (2,))` → the model's input.
        seed: int.
        batch_size: images prepared at a time.

    Returns:
        `(inputs (M, 28, 28, 1) float32, labels (M,))`.

    Example:
        >>> inputs, labels = prepared(splits["test"], clean, seed=0)  # doctest: +SKIP
    """
    prepare = tf.function(prepare, reduce_retracing=True)
    parts = [
        prepare(tf.constant(split.images[first : first + batch_size]), tf.constant([seed, first]))
        for first in range(0, len(split.images), batch_size)
    ]
    return np.concatenate([part.numpy() for part in parts]), split.labels


def batches(
    split: Split,
    batch_size: int,
    prepare: Prepare,
    seed: int,
    first_step: int = 0,
    replacement: bool = False,
) -> tf.data.Dataset:
    """An endless stream of training batches, in which a step's batch depends on the step alone.

    Args:
        split: `Split`.
        batch_size: B.
        prepare: function of `(images (B, 28, 28) uint8, seed (2,))` → the model's input, such as a
            `Perturbation`.
        seed: int.
        first_step: int, where a resumed run goes on.
        replacement: whether images are drawn one by one from all, or each once before any comes
            again.

    Returns:
        `tf.data.Dataset` of `(inputs (B, 28, 28, 1), labels (B,))`.

    Example:
        >>> data = batches(splits["train"], 300, Perturbation(), seed=0)  # doctest: +SKIP
        >>> model.fit(data, steps_per_epoch=100, epochs=10)  # doctest: +SKIP
    """
    size = len(split.images)
    images, labels = tf.constant(split.images), tf.constant(split.labels)
    base = tf.constant([seed, 0x5EED], tf.int64)

    def batch(step):
        step_seeds = tf.random.split(tf.random.experimental.stateless_fold_in(base, step), 2)
        if replacement:
            index = tf.random.stateless_uniform(
                (batch_size,), step_seeds[0], 0, size, dtype=tf.int64
            )
        else:
            index = _shuffled(step * batch_size + tf.range(batch_size, dtype=tf.int64), size, seed)
        return prepare(tf.gather(images, index), step_seeds[1]), tf.gather(labels, index)

    steps = tf.data.Dataset.range(first_step, tf.int64.max)
    return steps.map(batch, num_parallel_calls=2).prefetch(4)


def _shuffled(position, size, seed):
    """The image at a position of an endless sequence of permutations, a new one every `size`."""
    permutation = tf.cast(position // size, tf.int32)
    seed = seed if seed < 2**31 else seed - 2**32  # the same 32 bits
    seeds = tf.stack([tf.fill((len(position),), seed), 0 * permutation, permutation], axis=1)
    # tf.random.experimental.index_shuffle refuses a seed for every index, which this takes.
    return tf.raw_ops.RandomIndexShuffle(
        index=position % size, seed=seeds, max_index=tf.cast(size - 1, tf.int64)
    )
