"""Perturbation equals Pillow, and depends only on the seed."""

import math

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from rrl_tf.data.perturb import Perturbation, add_spots, brightened, clean, rotate_and_shift
from rrl_tf.errors import InvalidInput

pytestmark = pytest.mark.tf_only

SEEDS = st.integers(0, 2**20)


def digits(count=8, seed=0, size=28):
    """Return random images with a black border, like digits."""
    rng = np.random.default_rng(seed)
    images = np.zeros((count, size, size), np.uint8)
    images[:, 5:-5, 5:-5] = rng.integers(0, 256, (count, size - 10, size - 10))
    return images


def pillow(image, degrees, shift):
    """Rotate and shift an image as torchvision does: Pillow, nearest pixel, about the centre."""
    angle, middle = math.radians(degrees), image.shape[0] / 2
    cos, sin = math.cos(angle), math.sin(angle)
    left, up = -middle - shift[0], -middle - shift[1]
    matrix = [cos, sin, cos * left + sin * up + middle, -sin, cos, cos * up - sin * left + middle]
    picture = Image.fromarray(image)
    return np.asarray(picture.transform(picture.size, Image.Transform.AFFINE, matrix))


@given(seed=SEEDS)
def test_digits_are_rotated_and_shifted_as_in_pillow(seed):
    images, rng = digits(seed=seed), np.random.default_rng(seed)
    degrees, shift = rng.integers(-180, 180, 8), rng.integers(-9, 10, (8, 2))
    ours = np.asarray(rotate_and_shift(images[..., None].astype("float32"), degrees, shift))[..., 0]
    theirs = np.stack([pillow(*each) for each in zip(images, degrees, shift)])
    # A point exactly between two pixels may be rounded either way.
    assert (ours != theirs).mean() < 1e-2


@given(seed=SEEDS, degrees=st.integers(-180, 180))
def test_colour_channels_move_together(seed, degrees):
    image = np.random.default_rng(seed).random((1, 6, 9, 3)).astype("float32")
    together = np.asarray(rotate_and_shift(image, [degrees], [[1, -2]]))
    alone = [rotate_and_shift(image[..., i : i + 1], [degrees], [[1, -2]]) for i in range(3)]
    np.testing.assert_array_equal(together, np.concatenate(alone, axis=-1))


def test_four_quarter_turns_are_the_identity():
    images = digits()[..., None].astype("float32")
    turned = images
    for _ in range(4):
        turned = rotate_and_shift(turned, [90] * 8, np.zeros((8, 2), int))
    np.testing.assert_array_equal(turned, images)
    once = np.asarray(rotate_and_shift(images, [90] * 8, np.zeros((8, 2), int)))
    np.testing.assert_array_equal(once, np.rot90(images, -1, axes=(1, 2)))  # clockwise


@given(seed=SEEDS, count=st.integers(0, 300))
def test_spots_are_white_and_at_most_as_many_as_drawn(seed, count):
    images = digits(4)[..., None] / np.float32(512)
    spotted = np.asarray(add_spots(images, np.full(4, count), (seed, 1), most=300))
    changed = spotted != images
    assert (spotted[changed] == 1).all()
    assert (changed.sum(axis=(1, 2, 3)) <= count).all()
    if count > 10:  # positions are drawn with replacement from 784
        expected = 784 * (1 - (1 - 1 / 784) ** count)
        assert abs(changed.sum() / 4 - expected) < 1 + 0.15 * expected


@pytest.mark.parametrize("spots", [10, 60, 200])
def test_the_number_of_spots_equals_the_books(spots):
    """Regression: images had at most 40 spots."""
    black = np.zeros((2000, 28, 28), np.uint8)
    counts = np.asarray(Perturbation(spots=spots)(black, (0, 3))).sum(axis=(1, 2, 3))
    drawn = spots + (5 * np.abs(np.random.default_rng(0).normal(size=100_000))).astype(int)
    expected = 784 * (1 - (1 - 1 / 784) ** drawn.astype(float))  # distinct positions
    assert abs(counts.mean() - expected.mean()) < 0.6
    assert counts.max() <= spots + 30


def test_positions_of_the_books_spots_do_not_change():
    """10 spots use the first of 40 drawn positions, so reported runs can be reproduced."""
    images, seed = digits(6, size=28), tf.constant([7, 1])
    seeds = tf.unstack(tf.random.split(seed, 4))
    still = Perturbation(shift=0, rotation=0, spots=10)
    place = tf.random.stateless_uniform((6, 40), seeds[3], 0, 784, dtype=tf.int32).numpy()
    count = 10 + (5 * np.abs(tf.random.stateless_normal((6,), seeds[2]))).astype(int)
    expected = images.reshape(6, 784) / np.float32(255)
    for row in range(6):
        expected[row, place[row, : count[row]]] = 1
    np.testing.assert_array_equal(still(images, seed)[..., 0], expected.reshape(6, 28, 28))


@pytest.mark.parametrize("name", ["shift", "rotation", "spots"])
def test_negative_numbers_raise(name):
    with pytest.raises(InvalidInput, match=f"`{name}` must not be negative; received -1"):
        Perturbation(**{name: -1})


@given(seed=SEEDS)
@settings(max_examples=5)
def test_equal_seeds_give_equal_perturbations(seed):
    images, perturbation = digits(), Perturbation()
    first = np.asarray(perturbation(images, (seed, 0)))
    np.testing.assert_array_equal(first, perturbation(images, (seed, 0)))
    assert (first != np.asarray(perturbation(images, (seed, 1)))).any()
    assert first.dtype == np.float32 and first.shape == (8, 28, 28, 1)
    np.testing.assert_array_equal(first.max(axis=(1, 2, 3)), 1)
    assert first.min() == 0


def test_zero_perturbation_is_the_identity():
    images = digits()
    images[:, 10, 10] = 255
    still = Perturbation(shift=0, rotation=0, spots=0)(images, (0, 0))
    np.testing.assert_array_equal(still, clean(images))
    assert not np.asarray(brightened(np.zeros((1, 4, 4, 1), np.float32))).any()


def test_ranges_exclude_their_upper_end():
    images = np.zeros((2000, 29, 29), np.uint8)
    images[:, 14, 14] = 255
    moved = np.asarray(Perturbation(shift=3, rotation=30, spots=0)(images, (0, 0)))[..., 0]
    _, row, column = np.nonzero(moved)
    assert set(row - 14) == set(column - 14) == set(range(-3, 3))
