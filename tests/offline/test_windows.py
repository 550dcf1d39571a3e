"""Windows of episodes, sampled for training or updated while a policy acts."""

import dataclasses

import keras
import numpy as np
import pytest
from counting_episodes import lengths, offline
from hypothesis import given, settings
from hypothesis import strategies as st

from rrl_tf.errors import InvalidInput
from rrl_tf.offline import LastSteps, Scaling, Windows
from rrl_tf.offline.windows import action_vectors
from serving.sessions import WindowSession


@settings(max_examples=25)
@given(
    lengths=lengths,
    length=st.integers(1, 6),
    discrete=st.booleans(),
    sampling=st.sampled_from(["steps", "returns", "episodes"]),
)
def test_windows_are_padded_parts_of_episodes(lengths, length, discrete, sampling):
    data = offline(lengths, discrete)
    batch = Windows(data, length, sampling).batch(20, seed=1)
    for row in range(20):
        mask = batch["mask"][row] > 0
        steps = mask.sum()
        assert steps >= 1 and (mask == (np.arange(length) >= length - steps)).all()
        states, times = batch["states"][row, mask], batch["timesteps"][row, mask]
        source, begin = data.episodes[int(states[0, 0] // 100)], int(times[0])
        part = slice(begin, begin + steps)
        np.testing.assert_array_equal(times, np.arange(begin, begin + steps))
        np.testing.assert_array_equal(states, source.observations[part])
        actions = source.actions[part]
        expected = np.eye(3)[actions] if discrete else actions
        np.testing.assert_array_equal(batch["actions"][row, mask], expected)
        returns = [source.rewards[t:].sum() for t in times]
        np.testing.assert_allclose(batch["returns_to_go"][row, mask, 0], returns, rtol=1e-6)
        for name in ("states", "actions", "returns_to_go", "timesteps"):
            assert (batch[name][row, ~mask] == 0).all()
        assert begin == 0 or steps == length
        if sampling == "episodes":
            assert steps == min(length, len(source))


def last_steps(windows, size=40_000):
    """Return 100 * episode + step of the last step of each window, as stored in its state."""
    return windows.batch(size, seed=0)["states"][:, -1, 0].astype(int)


def step_probabilities(weights):
    """Normalise weights of the steps of episodes of 1, 4 and 15 steps to (episode, step)."""
    table = np.zeros((3, 15))
    for row, values in zip(table, np.split(np.asarray(weights, float), [1, 5])):
        row[: len(values)] = values
    return table / table.sum()


UNIFORM, RETURNS = np.ones(20), np.repeat([0.0, 9.0, 119.0], [1, 4, 15])
"""Sampling weights; the returns of the episodes are 1, 10 and 120."""


@pytest.mark.parametrize(
    ("options", "weights"),
    [
        ({}, UNIFORM),
        ({"sampling": "returns"}, RETURNS),
        ({"sampling": "returns", "return_power": 2.0}, RETURNS**2),
        # Full windows of 3 steps end at steps 2 to 3 of the 4 steps, or 2 to 14 of the 15 steps.
        ({"sampling": "episodes"}, [1, 0, 0, 1 / 2, 1 / 2, 0, 0, *[1 / 13] * 13]),
        ({"start_fraction": 1.0, "start_steps": 4}, [1, *[1] * 4, *[15 / 4] * 4, *[0] * 11]),
    ],
)
def test_sampling_frequencies_follow_the_weights(options, weights):
    last = last_steps(Windows(offline([1, 4, 15]), 3, **options))
    counts = np.zeros((3, 15))
    np.add.at(counts, (last // 100, last % 100), 1)
    np.testing.assert_allclose(counts / 40_000, step_probabilities(weights), atol=0.01)


def test_reweight_multiplies_the_probabilities():
    windows = Windows(offline([1, 4, 15]), 1, "returns", start_fraction=0.5, start_steps=2)
    factors = np.arange(20.0)
    windows.reweight(factors)
    last = last_steps(windows)
    counts = np.zeros((3, 15))
    np.add.at(counts, (last // 100, last % 100), 1)
    expected = step_probabilities(RETURNS * factors)
    starts = np.where(np.arange(15) < 2, expected, 0)
    starts *= expected.sum(1, keepdims=True) / np.maximum(starts.sum(1, keepdims=True), 1e-9)
    np.testing.assert_allclose(counts / 40_000, (expected + starts) / 2, atol=0.006)


@pytest.mark.parametrize(
    ("factors", "message"),
    [
        (np.ones(4), r"one number per step, \(5,\); received the shape \(4,\)"),
        (
            np.array([1.0, 1.0, -1.0, 1.0, 1.0]),
            "at least 0, .* received factors from -1 to 1",
        ),
        (np.array([1.0, 1.0, np.nan, 1.0, 1.0]), "received factors from nan to nan"),
        (np.zeros(5), "positive and finite; received factors from 0 to 0"),
        (np.full(5, 1e308), r"received factors from 1e\+308 to 1e\+308"),
    ],
)
def test_reweight_refuses_invalid_factors_and_keeps_the_probabilities(factors, message):
    windows = Windows(offline([2, 3]), 2)
    before = windows.batch(9, seed=0)
    with pytest.raises(InvalidInput, match=message):
        windows.reweight(factors)
    np.testing.assert_array_equal(windows.batch(9, seed=0)["states"], before["states"])


@pytest.mark.parametrize("dtype", ["uint8", "int64", "uint64"])
def test_action_vectors_are_one_hot(dtype):
    vectors = action_vectors(np.array([[5], [2**8 - 1]], dtype), 2**18)
    assert vectors.shape == (2, 1, 2**18) and vectors.dtype == "float32"
    assert np.argwhere(vectors).tolist() == [[0, 0, 5], [1, 0, 255]] and vectors.sum() == 2


def test_full_windows_that_end_after_the_first_steps_are_sampled():
    windows = Windows(offline([9]), 4, "episodes", start_fraction=1.0, start_steps=2)
    assert windows.batch(50, seed=0)["mask"].all()


@given(lengths=lengths, seed=st.integers(0, 99))
def test_condition_return_gives_every_step_the_return_of_its_episode(lengths, seed):
    data = offline(lengths)
    batch = Windows(data, 3, condition="return").batch(10, seed)
    totals = data.returns()[(batch["states"][:, -1, 0] // 100).astype(int)]
    expected = batch["mask"] * totals[:, None]
    np.testing.assert_allclose(batch["returns_to_go"][..., 0], expected, rtol=1e-6)


@pytest.mark.tf_only
def test_a_resumed_dataset_continues_with_the_same_batches():
    data = offline([5, 9])
    windows, scaling = Windows(data, 4), Scaling.of(data)

    def batches(first, count):
        dataset = windows.dataset(6, scaling, seed=3, first=first).take(count)
        return [keras.tree.map_structure(np.asarray, batch) for batch in dataset]

    whole, rest = batches(0, 4), batches(2, 2)
    for a, b in zip(whole[2:], rest):
        keras.tree.map_structure(np.testing.assert_array_equal, a, b)
    inputs, targets, weights = whole[0]
    np.testing.assert_array_equal(targets["action"], inputs["actions"])
    np.testing.assert_array_equal(weights["action"], inputs["mask"])
    assert not np.array_equal(whole[0][0]["states"], whole[1][0]["states"])


class RecordingClient:
    """A client that returns recorded actions and stores the windows that it receives."""

    def __init__(self, states, actions, length, discrete, targets, condition):
        self.actions, self.windows = iter(actions), []
        shapes = {
            "states": (np.dtype("float32"), [-1, length, *states.shape[1:]]),
            "actions": (np.dtype("float32"), [-1, length, 3 if discrete else 2]),
            "returns_to_go": (np.dtype("float32"), [-1, length, 1]),
            "timesteps": (np.dtype("int32"), [-1, length]),
            "mask": (np.dtype("float32"), [-1, length]),
        }
        self.signatures = {"act": {"inputs": shapes}, "default_target": {}}
        self.targets, self.subtracts = targets, int(condition == "return_to_go")

    def predict(self, inputs, signature):
        if signature == "default_target":
            size = int(inputs["batch_size"])
            subtracts = np.full(size, self.subtracts, "int32")
            return {"target_return": self.targets[:size], "subtracts_rewards": subtracts}
        self.windows.append({name: values.copy() for name, values in inputs.items()})
        return {"action": np.asarray(next(self.actions))}


@settings(max_examples=25)
@given(
    steps=st.integers(1, 12),
    length=st.integers(1, 6),
    discrete=st.booleans(),
    condition=st.sampled_from(["return_to_go", "return"]),
)
def test_training_acting_and_a_client_use_equal_windows(steps, length, discrete, condition):
    data = offline([steps, steps], discrete)
    observations, actions, rewards = (
        np.stack([getattr(episode, name) for episode in data.episodes], axis=1)
        for name in ("observations", "actions", "rewards")
    )
    totals = data.returns()
    acting = LastSteps(totals, length, data.action_size, condition)
    client = RecordingClient(observations[0], actions, length, discrete, totals, condition)
    session = WindowSession(client, num_envs=2)
    previous_rewards = np.zeros(2)
    for t in range(steps):
        expected = Windows(data, length, condition=condition).windows([0, 1], [t, t])
        expected["actions"][:, -1] = 0  # the policy has not chosen it yet
        acting.add(observations[t], previous_rewards)
        session.act(observations[t], previous_rewards)
        for name, values in acting.window().items():
            for received in (values, client.windows[t][name]):
                np.testing.assert_array_equal(received, expected[name], err_msg=name)
                assert received.dtype == expected[name].dtype
        acting.choose(actions[t])
        previous_rewards = rewards[t]


@given(episodes=st.integers(1, 6), steps=st.integers(1, 8), seed=st.integers(0, 99))
def test_keep_does_not_change_the_remaining_episodes(episodes, steps, seed):
    rng = np.random.default_rng(seed)
    observations = rng.normal(size=(steps, episodes, 3)).astype("float32")
    rewards = rng.normal(size=(steps, episodes))
    actions = rng.integers(0, 4, (steps, episodes))
    stays = rng.random(episodes) < 0.5
    ends = int(rng.integers(steps))
    alone, together = LastSteps(np.ones(stays.sum()), 4, 4), LastSteps(np.ones(episodes), 4, 4)
    for t in range(steps):
        running = stays if t > ends else slice(None)
        alone.add(observations[t, stays], rewards[t, stays])
        together.add(observations[t, running], rewards[t, running])
        alone.choose(actions[t, stays])
        together.choose(actions[t, running])
        if t == ends:
            together.keep(stays)
    for name, values in together.window().items():
        np.testing.assert_array_equal(values, alone.window()[name])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"start_fraction": 1.5}, "`start_fraction` must be from 0 to 1"),
        ({"start_steps": 0}, "`start_steps` must be a positive.*received 0"),
        ({"sampling": "rows"}, "`sampling` must be one of"),
        ({"condition": "reward"}, "`condition` must be one of .*received 'reward'"),
        ({"context_length": 0}, "`context_length` must be a positive"),
    ],
)
def test_invalid_arguments_are_errors(options, message):
    with pytest.raises(InvalidInput, match=message):
        Windows(offline([3]), **{"context_length": 3, **options})


def test_returns_that_only_differ_by_rounding_are_equally_likely():
    rewards = (np.array([0.1, 0.2, 0.3]), np.array([0.3, 0.2, 0.1]))
    episodes = tuple(
        dataclasses.replace(offline([3]).episodes[0], rewards=each) for each in rewards
    )
    data = dataclasses.replace(offline([3]), episodes=episodes)
    assert data.returns()[0] != data.returns()[1]
    batches = (Windows(data, 3, sampling).batch(200, seed=0) for sampling in ("returns", "steps"))
    by_return, by_step = batches
    for name, values in by_step.items():
        np.testing.assert_array_equal(by_return[name], values)
