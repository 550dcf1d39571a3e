"""Shift, rotate and spot batches of digits at random, with TensorFlow operations.

The same seed always selects the same perturbations.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import tensorflow as tf

from rrl_tf.errors import InvalidInput

_EXTRA_SPOTS = 30
"""Limit of the random part `5 |normal|` of the number of spots, which exceeds it once in 5e8."""


@dataclasses.dataclass(frozen=True)
class Perturbation:
    """A random perturbation of images, as in chapter 10 of "Deep RL in Action".

    It rotates and shifts an image, sets some of its pixels to white, and divides it by its largest
    value.

    Attributes:
        shift: range of the shift in pixels, an integer from -shift to shift - 1 along each axis.
        rotation: range of the rotation in degrees, an integer from -rotation to rotation - 1.
        spots: minimum number of pixels set to white. The number is `int(spots + 5 |normal|)`; the
            pixels are drawn with replacement. 0 adds no spots.

    Raises:
        InvalidInput: if an attribute is negative.

    Example:
        >>> images = tf.zeros((2, 28, 28), tf.uint8)
        >>> Perturbation(spots=10)(images, seed=(0, 1)).shape
        TensorShape([2, 28, 28, 1])

    Reference: "Deep Reinforcement Learning in Action", listing 10.1, in which both ranges also
    exclude their upper end.
    """

    shift: int = 6
    rotation: int = 30
    spots: int = 10

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value < 0:
                raise InvalidInput(f"`{name}` must not be negative; received {value!r}")

    def __call__(self, images: Any, seed: Any) -> tf.Tensor:
        """Perturb images `(B, height, width)` uint8 to `(B, height, width, 1)` float32 in [0, 1].

        Args:
            images: `(B, height, width)` uint8.
            seed: pair of integers, or an int tensor `(2,)`.
        """
        batch = tf.shape(images)[0]
        seeds = tf.unstack(tf.random.split(seed, 4))
        degrees = _integers(seeds[0], (batch,), self.rotation)
        shift = _integers(seeds[1], (batch, 2), self.shift)
        count = self.spots + 5.0 * tf.abs(tf.random.stateless_normal((batch,), seeds[2]))
        x = rotate_and_shift(scaled(images), degrees, shift)
        if self.spots > 0:
            most = self.spots + _EXTRA_SPOTS
            x = add_spots(x, tf.cast(count, tf.int32), seeds[3], most)
        return brightened(x)


def clean(images: Any, seed: Any = None) -> tf.Tensor:
    """Return the images unperturbed, in the form of `Perturbation`; `seed` has no effect.

    Example:
        >>> clean(tf.zeros((2, 28, 28), tf.uint8)).shape
        TensorShape([2, 28, 28, 1])
    """
    return scaled(images)


def scaled(images: Any) -> tf.Tensor:
    """Scale images `(B, height, width)` uint8 to `(B, height, width, 1)` float32 in [0, 1].

    Example:
        >>> float(scaled(tf.fill((1, 28, 28), tf.constant(255, tf.uint8)))[0, 0, 0, 0])
        1.0
    """
    return tf.cast(images, tf.float32)[..., None] / 255.0


def brightened(images: tf.Tensor) -> tf.Tensor:
    """Divide each image by its largest value; a black image stays black.

    Example:
        >>> float(brightened(tf.fill((1, 28, 28, 1), 0.5))[0, 0, 0, 0])
        1.0
    """
    largest = tf.reduce_max(images, axis=(1, 2, 3), keepdims=True)
    return tf.math.divide_no_nan(images, largest)


def rotate_and_shift(images: tf.Tensor, degrees: Any, shift: Any) -> tf.Tensor:
    """Rotate each image about its centre, then shift it.

    Each pixel of the result is traced back to where it was before the rotation and shift. It gets
    the value of the input pixel nearest to that position, or 0 outside of the image. Torchvision's
    `affine`, which the book uses, does the same.

    Args:
        images: `(B, height, width, C)` float.
        degrees: `(B,)`, angles of the clockwise rotations.
        shift: `(B, 2)`, shifts to the right and down in pixels.

    Returns:
        `(B, height, width, C)`.

    Example:
        >>> image = tf.constant([[1.0, 0.0, 0.0]])[None, ..., None]  # one row of three pixels
        >>> rotate_and_shift(image, degrees=[0], shift=[[2, 0]])[0, 0, :, 0].numpy().tolist()
        [0.0, 0.0, 1.0]
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
    # Positions outside of the image refer to an additional last pixel, which is 0.
    source = tf.where(inside, from_y * width + from_x, height * width)
    pixels = tf.pad(tf.reshape(images, (batch, height * width, channels)), ((0, 0), (0, 1), (0, 0)))
    return tf.ensure_shape(tf.gather(pixels, source, batch_dims=1), images.shape)


def add_spots(images: tf.Tensor, count: Any, seed: Any, most: int) -> tf.Tensor:
    """Set random pixels to white.

    Args:
        images: `(B, height, width, 1)` float.
        count: `(B,)` int, number of pixels per image, drawn with replacement.
        seed: pair of integers.
        most: maximum number of pixels per image; a larger `count` is clipped.

    Returns:
        `(B, height, width, 1)`.

    Example:
        >>> spotted = add_spots(tf.zeros((1, 28, 28, 1)), tf.constant([5]), seed=(0, 1), most=9)
        >>> int(tf.reduce_sum(spotted))
        5
    """
    batch, height, width, _ = _sizes(images)
    pixels = height * width
    place = tf.random.stateless_uniform((batch, most), seed, 0, pixels, dtype=tf.int32)
    drawn = tf.range(most)[None] < count[:, None]
    row = tf.broadcast_to(tf.range(batch)[:, None], (batch, most))
    index = tf.stack([row, place], axis=-1)  # (B, most, 2)
    spotted = tf.tensor_scatter_nd_max(
        tf.reshape(images, (batch, pixels)), index, tf.cast(drawn, images.dtype)
    )
    return tf.reshape(spotted, tf.shape(images))


def _integers(seed, shape, limit):
    if limit == 0:
        return tf.zeros(shape, tf.int32)
    return tf.random.stateless_uniform(shape, seed, -limit, limit, dtype=tf.int32)


def _nearest(position):
    # Half a pixel is rounded up. Rotations by right angles result in halves up to rounding errors;
    # the margin of 1e-4 makes sure that these are also rounded up.
    return tf.cast(tf.floor(position + (0.5 + 1e-4)), tf.int32)


def _sizes(images):
    static, dynamic = images.shape, tf.shape(images)
    return tuple(dynamic[i] if size is None else size for i, size in enumerate(static))
