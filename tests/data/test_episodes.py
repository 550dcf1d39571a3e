"""Episodes, windows of them, and what the network gets to see."""

import gymnasium
import keras
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rrl_tf.data.episodes import Episode, OfflineData
from rrl_tf.data.windows import Scaling, Windows

BOX = gymnasium.spaces.Box(-2.0, 4.0, (2,))


def episode(steps, start=0.0, discrete=False):
    """States count up by one from `start`; the reward of a step is its number plus one."""
    states = start + np.arange(steps + 1, dtype="float32")
    actions = np.arange(steps) % 3
    if not discrete:
        actions = np.stack([np.full(steps, 1.0), actions - 1.0], axis=1).astype("float32")
    rewards = np.arange(1, steps + 1, dtype="float32")
    return Episode(np.stack([states, -states], axis=1), actions, rewards, True, False)


def offline(lengths, discrete=False):
    space = gymnasium.spaces.Discrete(3) if discrete else BOX
    episodes = tuple(episode(n, 100.0 * i, discrete) for i, n in enumerate(lengths))
    return OfflineData("test", episodes, space, "none")


lengths = st.lists(st.integers(1, 12), min_size=1, max_size=4)


@given(rewards=st.lists(st.floats(-10, 10), min_size=1, max_size=20))
def test_returns_to_go(rewards):
    part = Episode(
        np.zeros((len(rewards) + 1, 1)), np.zeros((len(rewards), 1)), np.array(rewards), True, False
    )
    expected = [sum(rewards[i:]) for i in range(len(rewards))]
    np.testing.assert_allclose(part.returns_to_go(), expected, atol=1e-9)
    assert part.total == pytest.approx(expected[0], abs=1e-9)


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


def test_scaling_standardises_states_and_returns_and_maps_actions_back():
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


def test_scaling_of_prepared_and_discrete_data():
    data = offline([4], discrete=True)
    scaling = Scaling.of(data, prepare=lambda states: states[..., None] * np.ones(3, "float32"))
    assert scaling.state_size == 6
    window = scaling.window(Windows(data, 4).windows([0], [3]))
    assert tuple(window["states"].shape) == (1, 4, 6)
    np.testing.assert_array_equal(
        np.asarray(window["states"])[0, :, :3], np.arange(4)[:, None] * np.ones(3)
    )
    logits = np.array([[0.1, 0.9, 0.3], [5.0, 1.0, 2.0]], "float32")
    assert np.asarray(scaling.action(logits)).tolist() == [1, 0]


def test_a_state_that_never_changes_is_no_division_by_zero():
    constant = Episode(
        np.ones((4, 2), "float32"), np.zeros((3, 2), "float32"), np.ones(3), True, False
    )
    scaling = Scaling.of(OfflineData("test", (constant,), BOX, "none"))
    assert np.abs(np.asarray(scaling.states(np.full((1, 1, 2), 1.001, "float32")))).max() < 0.01


@given(lengths=lengths, share=st.floats(0.05, 1.0))
def test_the_best_episodes_hold_the_share(lengths, share):
    data = offline(lengths)
    best = data.best(share)
    assert best.steps >= share * data.steps - 1e-9
    assert best.steps - len(best.episodes[-1]) < share * data.steps
    rest = [e.total for e in data.episodes if not any(e is b for b in best.episodes)]
    assert not rest or min(e.total for e in best.episodes) >= max(rest)


def bad(**changes):
    arrays = {
        "observations": np.zeros((4, 2), "float32"),
        "actions": np.zeros((3, 2), "float32"),
        "rewards": np.zeros(3),
    }
    for name, change in changes.items():
        arrays[name] = change(arrays[name].copy())
    return Episode(**arrays, terminated=True, truncated=False)


def with_nan(values):
    values[1] = np.nan
    return values


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"observations": with_nan}, r"observations hold nan at \[1, 0\]"),
        ({"rewards": with_nan}, r"rewards hold nan at \[1\]"),
        ({"actions": lambda a: a[1:]}, "needs 4 observations and 3 actions"),
        ({"observations": lambda a: a[1:]}, "received 3 and 3"),
        ({"rewards": lambda a: a[:0]}, "at least one step"),
        ({"rewards": lambda a: a[:, None]}, "rewards must be"),
    ],
)
def test_bad_episodes(changes, message):
    with pytest.raises(ValueError, match=message):
        bad(**changes)


@pytest.mark.parametrize(
    ("episodes", "space", "message"),
    [
        ((), BOX, "no episodes"),
        ((episode(2), episode(2, discrete=True)), BOX, "episode 1 have the shapes"),
        ((episode(2),), gymnasium.spaces.Discrete(3), "are not of the space"),
        ((episode(4, discrete=True),), gymnasium.spaces.Discrete(2), "are not of the space"),
        ((episode(2),), gymnasium.spaces.Box(-np.inf, np.inf, (2,)), "bounded Box"),
        ((episode(2),), gymnasium.spaces.MultiBinary(2), "bounded Box"),
        ((episode(2),), gymnasium.spaces.Box(-1, 1, (3,)), "are not of the space"),
    ],
)
def test_data_that_does_not_belong_together(episodes, space, message):
    with pytest.raises(ValueError, match=message):
        OfflineData("test", episodes, space, "none")


def test_bad_windows():
    with pytest.raises(ValueError, match="starts must be a share"):
        Windows(offline([3]), 3, starts=1.5)
    with pytest.raises(ValueError, match="sampling must be one of"):
        Windows(offline([3]), 4, "rows")
    with pytest.raises(ValueError, match="context_length must be positive"):
        Windows(offline([3]), 0)
    images = Episode(np.zeros((3, 7, 7)), np.zeros((2, 2), "float32"), np.zeros(2), True, False)
    with pytest.raises(ValueError, match="need a `prepare`"):
        Scaling.of(OfflineData("test", (images,), BOX, "none"))
