"""Windows of episodes: drawn for training, and kept while an agent plays."""

import keras
import numpy as np
import pytest
from counting_episodes import lengths, offline
from hypothesis import given, settings
from hypothesis import strategies as st

from rrl_tf.errors import InvalidInput
from rrl_tf.offline.scaling import Scaling
from rrl_tf.offline.windows import LastSteps, Windows, action_vectors
from serving.sessions import WindowSession


@settings(max_examples=25)
@given(
    lengths=lengths,
    length=st.integers(1, 6),
    discrete=st.booleans(),
    sampling=st.sampled_from(["steps", "returns", "episodes"]),
)
def test_windows_are_parts_of_episodes(lengths, length, discrete, sampling):
    data = offline(lengths, discrete)
    batch = Windows(data, length, sampling).batch(20, seed=1)
    for row in range(20):
        mask = batch["mask"][row] > 0
        steps = mask.sum()
        assert steps >= 1 and (mask == (np.arange(length) >= length - steps)).all()
        states, times = batch["states"][row, mask], batch["timesteps"][row, mask]
        i = int(states[0, 0] // 100)
        source, begin = data.episodes[i], int(times[0])
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
        # A short window begins where its episode does.
        assert begin == 0 or steps == length
        if sampling == "episodes":
            assert steps == min(length, len(source))


def test_every_step_is_equally_often_the_last():
    data = offline([1, 4, 15])
    last = Windows(data, 3).batch(40_000, seed=0)["states"][:, -1, 0]
    _, counts = np.unique(last, return_counts=True)
    assert len(counts) == 20
    np.testing.assert_allclose(counts / 40_000, 1 / 20, atol=0.006)


def test_every_episode_is_equally_likely():
    data = offline([1, 4, 15])
    last = Windows(data, 3, "episodes").batch(30_000, seed=0)["states"][:, -1, 0]
    np.testing.assert_allclose(np.bincount((last // 100).astype(int)) / 30_000, 1 / 3, atol=0.012)


def test_steps_count_for_more_the_higher_the_return():
    data = offline([1, 4, 15])  # with the returns 1, 10 and 120
    last = Windows(data, 3, "returns").batch(40_000, seed=0)["states"][:, -1, 0]
    steps, counts = np.unique(last, return_counts=True)
    weights = np.where(steps < 200, 9.0, 119.0)
    assert len(steps) == 19 and steps.min() == 100
    np.testing.assert_allclose(counts / 40_000, weights / weights.sum(), atol=0.006)


@pytest.mark.parametrize("sampling", ["steps", "returns", "episodes"])
def test_a_share_of_the_windows_ends_in_the_first_steps(sampling):
    data = offline([2, 60])
    last = Windows(data, 3, sampling, starts=0.5).batch(20_000, seed=0)["timesteps"][:, -1]
    last = last[last >= 2]  # of the long episode
    if sampling == "episodes":  # where windows end at step 2 at the earliest
        expected = 0.5 + 0.5 * 4 / 58
    else:
        expected = (0.5 * 4 / 6 + 0.5 * 4 / 60) / (0.5 * 4 / 6 + 0.5 * 58 / 60)
    assert (last < 6).mean() == pytest.approx(expected, abs=0.015)


def test_a_power_favours_the_best_episodes_more():
    data = offline([1, 4, 15])  # shares 0, 9 / 119 and 1
    last = Windows(data, 3, "returns", return_power=2.0).batch(40_000, seed=0)["states"][:, -1, 0]
    steps, counts = np.unique(last, return_counts=True)
    weights = np.where(steps < 200, 9.0, 119.0) ** 2
    np.testing.assert_allclose(counts / 40_000, weights / weights.sum(), atol=0.006)


def test_factors_make_steps_count_for_more():
    data = offline([1, 4, 15])
    windows = Windows(data, 1, "returns", starts=0.5, start_steps=2)
    factors = np.arange(20.0)
    windows.weigh(factors)
    last = windows.batch(40_000, seed=0)["states"][:, -1, 0].astype(int)
    counts = np.zeros((3, 15))
    np.add.at(counts, (last // 100, last % 100), 1)
    expected = np.zeros((3, 15))
    for i, (begin, length, share) in enumerate([(0, 1, 0.0), (1, 4, 9.0), (5, 15, 119.0)]):
        weights = share * factors[begin : begin + length]
        expected[i, :length] += weights / 2
        expected[i, :2] += weights[:2] / max(weights[:2].sum(), 1) * weights.sum() / 2
    np.testing.assert_allclose(counts / 40_000, expected / expected.sum(), atol=0.006)


@pytest.mark.parametrize(
    "factors, told",
    [
        (np.ones(4), r"for each of 5 steps; received \(4,\)"),
        (np.array([1.0, 1.0, -1.0, 1.0, 1.0]), "finite, from 0 up"),
        (np.array([1.0, 1.0, np.nan, 1.0, 1.0]), "finite, from 0 up"),
        (np.zeros(5), "greater than 0"),
        (np.full(5, 1e308), r"the sum of the factors must be finite, .* received up to 1e\+308"),
    ],
)
def test_factors_that_do_not_fit_are_refused(factors, told):
    windows = Windows(offline([2, 3]), 2)
    before = windows.batch(9, seed=0)
    with pytest.raises(InvalidInput, match=told):
        windows.weigh(factors)
    np.testing.assert_array_equal(windows.batch(9, seed=0)["states"], before["states"])


def test_factors_that_grow_beyond_float64_together_are_refused():
    windows = Windows(offline([2, 3]), 2)
    windows.weigh(np.full(5, 1e200))
    with pytest.raises(InvalidInput, match="sum of the factors must be finite, times those before"):
        windows.weigh(np.full(5, 1e200))
    assert windows.batch(9, seed=0)["mask"].any()


@pytest.mark.parametrize("dtype", ["uint8", "int64", "uint64"])
def test_one_hot_actions_take_no_memory_but_their_own(dtype):
    vectors = action_vectors(np.array([[5], [2**8 - 1]], dtype), 2**18)
    assert vectors.shape == (2, 1, 2**18) and vectors.dtype == "float32"
    assert np.argwhere(vectors).tolist() == [[0, 0, 5], [1, 0, 255]] and vectors.sum() == 2


def test_a_start_draws_as_many_windows_of_an_episode_as_elsewhere():
    data = offline([4, 40])
    drawn = Windows(data, 1, starts=1.0, start_steps=4).batch(20_000, seed=0)["states"][:, -1, 0]
    assert (drawn >= 100).mean() == pytest.approx(40 / 44, abs=0.01)
    assert (drawn % 100).max() == 3


def test_full_windows_that_end_after_the_start_are_drawn_all_the_same():
    drawn = Windows(offline([9]), 4, "episodes", starts=1.0, start_steps=2).batch(50, seed=0)
    assert drawn["mask"].all()


@given(lengths=lengths, seed=st.integers(0, 99))
def test_whole_returns_are_told_to_every_step(lengths, seed):
    data = offline(lengths)
    batch = Windows(data, 3, condition="return").batch(10, seed)
    totals = data.returns()[(batch["states"][:, -1, 0] // 100).astype(int)]
    expected = batch["mask"] * totals[:, None]
    np.testing.assert_allclose(batch["returns_to_go"][..., 0], expected, rtol=1e-6)


@pytest.mark.tf_only
def test_a_resumed_dataset_goes_on_with_the_same_batches():
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


class Recording:
    """Answers as the recorded player did, and notes the windows that it is asked with."""

    def __init__(self, states, answers, length, discrete, targets, condition):
        self.answers, self.windows = iter(answers), []
        shapes = {
            "states": ("float32", [-1, length, *states.shape[1:]]),
            "actions": ("float32", [-1, length, 3 if discrete else 2]),
            "returns_to_go": ("float32", [-1, length, 1]),
            "timesteps": ("int32", [-1, length]),
            "mask": ("float32", [-1, length]),
        }
        self.signatures = {"act": {"inputs": shapes}, "default_target": {}}
        self.targets, self.subtracts = targets, int(condition == "return_to_go")

    def predict(self, inputs, signature):
        if signature == "default_target":
            size = int(inputs["batch_size"])
            subtracts = np.full(size, self.subtracts, "int32")
            return {"target_return": self.targets[:size], "subtracts_rewards": subtracts}
        self.windows.append({name: values.copy() for name, values in inputs.items()})
        return {"action": np.asarray(next(self.answers))}


@settings(max_examples=25)
@given(
    steps=st.integers(1, 12),
    length=st.integers(1, 6),
    discrete=st.booleans(),
    condition=st.sampled_from(["return_to_go", "return"]),
)
def test_training_acting_and_a_client_see_the_same_windows(steps, length, discrete, condition):
    """Two episodes, played side by side again as they were recorded."""
    data = offline([steps, steps], discrete)
    observations, actions, rewards = (
        np.stack([getattr(episode, name) for episode in data.episodes], axis=1)
        for name in ("observations", "actions", "rewards")
    )
    totals = data.returns()
    acting = LastSteps(totals, length, data.action_size, condition)
    client = Recording(observations[0], actions, length, discrete, totals, condition)
    session = WindowSession(client, num_envs=2)
    before = np.zeros(2)
    for t in range(steps):
        expected = Windows(data, length, condition=condition).windows([0, 1], [t, t])
        expected["actions"][:, -1] = 0  # not known yet
        acting.add(observations[t], before)
        session.act(observations[t], before)
        for name, values in acting.window().items():
            np.testing.assert_array_equal(values, expected[name], err_msg=name)
            assert values.dtype == expected[name].dtype
            np.testing.assert_array_equal(values, client.windows[t][name], err_msg=name)
            assert values.dtype == client.windows[t][name].dtype
        acting.choose(actions[t])
        before = rewards[t]


@given(episodes=st.integers(1, 6), steps=st.integers(1, 8), seed=st.integers(0, 99))
def test_episodes_that_end_leave_the_others_as_they_are(episodes, steps, seed):
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
    if ends < steps:
        for name, values in together.window().items():
            np.testing.assert_array_equal(values, alone.window()[name])


def test_bad_windows():
    with pytest.raises(ValueError, match="starts must be from 0 to 1"):
        Windows(offline([3]), 3, starts=1.5)
    with pytest.raises(ValueError, match=r"`start_steps` must be a positive.*received 0"):
        Windows(offline([3]), 3, starts=0.5, start_steps=0)
    with pytest.raises(ValueError, match=r"batch_size windows must fit in memory .*received 10000"):
        Windows(offline([3]), 2).check_batch(10**15)
    with pytest.raises(ValueError, match="sampling must be one of"):
        Windows(offline([3]), 4, "rows")
    with pytest.raises(ValueError, match=r"`condition` must be one of .*received 'reward'"):
        Windows(offline([3]), 4, condition="reward")
    with pytest.raises(ValueError, match="`context_length` must be a positive"):
        Windows(offline([3]), 0)
