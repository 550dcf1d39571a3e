"""λ-returns and advantages of recorded steps, compared with their definitions."""

import dataclasses

import numpy as np
import pytest
from counting_episodes import lengths, offline
from hypothesis import given
from hypothesis import strategies as st

from rrl_tf.errors import InvalidInput
from rrl_tf.offline import Scaling
from rrl_tf.offline.advantages import (
    advantage_weights,
    advantages,
    expectile_loss,
    lambda_returns,
)


def truncate(data):
    """Mark all episodes as truncated instead of terminated."""
    episodes = (dataclasses.replace(e, terminated=False, truncated=True) for e in data.episodes)
    return dataclasses.replace(data, episodes=tuple(episodes))


@given(
    lengths=lengths,
    terminated=st.booleans(),
    discount=st.floats(0, 1),
    trace=st.floats(0, 1),
    seed=st.integers(0, 99),
)
def test_lambda_returns_are_the_weighted_mean_of_n_step_returns(
    lengths, terminated, discount, trace, seed
):
    data = offline(lengths) if terminated else truncate(offline(lengths))
    values = np.random.default_rng(seed).normal(size=sum(lengths) + len(lengths))
    expected = []
    for episode, own in zip(data.episodes, np.split(values, np.cumsum(np.add(lengths, 1))[:-1])):
        steps = len(episode)
        after = np.append(own[1:-1], 0.0 if terminated else own[-1])
        for t in range(steps):
            powers = discount ** np.arange(steps - t)
            n_step = np.cumsum(powers * episode.rewards[t:]) + discount * powers * after[t:]
            weights = (1 - trace) * trace ** np.arange(steps - t)
            weights[-1] = trace ** (steps - t - 1)
            expected.append((weights * n_step).sum())
    ours = lambda_returns(data, values, discount, trace)
    np.testing.assert_allclose(ours, expected, rtol=1e-6, atol=1e-6)


def test_advantage_weights_are_exponential_and_at_most_20():
    values = np.array([-3.0, -1.0, 0.0, 1.0, 1000.0])
    weights = advantage_weights(values, power=2.0)
    np.testing.assert_allclose(weights, np.minimum(np.exp(2 * values / values.std()), 20))
    assert advantage_weights(np.zeros(3), power=2.0).tolist() == [1, 1, 1]
    equal = advantage_weights(np.array([0.1 + 0.2, 0.3, -0.3]) + 0.3, power=2.0)
    assert equal[0] == pytest.approx(equal[1], rel=1e-9)
    rounded = advantage_weights(np.array([0.1 + 0.2, 0.3]), power=2.0)
    np.testing.assert_allclose(rounded, np.exp(0.6))
    with pytest.raises(InvalidInput, match="`power` must be at least 0"):
        advantage_weights(values, power=-1.0)


@given(
    targets=st.lists(st.floats(-10, 10), min_size=1, max_size=9),
    prediction=st.floats(-10, 10),
    expectile=st.floats(0.05, 0.95),
)
def test_expectile_loss_weights_errors_by_their_sign(targets, prediction, expectile):
    errors = np.array(targets) - prediction
    expected = np.mean(np.where(errors < 0, 1 - expectile, expectile) * errors**2)
    predictions = np.full(len(targets), prediction)
    ours = float(expectile_loss(expectile, np.array(targets), predictions))
    assert ours == pytest.approx(expected, rel=1e-4, abs=1e-5)


def two_actions(count=400, by_state=10.0, offset=0.0):
    """Return one-step episodes with the reward `by_state` * state + action + offset."""
    rng = np.random.default_rng(0)
    data = offline([1] * count)
    episodes = []
    for episode in data.episodes:
        state, action = float(rng.normal()), float(rng.integers(2))
        changes = {
            "observations": np.array([[state, 0.0], [0.0, 0.0]], "float32"),
            "actions": np.array([[action, 0.0]], "float32"),
            "rewards": np.array([by_state * state + action + offset], "float32"),
        }
        episodes.append(dataclasses.replace(episode, **changes))
    return dataclasses.replace(data, episodes=tuple(episodes))


def test_advantages_depend_on_the_action_and_not_on_the_state():
    data = two_actions()
    found = advantages(data, Scaling.of(data), rounds=20, batch_size=5, expectile=0.5)
    taken = np.array([episode.actions[0, 0] for episode in data.episodes])
    states = np.array([episode.observations[0, 0] for episode in data.episodes])
    assert found[taken == 1].mean() - found[taken == 0].mean() == pytest.approx(1.0, abs=0.2)
    assert abs(np.corrcoef(found - taken, states)[0, 1]) < 0.5


@pytest.mark.parametrize("offset", [0.0, 30.0, -1000.0])
def test_an_offset_of_the_rewards_does_not_hide_the_better_action(offset):
    data = two_actions(2000, by_state=1.0, offset=offset)
    found = advantages(data, Scaling.of(data))
    taken = np.array([episode.actions[0, 0] for episode in data.episodes])
    assert found[taken == 1].mean() - found[taken == 0].mean() == pytest.approx(1.0, abs=0.2)
    weights = advantage_weights(found, power=2.0)
    assert weights[taken == 1].mean() > 10 * weights[taken == 0].mean()


def test_advantages_of_equal_returns_are_small():
    data = two_actions(20, by_state=0.0)
    rewards = (np.array([np.float32(0.1) * (3 + 1e-16 * i)]) for i in range(20))
    episodes = (dataclasses.replace(e, rewards=r) for e, r in zip(data.episodes, rewards))
    data = dataclasses.replace(data, episodes=tuple(episodes))
    assert np.abs(advantages(data, Scaling.of(data))).max() < 1


def test_advantages_depend_on_the_seed_only():
    data = offline([3, 9])
    scaling = Scaling.of(data)
    first, again, other = (advantages(data, scaling, seed, rounds=2) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert first.shape == (12,) and not np.array_equal(first, other)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("expectile", 1.5), ("discount", 1.5), ("trace", 1.5)),
        *(("batch_size", 0), ("rounds", 0), ("seed", -1)),
    ],
)
def test_invalid_arguments_are_errors(name, value):
    data = offline([2])
    with pytest.raises(InvalidInput, match=f"{name}`? must be"):
        advantages(data, Scaling.of(data), **{name: value})
