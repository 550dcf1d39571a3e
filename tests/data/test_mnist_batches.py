"""Batches of MNIST depend on seed and step, and keep labels with images."""

import numpy as np
import pytest

from rrl_tf.data.mnist import Split, batches, preprocessed
from rrl_tf.data.perturb import Perturbation

pytestmark = pytest.mark.tf_only


def split(count=20):
    images = np.random.default_rng(0).integers(0, 256, (count, 28, 28), np.uint8)
    images[:, 0, 0] = np.arange(count)
    return Split(images, np.arange(count))


def raw(images, seed):
    return images


def take(data, count):
    return [tuple(np.asarray(each) for each in batch) for batch in data.take(count)]


@pytest.mark.parametrize("replacement", [True, False])
def test_a_resumed_stream_is_identical(replacement):
    # Regression: the largest seed was an error.
    take(batches(split(), 6, Perturbation(), 2**32 - 1, replacement=replacement), 1)
    whole = take(batches(split(), 6, Perturbation(), 5, replacement=replacement), 9)
    resumed = take(batches(split(), 6, Perturbation(), 5, 4, replacement), 5)
    for ours, theirs in zip(resumed, whole[4:], strict=True):
        np.testing.assert_array_equal(ours[0], theirs[0])
        np.testing.assert_array_equal(ours[1], theirs[1])
    other = take(batches(split(), 6, Perturbation(), 6, replacement=replacement), 1)
    assert (other[0][1] != whole[0][1]).any()


def test_every_image_comes_once_before_any_comes_again():
    labels = np.concatenate([y for _, y in take(batches(split(), 6, raw, 0), 10)])
    rounds = labels.reshape(3, 20)
    for each in rounds:
        assert sorted(each) == list(range(20))
    assert (rounds[0] != rounds[1]).any()


def test_images_keep_their_labels_and_are_drawn_from_all():
    drawn = take(batches(split(), 50, raw, 0, replacement=True), 4)
    for images, labels in drawn:
        np.testing.assert_array_equal(images[:, 0, 0], labels)
    assert set(np.concatenate([labels for _, labels in drawn])) == set(range(20))
    assert len(set(drawn[0][1])) < 50


def test_preprocessed_splits_are_reproducible():
    images, labels = preprocessed(split(), Perturbation(), seed=3, batch_size=8)
    again, _ = preprocessed(split(), Perturbation(), seed=3, batch_size=8)
    np.testing.assert_array_equal(images, again)
    assert images.shape == (20, 28, 28, 1)
    np.testing.assert_array_equal(labels, np.arange(20))
    other, _ = preprocessed(split(), Perturbation(), seed=4, batch_size=8)
    assert (other != images).any()
