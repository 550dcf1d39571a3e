"""What the MNIST benchmark measures, apart from training."""

import numpy as np
import pytest

from benchmarks.reproductions import equivariance, mnist
from rrl_tf.data.mnist import Split

pytestmark = pytest.mark.tf_only


def test_every_axis_begins_with_the_digits_as_they_are():
    images = np.zeros((4, 28, 28), np.uint8)
    images[:, 12:16, 10:18] = np.random.default_rng(0).integers(1, 256, (4, 4, 8))
    inputs = dict(mnist.perturbed_one_by_one(Split(images, np.arange(4))))
    assert {axis for axis, _ in inputs} == set(mnist.STRENGTHS)
    for axis, strengths in mnist.STRENGTHS.items():
        np.testing.assert_allclose(inputs[axis, 0][..., 0], images / 255, atol=1e-6)
        changes = [np.abs(inputs[axis, s] - inputs[axis, 0]).sum() for s in strengths]
        assert min(changes[1:]) > 0
    rotation, shift, _ = mnist.STRENGTHS
    quarter = inputs[rotation, 90][..., 0]
    np.testing.assert_allclose(quarter[0], np.rot90(images[0], -1) / 255, atol=1e-6)
    np.testing.assert_allclose(quarter[1], np.rot90(images[1], 1) / 255, atol=1e-6)
    moved = inputs[shift, 2][..., 0]
    for i, (right, down) in enumerate(((2, 2), (-2, 2), (2, -2), (-2, -2))):
        expected = np.roll(images[i], (down, right), (0, 1)) / 255
        np.testing.assert_allclose(moved[i], expected, atol=1e-6)


def test_the_difference_of_what_is_equivariant_is_none():
    x = np.random.default_rng(0).normal(size=(1, 3, 4, 2))
    for order in (equivariance.rolled(3, 4), equivariance.shuffled(3, 4)):
        assert not equivariance.difference(np.tanh, x, order).any()
        by_place = equivariance.difference(lambda grid: grid * np.arange(4)[:, None], x, order)
        assert by_place.shape == (3, 4) and by_place.max() > 0.1
    grid = np.arange(12).reshape(3, 4)
    np.testing.assert_array_equal(
        equivariance.rolled(3, 4).reshape(3, 4), np.roll(grid, (1, 2), (0, 1))
    )


def test_agents_are_presets_of_the_script():
    for agent in mnist.AGENTS.values():
        assert agent.preset in mnist.train_mnist.PRESETS
    both = [a.curve for a in mnist.AGENTS.values() if a.curve]
    assert sorted(both) == sorted(2 * list(dict.fromkeys(both)))  # clean and perturbed of each
