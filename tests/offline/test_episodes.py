"""Episodes and data sets of episodes: values, splits and errors."""

import dataclasses

import gymnasium
import numpy as np
import pytest
from counting_episodes import BOX, episode, lengths, offline
from hypothesis import given
from hypothesis import strategies as st

from rrl_tf.errors import InvalidInput
from rrl_tf.offline import Episode, OfflineData, RecordedEnv

DISCRETE = gymnasium.spaces.Discrete(3)


@given(rewards=st.lists(st.floats(-10, 10), min_size=1, max_size=20))
def test_returns_to_go_are_the_sums_of_later_rewards(rewards):
    part = Episode(np.zeros((len(rewards) + 1, 1)), np.zeros(len(rewards)), rewards, True, False)
    expected = [sum(rewards[i:]) for i in range(len(rewards))]
    np.testing.assert_allclose(part.returns_to_go(), expected, atol=1e-9)
    assert part.total == pytest.approx(expected[0], abs=1e-9)


def test_an_episode_converts_lists_and_does_not_copy_arrays():
    part = Episode([[0.0, 1.0], [1.0, 2.0]], [1], [2.5], True, False)
    assert isinstance(part.actions, np.ndarray) and part.total == 2.5
    array = np.zeros((2, 1), "float32")
    assert Episode(array, [0], [1], True, False).observations is array
    with pytest.raises(InvalidInput, match="observations must be numbers; received"):
        Episode([[0.0, 1.0], [1.0]], [1], [2.5], True, False)


def test_recorded_env_returns_the_episode():
    env, replay = (gymnasium.make("CartPole-v1") for _ in range(2))
    env = RecordedEnv(env)
    env.reset(seed=0)
    env.action_space.seed(0)
    over = False
    while not over:
        _, _, terminated, truncated, _ = env.step(env.action_space.sample())
        over = terminated or truncated
    recorded = env.episode()
    observation, _ = replay.reset(seed=0)
    np.testing.assert_array_equal(recorded.observations[0], observation)
    for t, action in enumerate(recorded.actions):
        observation, reward, terminated, truncated, _ = replay.step(action)
        np.testing.assert_array_equal(recorded.observations[t + 1], observation)
        assert recorded.rewards[t] == reward
    assert (terminated, truncated) == (recorded.terminated, recorded.truncated)


def with_nan(values):
    values[1] = np.nan
    return values


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"observations": with_nan}, r"observations must be finite in float32; received nan"),
        ({"rewards": with_nan}, r"rewards must be finite in float32; received nan"),
        ({"rewards": lambda r: r + 1e300}, r"in float32; received 1e\+300"),
        ({"rewards": lambda r: r + 3e38}, r"sum of absolute .* received 9\.0+1e\+38"),
        ({"observations": lambda o: o.astype(object)}, "observations must be numbers .* object"),
        ({"observations": lambda o: np.array({"a": o})}, r"observations must be .* shape \(\)"),
        ({"observations": lambda o: o[:, :0]}, r"observations must be .* shape \(4, 0\)"),
        ({"actions": lambda a: a.astype(str)}, "actions must be numbers .* dtype <U"),
        ({"rewards": lambda r: r + 1j}, "rewards must be numbers .* dtype complex128"),
        ({"actions": lambda a: a[1:]}, "must have 4 observations and 3 actions"),
        ({"observations": lambda a: a[1:]}, "received 3 and 3"),
        ({"rewards": lambda a: a[:0]}, "at least one step"),
        ({"rewards": lambda a: a[:, None]}, "rewards must be"),
    ],
)
def test_invalid_episodes_are_errors(changes, message):
    arrays = {
        "observations": np.zeros((4, 2), "float32"),
        "actions": np.zeros((3, 2), "float32"),
        "rewards": np.zeros(3),
    }
    arrays |= {name: change(arrays[name].copy()) for name, change in changes.items()}
    with pytest.raises(InvalidInput, match=message):
        Episode(**arrays, terminated=True, truncated=False)


def with_action(value, step, discrete=False):
    """Return two episodes; one action of the second episode is `value`."""
    parts = (episode(2, discrete=discrete), episode(5, discrete=discrete))
    parts[1].actions[step] = value
    return parts


@pytest.mark.parametrize(
    ("episodes", "space", "message"),
    [
        ((), BOX, "must have episodes; received none"),
        ((episode(2), episode(2, discrete=True)), BOX, "of episode 1 must have the shapes"),
        ((episode(2),), DISCRETE, r"actions must be in Discrete\(3\), \(T,\) integers"),
        ((episode(2),), gymnasium.spaces.Box(-np.inf, np.inf, (2,)), "bounded Box"),
        ((episode(2),), gymnasium.spaces.MultiBinary(2), "bounded Box"),
        ((episode(2),), gymnasium.spaces.Box(-1, 1, (3,)), r"actions must be in Box.* \(T, A\)"),
        ((episode(2, discrete=True),), gymnasium.spaces.Discrete(2**40), "at most 65536 actions"),
        (with_action([1.0, 7.0], 3), BOX, r"episode 1: .*; received 7.0 in dimension 1 of step 3"),
        (with_action([-2.5, 0.0], 0), BOX, "received -2.5 in dimension 0 of step 0"),
        (with_action([4.0001, 0.0], 0), BOX, "received 4.0001 in dimension 0"),
        (with_action(9, 2, True), DISCRETE, r"episode 1: .*Discrete\(3\); received 9 in step 2"),
        (with_action(-1, 4, True), DISCRETE, "received -1 in step 4"),
    ],
)
def test_invalid_data_are_errors(episodes, space, message):
    with pytest.raises(InvalidInput, match=message):
        OfflineData("test", episodes, space, "none")


def with_dtypes(*dtypes):
    """Return one episode for each pair of dtypes of observations and actions."""
    return tuple(
        Episode(np.ones((3, 2), state), np.ones((2, 2), action), np.ones(2, int), True, False)
        for state, action in dtypes
    )


def test_integers_become_floats_where_floats_are_expected():
    whole = gymnasium.spaces.Box(0, 4, (2,), "int64")
    mixed = OfflineData("test", with_dtypes(("int64", "uint8"), ("float32", "float64")), whole, "")
    for part, kind in zip(mixed.episodes, ("float32", "float64")):
        assert part.observations.dtype == "float32" and part.actions.dtype == kind
        assert part.observations.tolist() == [[1, 1]] * 3
    parts = with_dtypes(("uint8", "float32"))
    assert OfflineData("test", parts, BOX, "none").episodes[0] is parts[0]
    declared = OfflineData("test", parts, BOX, "none", observation_space=BOX)
    assert declared.episodes[0].observations.dtype == "float32"
    with pytest.raises(InvalidInput, match="received 9 in dimension 0 of step 0"):
        OfflineData("test", (dataclasses.replace(parts[0], actions=np.full((2, 2), 9)),), whole, "")


@pytest.mark.parametrize("scale", [1.0, 1e-20, 1e20])
def test_actions_may_exceed_their_bounds_by_rounding(scale):
    high = np.array([0.1, 1000.0]) * scale
    space = gymnasium.spaces.Box((high - 1e-4 * high).astype("float32"), high.astype("float32"))
    parts = with_action(high * (1 + 1e-7), 3)
    parts[0].actions[:] = parts[1].actions[:3] = parts[1].actions[4] = high
    assert OfflineData("test", parts, space, "none").steps == 7
    parts[1].actions[3] = high * (1 + 1e-5)
    with pytest.raises(InvalidInput, match="dimension 0 of step 3"):
        OfflineData("test", parts, space, "none")


@given(lengths=lengths, fraction=st.floats(0.05, 1.0))
def test_best_holds_a_fraction_of_the_steps(lengths, fraction):
    data = offline(lengths)
    best = data.best(fraction)
    assert best.steps >= fraction * data.steps - 1e-9
    assert best.steps - len(best.episodes[-1]) < fraction * data.steps
    rest = [e.total for e in data.episodes if not any(e is b for b in best.episodes)]
    assert not rest or min(e.total for e in best.episodes) >= max(rest)


@given(lengths=lengths, fraction=st.floats(0, 1))
def test_split_is_a_fixed_partition(lengths, fraction):
    data = offline(lengths)
    count = max(1, round(fraction * len(lengths)))
    if count >= len(lengths):
        with pytest.raises(InvalidInput, match=f"must have more .* received {len(lengths)}"):
            data.split(fraction)
        return
    parts = data.split(fraction)
    numbers = [
        [next(i for i, each in enumerate(data.episodes) if each is e) for e in part.episodes]
        for part in parts
    ]
    assert len(numbers[1]) == count
    assert sorted(numbers[0] + numbers[1]) == list(range(len(lengths)))
    assert numbers == [sorted(part) for part in numbers]
    again = data.split(fraction)
    assert all(a is b for x, y in zip(parts, again) for a, b in zip(x.episodes, y.episodes))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda data: data.split(-0.1), "`held_out` must be from 0 to 1; received -0.1"),
        (lambda data: data.split(np.nan), "`held_out` must be from 0 to 1; received nan"),
        (lambda data: data.best(0.0), r"`fraction` must be in \(0, 1\]; received 0.0"),
        (lambda data: data.score(1.0), "must be from D4RL to have scores; received test"),
        (lambda data: data.actions_at_bounds(), r"must be continuous; received Discrete\("),
    ],
)
def test_invalid_calls_are_errors(call, message):
    with pytest.raises(InvalidInput, match=message):
        call(offline([3, 2], discrete=True))


def with_actions(actions, low, high):
    rows = [np.array(part, "float32").reshape(-1, len(low)) for part in actions]
    episodes = [Episode(np.zeros((len(a) + 1, 1)), a, np.zeros(len(a)), True, False) for a in rows]
    space = gymnasium.spaces.Box(np.array(low, "float32"), np.array(high, "float32"))
    return OfflineData("clipped", tuple(episodes), space, "none")


@given(
    places=st.lists(
        st.lists(st.sampled_from(["low", "high", "beyond", "inside"]), min_size=2, max_size=8),
        min_size=1,
        max_size=3,
    ),
    low=st.floats(-100, -1, width=32),
    high=st.floats(1, 100, width=32),
)
def test_actions_at_bounds_are_the_fraction_at_either_bound(places, low, high):
    value = {
        "low": low,
        "high": high,
        "beyond": (1 + 5e-7) * high,
        "inside": high - 1e-3 * (high - low),
    }
    actions = [[(value[p], -value[p], 0.0, 3.0) for p in part] for part in places]
    data = with_actions(actions, [low, -high, -1, 3], [high, -low, 1, 3])
    flat = [p != "inside" for part in places for p in part]
    fraction = sum(flat) / len(flat)
    np.testing.assert_allclose(data.actions_at_bounds(), [fraction, fraction, 0, 0], atol=1e-12)


def test_more_than_5_percent_of_the_actions_at_bounds_warn(recwarn):
    inside = [[(0.1 * i, 0.5)] * 19 for i in range(5)]
    with_actions([*inside, [(1.0, 0.0)] * 5], [-1, -1], [1, 1]).warn_of_bounds()  # 5 of 100
    offline([3], discrete=True).warn_of_bounds()
    assert not recwarn
    with pytest.warns(UserWarning, match=r"^clipped: 6% of the actions .* at their bounds"):
        with_actions([*inside, [(1.0, 0.0)] * 6], [-1, -1], [1, 1]).warn_of_bounds()


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        ((True, False), "terminated"),
        ((True, True), "terminated and truncated"),
        ((False, False), "unfinished"),
    ],
)
def test_repr_of_an_episode_shows_steps_and_return(flags, text):
    part = Episode(np.zeros((301, 4)), np.zeros((300, 2)), np.full(300, -5.0), *flags)
    assert repr(part) == f"<Episode of 300 steps, return -1500, {text}>"


def test_repr_of_data_shows_episodes_and_returns():
    assert repr(offline([300, 4])) == (
        "<OfflineData 'test' of none: 2 episodes, 304 steps, mean return 22580, best 45150, "
        "2 continuous actions>"
    )
    assert repr(offline([1], True)).endswith(
        "1 episode, 1 step, mean return 1, best 1, 3 discrete actions>"
    )
