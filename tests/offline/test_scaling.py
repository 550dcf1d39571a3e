"""Scaling of raw values for a network, and of its predictions."""

import dataclasses

import keras
import numpy as np
import pytest
from counting_episodes import BOX, offline
from gymnasium.spaces import Box
from hypothesis import given
from hypothesis import strategies as st

from rrl_tf.errors import InvalidInput
from rrl_tf.layers import CensoredNormalLoss
from rrl_tf.offline import Episode, OfflineData, Scaling, Windows
from rrl_tf.offline.scaling import largest_return, within_rounding


def test_scaling_standardises_states_and_inverts_actions():
    data = offline([5, 9])
    scaling = Scaling.of(data)
    states = np.concatenate([e.observations[:-1] for e in data.episodes])
    scaled = np.asarray(scaling.states(states[None]))[0]
    np.testing.assert_allclose(scaled.mean(0), 0, atol=1e-4)
    np.testing.assert_allclose(scaled.std(0), 1, atol=1e-4)
    window = scaling.window(Windows(data, 5).windows([1], [8]))
    assert np.asarray(window["returns_to_go"]).max() <= 1
    actions = np.asarray(window["actions"])
    assert np.abs(actions).max() <= 1
    np.testing.assert_allclose(
        np.asarray(scaling.action(actions[0])), data.episodes[1].actions[4:9], atol=1e-5
    )
    beyond = np.asarray(scaling.action(np.array([[9.0, -9.0]], "float32")))
    np.testing.assert_allclose(beyond, [[4.0, -2.0]])


def test_scaling_of_preprocessed_and_discrete_data():
    data = offline([4], discrete=True)
    scaling = Scaling.of(data, preprocessor=lambda states: states[..., None] * np.ones(3, "f"))
    assert scaling.state_size == 6
    window = scaling.window(Windows(data, 4).windows([0], [3]))
    assert tuple(window["states"].shape) == (1, 4, 6)
    np.testing.assert_array_equal(
        np.asarray(window["states"])[0, :, :3], np.arange(4)[:, None] * np.ones(3)
    )
    logits = np.array([[0.1, 0.9, 0.3], [5.0, 1.0, 2.0]], "float32")
    assert np.asarray(scaling.action(logits)).tolist() == [1, 0]


def test_a_constant_feature_keeps_its_scale():
    constant = Episode(np.ones((4, 2), "f"), np.zeros((3, 2), "f"), np.ones(3), True, False)
    scaling = Scaling.of(OfflineData("test", (constant,), BOX, "none"))
    assert np.abs(np.asarray(scaling.states(np.full((1, 1, 2), 1.001, "float32")))).max() < 0.01


def of_states(states):
    """Return data of one episode with these states."""
    states = np.asarray(states)
    steps = len(states) - 1
    part = Episode(states, np.zeros((steps, 2), "f"), np.ones(steps), True, False)
    return OfflineData("test", (part,), BOX, "none")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("mean", "deviation"), [(0, 9e-7), (0, 1e-30), (1e7, 1), (-1e7, 3), (1e30, 1e29)]
)
def test_the_unit_of_a_feature_has_no_effect(mean, deviation, dtype):
    if dtype == "float64" and keras.backend.backend() == "jax":
        pytest.skip("JAX has no float64")
    draws = np.random.default_rng(0).normal(mean, deviation, (1001, 2)).astype(dtype)
    scaling = Scaling.of(of_states(draws))
    expected = draws[:-1].std(axis=0, dtype="float64")
    np.testing.assert_allclose(1 / scaling.state_factor.astype("float64"), expected, rtol=1e-6)
    scaled = np.asarray(scaling.states(draws[None, :-1]))[0].astype("float64")
    np.testing.assert_allclose(scaled.std(axis=0), 1, rtol=1e-4)
    np.testing.assert_allclose(scaled.mean(axis=0), 0, atol=0.3 if abs(mean) == 1e7 else 1e-4)


@pytest.mark.parametrize("value", [1.0, 0.1, 1e7, 3e-20, -2.5e20])
def test_a_feature_that_only_differs_by_rounding_is_constant(value):
    value = np.float32(value)
    rounded = np.where(np.arange(1001) % 2, value, np.nextafter(value, np.float32(0)))
    for states in (rounded, np.full(1001, value), value * (1 + 1e-15 * np.sin(np.arange(1001)))):
        scaling = Scaling.of(of_states(np.stack([states, states], axis=1)))
        assert scaling.state_factor.tolist() == [1, 1]


@given(largest=st.floats(1e-30, 1e30), ulps=st.integers(1, 5))
def test_rounding_is_half_the_distance_between_float32_numbers(largest, ulps):
    distance = float(np.spacing(np.float32(largest)))
    assert within_rounding(0.5 * distance, largest)
    assert not within_rounding(ulps * distance, largest)


@pytest.mark.parametrize(("low", "high"), [(5.099187, 5.230487), (10000.655, 10001.912)])
def test_the_loss_of_clipped_actions_recognises_bounds_far_from_zero(low, high):
    low, high = np.full(2, low, "float32"), np.full(2, high, "float32")
    part = Episode(np.zeros((4, 2)), np.stack([low, high, low]), np.ones(3), True, False)
    data = OfflineData("test", (part,), Box(low, high), "none")
    actions = Scaling.of(data).window(Windows(data, 3).windows([0], [2]))["actions"]
    assert np.asarray(actions)[0].tolist() == [[-1, -1], [1, 1], [-1, -1]]
    beyond = np.concatenate([9 * np.asarray(actions), np.zeros_like(actions)], axis=-1)
    assert float(CensoredNormalLoss()(actions, beyond)) == pytest.approx(0, abs=1e-6)


def of_rewards(*rewards):
    """Return data of one episode for each list of rewards."""
    episodes = tuple(
        Episode(np.zeros((len(r) + 1, 2), "f"), np.zeros((len(r), 2), "f"), r, True, False)
        for r in (np.array(each, "float32") for each in rewards)
    )
    return OfflineData("test", episodes, BOX, "none")


sizes = st.one_of(st.just(0.0), st.floats(1e-3, 100))
rewards_of_one_sign = st.lists(st.lists(sizes, min_size=1, max_size=30), min_size=1, max_size=4)


@given(rewards=rewards_of_one_sign, sign=st.sampled_from([-1, 1]))
def test_scale_of_rewards_of_one_sign_is_the_largest_return(rewards, sign):
    data = of_rewards(*(sign * np.array(each) for each in rewards))
    expected = np.abs(data.returns()).max() or 1.0
    assert Scaling.of(data).return_scale == expected
    assert Scaling.of(data, condition="return").return_scale == expected


@given(
    rewards=st.lists(
        st.lists(st.floats(-100, 100, width=32), min_size=1, max_size=9), min_size=1, max_size=4
    ),
    condition=st.sampled_from(["return_to_go", "return"]),
)
def test_the_returns_that_the_network_receives_are_at_most_1(rewards, condition):
    data = of_rewards(*rewards)
    scaling = Scaling.of(data, condition=condition)
    windows = Windows(data, 9, condition=condition)
    last = [len(episode) - 1 for episode in data.episodes]
    inputs = np.asarray(scaling.window(windows.windows(range(len(last)), last))["returns_to_go"])
    assert np.abs(inputs).max() <= 1 + 1e-6
    assert abs(scaling.target_return / scaling.return_scale) <= 1 + 1e-6


def test_returns_to_go_larger_than_the_returns():
    data = of_rewards([-100, 100, 0, 0.001])
    assert largest_return(data) == pytest.approx(100.001)
    assert largest_return(data, "return") == pytest.approx(0.001, rel=1e-6)
    assert Scaling.of(data).return_scale == largest_return(data)


def test_returns_of_rounding_errors_have_the_scale_1():
    data = of_rewards([0.1, 0.2, -0.3], [0.0])
    assert abs(data.returns()[0]) > 0
    assert Scaling.of(data, condition="return").return_scale == 1
    assert Scaling.of(of_rewards([0, 0])).return_scale == 1


def test_integer_actions_are_scaled_and_rounded():
    space = Box(np.array([0, -3]), np.array([10, 3]), dtype=np.int64)
    actions = np.array([[0, 3], [10, -3], [5, 0]])
    part = Episode(np.zeros((4, 2)), actions, np.ones(3), True, False)
    data = OfflineData("test", (part,), space, "none")
    scaling = Scaling.of(data)
    scaled = scaling.window(Windows(data, 3).windows([0], [2]))["actions"][0]
    assert np.asarray(scaled).tolist() == [[-1, 1], [1, -1], [0, 0]]
    predicted = np.asarray(scaling.action(np.array([[0.39, -9.0], [0.41, 0.4]], "float32")))
    assert predicted.dtype == "float32" and predicted.tolist() == [[7, -3], [7, 1]]


def test_observations_that_are_not_vectors_need_a_preprocessor():
    images = Episode(np.zeros((3, 7, 7)), np.zeros((2, 2), "f"), np.zeros(2), True, False)
    with pytest.raises(InvalidInput, match=r"`preprocessor` must be .*`--preprocessor one_hot`"):
        Scaling.of(OfflineData("test", (images,), BOX, "none"))


@pytest.mark.parametrize("value", [0, -1.0, float("nan"), float("inf")])
def test_return_scale_must_be_positive_and_finite(value):
    with pytest.raises(InvalidInput, match=f"`return_scale` must be positive .*; received {value}"):
        Scaling.of(offline([4]), return_scale=value)


@pytest.mark.parametrize(
    ("low", "high"),
    [([-1.0, 3.0], [1.0, 3.0]), ([-3.4e38, 0.0], [3.4e38, 0.0]), ([2e38, -5.0], [3.4e38, -5.0])],
)
def test_equal_and_distant_bounds_give_finite_actions(low, high):
    low, high = np.array(low, "float32"), np.array(high, "float32")
    actions = np.stack([low, high / 2 + low / 2, high])
    part = Episode(np.zeros((4, 2)), actions, np.ones(3), True, False)
    data = OfflineData("test", (part,), Box(low, high), "none")
    scaling = Scaling.of(data)
    window = scaling.window(Windows(data, 3).windows([0], [2]))
    np.testing.assert_allclose(window["actions"][0], [[-1, 0], [0, 0], [1, 0]], atol=1e-6)
    played = np.asarray(scaling.action(np.array([[-1, 9], [0, -9], [1, 0.5]], "float32")))
    np.testing.assert_allclose(played, actions, rtol=1e-6)
    beyond = keras.ops.full((1, 2), 9.0)
    assert np.asarray(scaling.action(beyond)).tolist() == [high.tolist()]


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
@pytest.mark.parametrize(
    "name", ["state_offset", "state_factor", "action_low", "action_high", "target_return"]
)
def test_statistics_must_be_finite(name, wrong):
    numbers = [np.zeros(2), np.ones(2), 1.0, -np.ones(1), np.ones(1)]
    with pytest.raises(InvalidInput, match=f"`{name}` must be finite .*; received {wrong}"):
        dataclasses.replace(Scaling(*numbers), **{name: np.array([0.0, wrong])})
