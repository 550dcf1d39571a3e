"""Digits moved, turned and spotted, a batch at a time: functions over TensorFlow tensors.

Everything random is a function of the seed passed, so that a batch can be made again: a run that
resumes at a step sees what it would have seen, and an evaluation is the same every time.
"""

import dataclasses

import numpy as np
import tensorflow as tf

MOST_SPOTS = 40
"""Of one image; a normal variable beyond 6 deviations, one in a billion, is cut to it."""


@dataclasses.dataclass(frozen=True)
class Perturbation:
    """How far digits are moved, turned and spotted, as in chapter 10 of the book.

    Attributes:
        shift: pixels; along either axis an integer from -shift to shift - 1.
        rotation: degrees; an integer from -rotation to rotation - 1.
        spots: white pixels of an image: `int(spots + 5 |normal|)` places, drawn with replacement.
            0 adds none.

    Example:
        >>> images = np.zeros((2, 28, 28), np.uint8)
        >>> Perturbation(spots=10)(images, seed=(0, 1)).shape
        TensorShape([2, 28, 28, 1])

    Reference: "Deep Reinforcement Learning in Action", listing 10.1. Both ranges leave out their
    upper end there.
    """

    shift: int = 6
    rotation: int = 30
    spots: int = 10

    def __call__(self, images, seed):
        """Perturbs images `(B, height, width)` uint8 to `(B, height, width, 1)` float32 in [0, 1].

        Args:
            images: `(B, height, width)` uint8.
            seed: pair of integers, or an int tensor `(2,)`; equal seeds perturb equally.
        """
        batch = tf.shape(images)[0]
        seeds = tf.unstack(tf.random.split(seed, 4))
        degrees = _integers(seeds[0], (batch,), self.rotation)
        shift = _integers(seeds[1], (batch, 2), self.shift)
        count = self.spots + 5.0 * tf.abs(tf.random.stateless_normal((batch,), seeds[2]))
        x = rotate_and_shift(scaled(images), degrees, shift)
        if self.spots > 0:
            x = add_spots(x, tf.cast(count, tf.int32), seeds[3])
        return brightened(x)


def clean(images, seed=None):
    """Digits as they are, in the same form: `(B, height, width, 1)` float32 in [0, 1]."""
    return scaled(images)


def prepared(split, prepare, seed, batch_size=1000):
    """A whole split, prepared once: the same arrays for the same seed.

    Args:
        split: `Split`.
        prepare: function of `(images (B, 28, 28) uint8, seed (2,))` → the model's input.
        seed: int.
        batch_size: images prepared at a time.

    Returns:
        `(inputs (M, 28, 28, 1) float32, labels (M,))`.
    """
    prepare = tf.function(prepare, reduce_retracing=True)
    parts = [
        prepare(tf.constant(split.images[first : first + batch_size]), tf.constant([seed, first]))
        for first in range(0, len(split.images), batch_size)
    ]
    return np.concatenate([part.numpy() for part in parts]), split.labels


def scaled(images):
    """From `(B, height, width)` uint8 to `(B, height, width, 1)` float32 in [0, 1]."""
    return tf.cast(images, tf.float32)[..., None] / 255.0


def brightened(images):
    """Divides each image by its largest value; a black image stays black."""
    largest = tf.reduce_max(images, axis=(1, 2, 3), keepdims=True)
    return tf.math.divide_no_nan(images, largest)


def rotate_and_shift(images, degrees, shift):
    """Turns each image about its middle, then moves it; what comes from outside is 0.

    Every pixel takes the value of the nearest one at the place it came from, as torchvision's
    `affine` does for the book.

    Args:
        images: `(B, height, width, C)` float.
        degrees: `(B,)`, clockwise.
        shift: `(B, 2)`, pixels to the right and down.

    Returns:
        `(B, height, width, C)`.
    """
    batch, height, width, channels = _sizes(images)
    angle = tf.cast(degrees, tf.float32)[:, None, None] * (3.14159265358979 / 180.0)
    cos, sin = tf.cos(angle), tf.sin(angle)
    shift = tf.cast(shift, tf.float32)[:, :, None, None]
    middle_x, middle_y = 0.5 * (width - 1), 0.5 * (height - 1)
    x = tf.range(width, dtype=tf.float32)[None, None, :] - middle_x - shift[:, 0]
    y = tf.range(height, dtype=tf.float32)[None, :, None] - middle_y - shift[:, 1]
    from_x = _nearest(cos * x + sin * y + middle_x)  # (B, height, width)
    from_y = _nearest(cos * y - sin * x + middle_y)
    inside = (from_x >= 0) & (from_x < width) & (from_y >= 0) & (from_y < height)
    # The place outside, beyond the last pixel, holds a 0.
    place = tf.where(inside, from_y * width + from_x, height * width)
    pixels = tf.pad(tf.reshape(images, (batch, height * width, channels)), ((0, 0), (0, 1), (0, 0)))
    return tf.ensure_shape(tf.gather(pixels, place, batch_dims=1), images.shape)


def add_spots(images, count, seed, most=MOST_SPOTS):
    """Makes random pixels white.

    Args:
        images: `(B, height, width, 1)` float.
        count: `(B,)` int, places drawn with replacement.
        seed: pair of integers.
        most: int, the largest number that `count` may hold; what is above is cut to it.

    Returns:
        `(B, height, width, 1)`.
    """
    batch, height, width, _ = _sizes(images)
    pixels = height * width
    place = tf.random.stateless_uniform((batch, most), seed, 0, pixels, dtype=tf.int32)
    drawn = tf.range(most)[None] < count[:, None]
    row = tf.broadcast_to(tf.range(batch)[:, None], (batch, most))
    index = tf.stack([row, place], axis=-1)  # (B, MOST_SPOTS, 2)
    spotted = tf.tensor_scatter_nd_max(
        tf.reshape(images, (batch, pixels)), index, tf.cast(drawn, images.dtype)
    )
    return tf.reshape(spotted, tf.shape(images))


def batches(split, batch_size, prepare, seed, first_step=0, replacement=False):
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
    seeds = tf.stack([tf.fill((len(position),), seed), 0 * permutation, permutation], axis=1)
    # tf.random.experimental.index_shuffle refuses a seed for every index, which this takes.
    return tf.raw_ops.RandomIndexShuffle(
        index=position % size, seed=seeds, max_index=tf.cast(size - 1, tf.int64)
    )


def _integers(seed, shape, limit):
    if limit == 0:
        return tf.zeros(shape, tf.int32)
    return tf.random.stateless_uniform(shape, seed, -limit, limit, dtype=tf.int32)


def _nearest(place):
    # Half a pixel belongs to the higher one. The margin keeps rounding errors of sines and cosines
    # on one side of the many halves that right angles make.
    return tf.cast(tf.floor(place + (0.5 + 1e-4)), tf.int32)


def _sizes(images):
    static, dynamic = images.shape, tf.shape(images)
    return tuple(dynamic[i] if size is None else size for i, size in enumerate(static))
