"""Values and advantages of recorded steps, against sums written out and a chain that is known."""

import dataclasses

import numpy as np
import pytest
from counting_episodes import lengths, offline
from hypothesis import given
from hypothesis import strategies as st

from rrl_tf.errors import InvalidInput
from rrl_tf.offline.advantages import (
    advantage_weights,
    advantages,
    expectile_loss,
    lambda_returns,
)
from rrl_tf.offline.scaling import Scaling


def cut_off(data):
    """The same episodes, ended by a time limit."""
    episodes = (dataclasses.replace(e, terminated=False, truncated=True) for e in data.episodes)
    return dataclasses.replace(data, episodes=tuple(episodes))


@given(
    lengths=lengths,
    terminated=st.booleans(),
    discount=st.floats(0, 1),
    trace=st.floats(0, 1),
    seed=st.integers(0, 99),
)
def test_lambda_returns_are_the_weighted_mean_of_all_bootstrapped_ones(
    lengths, terminated, discount, trace, seed
):
    data = offline(lengths) if terminated else cut_off(offline(lengths))
    values = np.random.default_rng(seed).normal(size=sum(lengths) + len(lengths))
    expected = []
    for episode, own in zip(data.episodes, np.split(values, np.cumsum(np.add(lengths, 1))[:-1])):
        steps = len(episode)
        after = np.append(own[1:-1], 0.0 if terminated else own[-1])
        for t in range(steps):
            powers = discount ** np.arange(steps - t)
            n_step = np.cumsum(powers * episode.rewards[t:]) + discount * powers * after[t:]
            shares = (1 - trace) * trace ** np.arange(steps - t)
            shares[-1] = trace ** (steps - t - 1)
            expected.append((shares * n_step).sum())
    ours = lambda_returns(data, values, discount, trace)
    np.testing.assert_allclose(ours, expected, rtol=1e-6, atol=1e-6)


def test_weights_grow_with_advantages_up_to_a_most():
    values = np.array([-3.0, -1.0, 0.0, 1.0, 1000.0])
    weights = advantage_weights(values, power=2.0)
    np.testing.assert_allclose(weights, np.minimum(np.exp(2 * values / values.std()), 20))
    assert advantage_weights(np.zeros(3), power=2.0).tolist() == [1, 1, 1]
    with pytest.raises(InvalidInput, match="power must be at least 0"):
        advantage_weights(values, power=-1.0)


@given(
    targets=st.lists(st.floats(-10, 10), min_size=1, max_size=9),
    prediction=st.floats(-10, 10),
    expectile=st.floats(0.05, 0.95),
)
def test_the_expectile_loss(targets, prediction, expectile):
    errors = np.array(targets) - prediction
    expected = np.mean(np.where(errors < 0, 1 - expectile, expectile) * errors**2)
    predictions = np.full(len(targets), prediction)
    ours = float(expectile_loss(expectile, np.array(targets), predictions))
    assert ours == pytest.approx(expected, rel=1e-4, abs=1e-5)


def two_ways(count=400):
    """One step, whose action pays or does not; the state tells by how much."""
    rng = np.random.default_rng(0)
    data = offline([1] * count)
    episodes = []
    for episode in data.episodes:
        state, pays = float(rng.normal()), float(rng.integers(2))
        changes = {
            "observations": np.array([[state, 0.0], [0.0, 0.0]], "float32"),
            "actions": np.array([[pays, 0.0]], "float32"),
            "rewards": np.array([10 * state + pays], "float32"),
        }
        episodes.append(dataclasses.replace(episode, **changes))
    return dataclasses.replace(data, episodes=tuple(episodes))


def test_advantages_tell_what_an_action_brought_and_not_where_it_was_taken():
    data = two_ways()
    found = advantages(data, Scaling.of(data), rounds=20, batch_size=5, expectile=0.5)
    paid = np.array([episode.actions[0, 0] for episode in data.episodes])
    states = np.array([episode.observations[0, 0] for episode in data.episodes])
    assert found[paid == 1].mean() - found[paid == 0].mean() == pytest.approx(1.0, abs=0.2)
    assert abs(np.corrcoef(found - paid, states)[0, 1]) < 0.5


def test_advantages_are_the_same_again_and_of_a_seed():
    data = offline([3, 9])
    scaling = Scaling.of(data)
    first, again, other = (advantages(data, scaling, seed, rounds=2) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert first.shape == (12,) and not np.array_equal(first, other)


@pytest.mark.parametrize("name", ["expectile", "discount", "trace"])
def test_numbers_out_of_their_range_are_refused(name):
    data = offline([2])
    with pytest.raises(InvalidInput, match=f"{name} must be"):
        advantages(data, Scaling.of(data), **{name: 1.5})


@pytest.mark.parametrize("wrong", [{"batch_size": 0}, {"rounds": 0}, {"seed": -1}])
def test_what_is_no_count_and_no_seed_is_refused(wrong):
    data = offline([2])
    with pytest.raises(InvalidInput, match=f"{next(iter(wrong))}`? must be"):
        advantages(data, Scaling.of(data), **wrong)
