"""Episodes and data sets of them: what belongs together, and what is refused."""

import gymnasium
import numpy as np
import pytest
from counting_episodes import BOX, episode, lengths, offline
from hypothesis import given
from hypothesis import strategies as st

from rrl_tf.errors import InvalidInput
from rrl_tf.offline.episodes import Episode, OfflineData


@given(rewards=st.lists(st.floats(-10, 10), min_size=1, max_size=20))
def test_returns_to_go(rewards):
    part = Episode(
        np.zeros((len(rewards) + 1, 1)), np.zeros((len(rewards), 1)), np.array(rewards), True, False
    )
    expected = [sum(rewards[i:]) for i in range(len(rewards))]
    np.testing.assert_allclose(part.returns_to_go(), expected, atol=1e-9)
    assert part.total == pytest.approx(expected[0], abs=1e-9)


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
        ({"observations": with_nan}, r"observations must be finite .*; received nan at \[1, 0\]"),
        ({"rewards": with_nan}, r"rewards must be finite .*; received nan at \[1\]"),
        ({"rewards": lambda r: r + 1e300}, r"in float32; received 1e\+300 at \[0\]"),
        ({"observations": lambda o: o.astype(object)}, "observations must be numbers .* object"),
        ({"observations": lambda o: np.array({"a": o})}, r"observations must be .* shape \(\)"),
        ({"observations": lambda o: o[:, :0]}, r"observations must be .* shape \(4, 0\)"),
        ({"actions": lambda a: a.astype(str)}, "actions must be numbers .* dtype <U"),
        ({"rewards": lambda r: r + 1j}, "rewards must be numbers .* dtype complex128"),
        ({"rewards": lambda r: np.array(["1.0"] * 3)}, "rewards must be numbers .* dtype <U3"),
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
        ((), BOX, "must have episodes; received none"),
        ((episode(2), episode(2, discrete=True)), BOX, "of episode 1 must have the shapes"),
        ((episode(2),), gymnasium.spaces.Discrete(3), "must be of the space"),
        ((episode(4, discrete=True),), gymnasium.spaces.Discrete(2), "must be of the space"),
        ((episode(2),), gymnasium.spaces.Box(-np.inf, np.inf, (2,)), "bounded Box"),
        ((episode(2),), gymnasium.spaces.MultiBinary(2), "bounded Box"),
        ((episode(2),), gymnasium.spaces.Box(-1, 1, (3,)), "must be of the space"),
        ((episode(2, discrete=True),), gymnasium.spaces.Discrete(2**40), "at most 65536 of them"),
    ],
)
def test_data_that_does_not_belong_together(episodes, space, message):
    with pytest.raises(ValueError, match=message):
        OfflineData("test", episodes, space, "none")


def with_action(value, step, discrete=False):
    """Two episodes, the second with another action."""
    parts = (episode(2, discrete=discrete), episode(5, discrete=discrete))
    parts[1].actions[step] = value
    return parts


@pytest.mark.parametrize(
    ("episodes", "space", "told"),
    [
        (with_action([1.0, 7.0], 3), BOX, r"Box\(.*; received 7.0 in dimension 1 of step 3"),
        (with_action([-2.5, 0.0], 0), BOX, "received -2.5 in dimension 0 of step 0"),
        (with_action([4.0001, 0.0], 0), BOX, "received 4.0001 in dimension 0"),
        (with_action(9, 2, True), gymnasium.spaces.Discrete(3), r"Discrete\(3\); received 9 in s"),
        (with_action(-1, 4, True), gymnasium.spaces.Discrete(3), "received -1 in step 4"),
    ],
)
def test_actions_outside_of_their_space_are_refused_where_they_are(episodes, space, told):
    with pytest.raises(InvalidInput, match=f"test, episode 1: actions must be of the .*{told}"):
        OfflineData("test", episodes, space, "none")


@pytest.mark.parametrize("scale", [1.0, 1e-20, 1e20])
def test_rounding_may_leave_the_bounds(scale):
    high = np.array([0.1, 1000.0]) * scale
    space = gymnasium.spaces.Box((high - 1e-4 * high).astype("float32"), high.astype("float32"))
    parts = with_action(high * (1 + 1e-7), 3)
    parts[0].actions[:] = parts[1].actions[:3] = parts[1].actions[4] = high
    assert OfflineData("test", parts, space, "none").steps == 7
    parts[1].actions[3] = high * (1 + 1e-5)
    with pytest.raises(InvalidInput, match="dimension 0 of step 3"):
        OfflineData("test", parts, space, "none")


@given(lengths=lengths, share=st.floats(0, 1))
def test_what_is_held_out_is_not_trained_on(lengths, share):
    data = offline(lengths)
    count = max(1, round(share * len(lengths)))
    if count >= len(lengths):
        with pytest.raises(ValueError, match=f"needs more of them; received {len(lengths)}"):
            data.split(share)
        return
    parts = data.split(share)
    numbers = [
        [next(i for i, each in enumerate(data.episodes) if each is e) for e in part.episodes]
        for part in parts
    ]
    assert len(numbers[1]) == count
    assert sorted(numbers[0] + numbers[1]) == list(range(len(lengths)))
    assert numbers == [sorted(part) for part in numbers]
    again = data.split(share)
    assert all(a is b for x, y in zip(parts, again) for a, b in zip(x.episodes, y.episodes))


@pytest.mark.parametrize("share", [-0.1, 1.1, np.nan])
def test_what_is_held_out_is_a_share(share):
    with pytest.raises(ValueError, match=f"held_out must be from 0 to 1; received {share}"):
        offline([2, 3]).split(share)


def test_scores_are_for_d4rls_data():
    with pytest.raises(ValueError, match="only D4RL's data have scores; received test"):
        offline([3]).score(1.0)


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
def test_how_many_actions_sit_at_their_bounds(places, low, high):
    """The second dimension is the first one's mirror; neither is the third, which stays inside."""
    value = {
        "low": low,
        "high": high,
        "beyond": (1 + 5e-7) * high,
        "inside": high - 1e-3 * (high - low),
    }
    actions = [[(value[p], -value[p], 0.0) for p in part] for part in places]
    data = with_actions(actions, [low, -high, -1], [high, -low, 1])
    flat = [p != "inside" for part in places for p in part]
    share = sum(flat) / len(flat)
    np.testing.assert_allclose(data.actions_at_bounds(), [share, share, 0.0], atol=1e-12)


def test_many_actions_at_their_bounds_are_worth_a_line(recwarn):
    inside = [[(0.1 * i, 0.5)] * 19 for i in range(5)]
    with_actions([*inside, [(1.0, 0.0)] * 5], [-1, -1], [1, 1]).warn_of_bounds()  # 5 of 100
    offline([3], discrete=True).warn_of_bounds()
    assert not recwarn
    with pytest.warns(UserWarning, match=r"^clipped: 6% of the actions .* at their bounds"):
        with_actions([*inside, [(1.0, 0.0)] * 6], [-1, -1], [1, 1]).warn_of_bounds()


def test_a_dimension_of_a_single_value_has_no_bounds(recwarn):
    data = with_actions([[(0.0, 3.0)] * 9], [-1, 3], [1, 3])
    assert data.actions_at_bounds().tolist() == [0.0, 0.0]
    data.warn_of_bounds()
    assert not recwarn


def test_discrete_actions_have_no_bounds():
    with pytest.raises(ValueError, match="only continuous actions have bounds; received test"):
        offline([3], discrete=True).actions_at_bounds()


def test_lists_are_episodes_too():
    """Once, they gave an AttributeError."""
    part = Episode([[0.0, 1.0], [1.0, 2.0]], [1], [2.5], True, False)
    assert isinstance(part.actions, np.ndarray) and part.total == 2.5
    assert OfflineData("lists", (part,), gymnasium.spaces.Discrete(2), "none").steps == 1
    array = np.zeros((2, 1), "float32")
    assert Episode(array, [0], [1], True, False).observations is array
    with pytest.raises(InvalidInput, match="observations must be numbers of every step; received"):
        Episode([[0.0, 1.0], [1.0]], [1], [2.5], True, False)


@pytest.mark.parametrize(
    ("ended", "told"),
    [
        ((True, False), "terminated"),
        ((False, True), "truncated"),
        ((True, True), "terminated and truncated"),
        ((False, False), "under way"),
    ],
)
def test_an_episode_is_shown_in_a_line(ended, told):
    part = Episode(np.zeros((301, 4)), np.zeros((300, 2)), np.full(300, -5.0), *ended)
    assert repr(part) == f"<Episode of 300 steps, return -1500, {told}>"


def test_data_are_shown_in_a_line():
    data = offline([300, 4])
    assert repr(data) == (
        "<OfflineData 'test' of none: 2 episodes, 304 steps, mean return 22580, best 45150, "
        "2 continuous actions>"
    )
    assert repr(offline([1], True)).endswith(
        "1 episode, 1 step, mean return 1, best 1, 3 discrete actions>"
    )
