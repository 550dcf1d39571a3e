"""CensoredNormal and its loss, compared with NumPy and the standard library's erfc."""

import math

import keras
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from keras import ops

from rrl_tf.errors import InvalidInput
from rrl_tf.layers import CensoredNormal, CensoredNormalLoss, censored_normal_mean

loss_of_each = CensoredNormalLoss(reduction=None)
numbers = st.lists(st.floats(-6, 6, width=32), min_size=1, max_size=8)
scales = st.floats(0.05, 3)


def cdf(x):
    return 0.5 * math.erfc(-x / math.sqrt(2))


def negative_log_likelihood(action, location, scale):
    if action >= 1:
        return -math.log(cdf((location - 1) / scale))
    if action <= -1:
        return -math.log(cdf((-1 - location) / scale))
    return 0.5 * ((action - location) / scale) ** 2 + math.log(scale)


def distribution(locations, scale):
    locations = np.asarray(locations, "float32")
    return np.concatenate([locations, np.full_like(locations, math.log(scale))])


@settings(max_examples=50)
@given(locations=numbers, scale=st.floats(0.3, 3), seed=st.integers(0, 99))
def test_loss_equals_the_likelihood_of_clipped_values(locations, scale, seed):
    rng = np.random.default_rng(seed)
    actions = np.clip(rng.normal(size=len(locations)) * 2, -1, 1).astype("float32")
    expected = np.mean(
        [negative_log_likelihood(a, m, scale) for a, m in zip(actions.tolist(), locations)]
    )
    loss = loss_of_each(ops.array(actions), ops.array(distribution(locations, scale)))
    np.testing.assert_allclose(ops.convert_to_numpy(loss), expected, rtol=2e-5, atol=2e-5)


@settings(max_examples=50)
@given(locations=numbers, scale=scales)
def test_mean_equals_the_mean_of_clipped_draws(locations, scale):
    z = np.linspace(-8, 8, 20_001)
    density = np.exp(-0.5 * z * z)
    expected = [np.sum(np.clip(m + scale * z, -1, 1) * density) / density.sum() for m in locations]
    mean = censored_normal_mean(ops.array(np.array(locations, "float32")), ops.array(scale))
    np.testing.assert_allclose(ops.convert_to_numpy(mean), expected, atol=1e-5)


@pytest.mark.parametrize("share", [-0.1, 1.5, math.nan])
def test_noise_scale_outside_0_to_1_is_an_error(share):
    with pytest.raises(InvalidInput, match="`noise_scale` must be from 0 to 1; received"):
        CensoredNormal(noise_scale=share)


def test_loss_and_gradient_are_finite_far_beyond_a_bound():
    far = np.array([-30.0, 30.0], "float32")
    loss = loss_of_each(ops.array(np.ones(2, "float32")), ops.array(distribution(far, 0.5)))
    # For x << 0, log Φ(x) is about -x² / 2 - log(-x sqrt(2 pi)). The two losses are
    # -log Φ(-62) and -log Φ(58); the latter is 0.
    expected = (62**2 / 2 + math.log(62 * math.sqrt(2 * math.pi))) / 2
    np.testing.assert_allclose(ops.convert_to_numpy(loss), expected, rtol=1e-4)


@pytest.mark.tf_only
def test_fit_recovers_location_and_scale_of_clipped_values():
    """The location is 1. A squared error would learn the mean of the clipped draws, 0.8."""
    import tensorflow as tf

    rng = np.random.default_rng(0)
    actions = np.clip(1.0 + 0.5 * rng.normal(size=(4000, 1)), -1, 1).astype("float32")
    layer, location = CensoredNormal(), tf.Variable([[0.0]])
    layer(location)
    optimizer = keras.optimizers.Adam(0.05)
    optimizer.build([location, layer.log_scale])

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            prediction = layer(tf.repeat(location, 4000, axis=0))["distribution"]
            loss = tf.reduce_mean(loss_of_each(actions, prediction))
        variables = [location, layer.log_scale.value]
        optimizer.apply(tape.gradient(loss, variables), [location, layer.log_scale])

    for _ in range(300):
        step()
    assert location.numpy()[0, 0] == pytest.approx(1.0, abs=0.05)
    assert math.exp(layer.log_scale.numpy()[0]) == pytest.approx(0.5, abs=0.05)


@pytest.mark.parametrize("share, expected", [(0.0, 1.0), (1.0, 0.8405)])
def test_action_is_the_mean_for_a_noise_scale(share, expected):
    outputs = CensoredNormal(noise_scale=share, initial_scale=0.4)(ops.array([[1.0]]))
    action = ops.convert_to_numpy(outputs["action"])
    assert float(action[0, 0]) == pytest.approx(expected, abs=1e-4)
    np.testing.assert_allclose(
        ops.convert_to_numpy(outputs["distribution"])[0], [1.0, math.log(0.4)], rtol=1e-6
    )


def test_loss_of_other_shapes_is_an_error():
    with pytest.raises(InvalidInput, match=r"must be 6, twice .*received the shape \(2, 3\)"):
        loss_of_each(ops.zeros((2, 3)), ops.zeros((2, 3)))
