"""Exploration noise, compared with its formulas."""

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete
from hypothesis import given
from hypothesis import strategies as st

from rrl_tf.errors import InvalidInput
from rrl_tf.offline.recording import exploring

bounds = st.tuples(st.floats(-50, 49, width=32), st.floats(0.5, 50)).map(
    lambda drawn: (drawn[0], drawn[0] + drawn[1])
)
spaces = st.lists(bounds, min_size=1, max_size=3).map(
    lambda each: Box(*np.array(each, "float32").T.copy())
)
places = st.lists(st.floats(-1.5, 1.5), min_size=3, max_size=3)


def action_at(space, place):
    """Scale `place` to the space; -1 and 1 are the bounds."""
    middle, half = (space.low + space.high) / 2.0, (space.high - space.low) / 2.0
    return middle + half * np.array(place[: len(middle)])


def unit(space, action):
    return (action - (space.low + space.high) / 2.0) / ((space.high - space.low) / 2.0)


@given(space=spaces, place=places, level=st.floats(0, 3), seed=st.integers(0, 2**20))
def test_noise_follows_its_formula(space, place, level, seed):
    mean = action_at(space, place)
    normal = np.random.default_rng(seed).normal(size=(5, *space.shape)) * level
    clipped = exploring(lambda o: mean, space, np.random.default_rng(seed), "clipped", level)
    squashed = exploring(lambda o: mean, space, np.random.default_rng(seed), "tanh", level)
    inside = np.clip(place[: len(mean)], -0.999, 0.999)
    for noise in normal:
        for act, expected in (
            (clipped, np.clip(place[: len(mean)] + noise, -1, 1)),
            (squashed, np.tanh(np.arctanh(inside) + noise)),
        ):
            action = act(None)
            assert space.contains(action)
            np.testing.assert_allclose(unit(space, action), expected, atol=1e-4)


def test_a_dimension_with_equal_bounds_keeps_its_value():
    space = Box(np.array([-1, 0.5], "float32"), np.array([1, 0.5], "float32"))
    for noise in ("clipped", "tanh"):
        for policy in (None, lambda observation: np.array([0.2, 0.5])):
            action = exploring(policy, space, np.random.default_rng(0), noise, 0.3)(None)
            assert space.contains(action) and action[1] == 0.5


@pytest.mark.parametrize("dtype", ["int64", "uint8"])
def test_noisy_integer_actions_are_rounded(dtype):
    space, rng = Box(0, 10, (2,), dtype), np.random.default_rng(0)
    for noise in ("clipped", "tanh"):
        action = exploring(lambda o: np.array([2.6, 9.7]), space, rng, noise, 0.0)(None)
        assert action.dtype == dtype and action.tolist() == [3, 10]
        act = exploring(None, space, rng, noise, 1.0)
        actions = np.array([act(None) for _ in range(100)])
        assert actions.min() == 0 and actions.max() == 10 and all(map(space.contains, actions))


@given(space=spaces, place=places)
def test_level_0_plays_the_policy(space, place):
    mean = action_at(space, place)
    for noise in ("clipped", "random"):
        rng = np.random.default_rng(0)
        action = exploring(lambda o: mean, space, rng, noise, 0.0)(None)
        assert space.contains(action)
        np.testing.assert_allclose(action, np.clip(mean, space.low, space.high), rtol=1e-6)


def test_clipped_noise_reaches_the_bounds_and_tanh_noise_does_not():
    space, rng = Box(-1, 1, (1,)), np.random.default_rng(0)
    fractions = {}
    for name in ("clipped", "tanh"):
        act = exploring(None, space, rng, name, 1.0)
        fractions[name] = np.mean([abs(act(None)[0]) == 1 for _ in range(2000)])
    assert 0.28 < fractions["clipped"] < 0.36  # P(|normal| > 1) is 0.317
    assert fractions["tanh"] == 0


@given(level=st.floats(0, 1), seed=st.integers(0, 2**20))
def test_level_is_the_fraction_of_random_actions(level, seed):
    calls = []
    rng = np.random.default_rng(seed)
    act = exploring(lambda o: calls.append(o) or 0, Discrete(1000), rng, "random", level)
    actions = np.array([act(i) for i in range(400)])
    chosen = np.isin(np.arange(400), calls)
    assert (actions[chosen] == 0).all()
    assert np.sum(actions[~chosen] == 0) < 5
    assert abs((~chosen).mean() - level) < 0.12


@pytest.mark.parametrize("space", [Discrete(3), Dict({"a": Box(0, 1)}), Box(-np.inf, 1, (2,))])
def test_noise_needs_bounds(space):
    for noise in ("clipped", "tanh"):
        with pytest.raises(InvalidInput, match="a bounded Box of vectors for noise; received"):
            exploring(None, space, np.random.default_rng(0), noise, 1.0)
