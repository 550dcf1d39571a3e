"""Comparison: observations, the need for both objects, every start, the task."""

from collections import Counter
from itertools import product

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from hypothesis import given, settings
from hypothesis import strategies as st
from minigrid.core.constants import IDX_TO_COLOR, IDX_TO_OBJECT, OBJECT_TO_IDX
from minigrid.minigrid_env import MiniGridEnv

from rrl_tf.envs import (
    ComparisonStart,
    comparison_task,
    enumerate_comparison_starts,
    make_comparison,
)
from rrl_tf.envs.comparison import KINDS, OBJECTS
from rrl_tf.errors import InvalidInput

LEFT, RIGHT, FORWARD = range(3)
AHEAD, BESIDE = (3, 5), (2, 6)
SIZES = (11, 12, 14, 17)
LAYOUTS = [*product(KINDS, KINDS)]
STARTS = enumerate_comparison_starts(12)


def seen(view):
    """Return the objects to compare in a view, as `{cell: name}`."""
    names = {
        (x, y): f"{IDX_TO_COLOR[view[x, y, 1]]} {IDX_TO_OBJECT[view[x, y, 0]]}"
        for x, y in product(range(7), range(7))
    }
    return {cell: name for cell, name in names.items() if name in OBJECTS}


def is_wall(view, cell):
    return view[cell][0] == OBJECT_TO_IDX["wall"]


def reachable_poses(env):
    """Return every (position, direction) that is reachable before the episode ends."""
    world = env.unwrapped
    env.reset(seed=0)
    found, border = set(), {((1, 2), 0)}
    while border:
        found |= border
        border = {pose for old in border for pose in after(world, old)} - found
    return found


def after(world, pose):
    for action in (LEFT, RIGHT, FORWARD):
        world.agent_pos, world.agent_dir = pose
        if not world.step(action)[2]:
            yield tuple(map(int, world.agent_pos)), world.agent_dir


def oracle(observation):
    """Walk past both objects to the fork: a generator of actions that receives views.

    It returns the names of the first and the second object.
    """
    for turn in (LEFT, LEFT):
        observation = yield turn
    while not is_wall(observation, AHEAD):
        observation = yield FORWARD
    for turn in (LEFT, LEFT):
        observation = yield turn
    first = seen(observation)[BESIDE]
    second = None
    while not is_wall(observation, AHEAD):
        observation = yield FORWARD
        for name in seen(observation).values():
            second = name
    return first, second


def play(env, start, answer):
    """Play the oracle, then turn left if `answer(first, second)`; return the last outcome."""
    observation, _ = env.reset(options={"start": start})
    moves = oracle(observation)
    move = next(moves)
    while True:
        observation, reward, terminated, truncated, info = env.step(move)
        assert (reward, terminated, truncated, info) == (0, False, False, {})
        try:
            move = moves.send(observation)
        except StopIteration as end:
            env.step(LEFT if answer(*end.value) else RIGHT)
            return env.step(FORWARD)[1:]


@pytest.mark.parametrize("size", SIZES)
def test_two_objects_are_never_in_view_together(size):
    env = make_comparison(size)
    poses = reachable_poses(env)
    assert len(poses) == 4 * (size - 2)  # the hallway and the fork
    for first, second in LAYOUTS:
        env.reset(options={"start": ComparisonStart(size, 1, first, second)})
        views = [seen(view_from(env.unwrapped, pose)) for pose in poses]
        assert max(map(len, views)) == 1
        names = {name for view in views for name in view.values()}
        assert names == {first, second}


def view_from(world, pose):
    """Return MiniGrid's own view of the agent."""
    world.agent_pos, world.agent_dir = pose
    view = MiniGridEnv.gen_obs(world)["image"]
    np.testing.assert_array_equal(world.gen_obs()["image"], view)
    return view


@pytest.mark.parametrize("size", range(6, 11))
def test_in_smaller_rooms_some_view_shows_both(size):
    env = make_comparison(size)
    poses = reachable_poses(env)
    assert len(poses) == 4 * (size - 2)
    env.reset(options={"start": ComparisonStart(size, 1, *LAYOUTS[1])})
    views = [seen(view_from(env.unwrapped, pose)) for pose in poses]
    assert {frozenset(view.values()) for view in views if len(view) == 2} == {frozenset(LAYOUTS[1])}


@pytest.mark.parametrize("size", SIZES)
def test_both_objects_are_visible_on_the_way_and_not_at_the_fork(size):
    env = make_comparison(size)
    for first, second in LAYOUTS:
        observation, _ = env.reset(options={"start": ComparisonStart(size, 1, first, second)})
        assert [*seen(observation).values()] == [first]
        views = [env.step(FORWARD)[0] for _ in range(size - 3)]
        assert is_wall(views[-1], AHEAD)  # at the fork
        assert {name for view in views for name in seen(view).values()} == {second}
        at_the_fork = [views[-1]] + [env.step(move)[0] for move in (LEFT, RIGHT, RIGHT)]
        assert any(map(seen, at_the_fork)) == (size < 14)


@pytest.mark.parametrize("size", SIZES)
def test_both_goals_are_in_view_before_the_fork(size):
    task = comparison_task((size,))
    env = task.make_env()
    observation, _ = env.reset(options={"start": ComparisonStart(size, size - 3, *LAYOUTS[0])})
    cells = task.entities(observation)
    assert cells["green goal"] == (2, 5) and cells["red goal"] == (4, 5)


@pytest.mark.parametrize("kinds", [KINDS, KINDS[:2], tuple(OBJECTS)[:5]], ids=len)
def test_one_object_does_not_determine_the_answer(kinds):
    starts = enumerate_comparison_starts(11, kinds)
    assert set(starts) == {
        ComparisonStart(11, agent, *pair) for agent in range(1, 9) for pair in product(kinds, kinds)
    }
    for known in ("first", "second"):
        counts = Counter((start.agent, getattr(start, known), start.is_same) for start in starts)
        assert set(counts.values()) == {len(kinds) - 1}
        assert len(counts) == 8 * len(kinds) * 2


def test_starts_are_drawn_with_their_frequencies():
    starts = enumerate_comparison_starts(11, KINDS[:3])
    env = make_comparison(11, KINDS[:3])
    env.reset(seed=3)
    draws = 40 * len(starts)
    drawn = Counter(env.reset() and env.unwrapped.start for _ in range(draws))
    assert set(drawn) == set(starts)
    expected = {start: 40 * number for start, number in Counter(starts).items()}
    chi_square = sum((drawn[start] - n) ** 2 / n for start, n in expected.items())
    freedom = len(expected) - 1
    assert abs(chi_square - freedom) < 4 * (2 * freedom) ** 0.5


@pytest.mark.parametrize("size", [6, 9, 11, 14])
def test_a_policy_that_remembers_both_objects_succeeds_from_every_start(size):
    env = make_comparison(size, max_steps=3 * size)
    for start in sorted(set(enumerate_comparison_starts(size))):
        for right in (True, False):
            reward, *ends, info = play(env, start, lambda a, b, right=right: (a == b) == right)
            assert env.unwrapped.start == start
            assert (reward, ends, info) == (float(right), [True, False], {"success": right})


@settings(max_examples=4, deadline=None)
@given(st.sampled_from([0, 1]), st.sets(st.sampled_from(KINDS)))
def test_a_policy_that_forgets_one_object_succeeds_half_of_the_time(known, called_same):
    env = make_comparison(11)
    starts = enumerate_comparison_starts(11)
    outcomes = [play(env, start, lambda *pair: pair[known] in called_same) for start in starts]
    assert sum(info["success"] for *_, info in outcomes) == len(starts) / 2


def test_env_reward_decreases_with_steps():
    env = make_comparison(11, reward="env", max_steps=100)
    env.reset(options={"start": ComparisonStart(11, 8, "red key", "red key")})
    rewards = [env.step(move)[1] for move in (FORWARD, LEFT, FORWARD)]
    assert rewards == [0, 0, pytest.approx(1 - 0.9 * 3 / 100)]
    env.reset(options={"start": ComparisonStart(11, 8, "red key", "red ball")})
    assert [env.step(move)[1] for move in (FORWARD, LEFT, FORWARD)] == [0, 0, 0]


def test_a_time_limit_is_not_a_success():
    env = make_comparison(max_steps=2)
    env.reset(seed=0)
    env.step(LEFT)
    _, reward, terminated, truncated, info = env.step(LEFT)
    assert (reward, terminated, truncated, info) == (0, False, True, {"success": False})
    assert make_comparison(14).unwrapped.max_steps == 5 * 14**2


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 2**32), st.lists(st.integers(0, 2), max_size=20))
def test_equal_seeds_give_equal_episodes(seed, moves):
    one, other = make_comparison(12, frames=2), make_comparison(12, frames=2)
    for _ in range(2):
        np.testing.assert_array_equal(one.reset(seed=seed)[0], other.reset(seed=seed)[0])
        assert one.unwrapped.start == other.unwrapped.start
        for move in moves:
            (observation, *outcome), (same, *same_outcome) = one.step(move), other.step(move)
            np.testing.assert_array_equal(observation, same)
            assert outcome == same_outcome
            if outcome[1]:
                break


def test_starts_are_drawn_from_the_given_ones_with_any_objects():
    starts = enumerate_comparison_starts(12, ("green box", "grey key"))[::5]
    env = make_comparison(12, starts=starts)
    drawn = [env.reset(seed=seed) and env.unwrapped.start for seed in range(60)]
    assert set(drawn) == set(starts)
    start = ComparisonStart(12, 1, "purple ball", "grey key")
    observation, _ = env.reset(options={"start": start})
    assert [*seen(observation).values()] == ["purple ball"]
    assert env.reset() and env.unwrapped.start in starts  # a requested start holds for one episode


@settings(max_examples=20, deadline=None)
@given(st.sampled_from(STARTS), st.sampled_from(STARTS))
def test_state_keys_of_different_states_differ(start, other):
    env = make_comparison(12)
    key = env.get_wrapper_attr("state_key")
    env.reset(options={"start": start})
    before = key()
    env.step(LEFT)
    assert key() != before
    env.step(RIGHT)
    assert key() == before == (*start.layout, start.agent, 2, 0)
    env.reset(options={"start": other})
    assert (key() == before) == (start == other)


def test_passes_gymnasiums_check():
    check_env(make_comparison().unwrapped, skip_render_check=True)


@pytest.mark.parametrize(
    "change",
    [
        {"size": 5},
        {"size": 11.0},
        {"agent": 0},
        {"agent": 9},
        {"agent": "1"},
        {"first": "key"},
        {"second": "red door"},
        {"second": None},
    ],
    ids=str,
)
def test_impossible_starts_raise(change):
    values = {"size": 11, "agent": 1, "first": "red key", "second": "blue ball"}
    message = r"a ComparisonStart must have .*received ComparisonStart"
    with pytest.raises(InvalidInput, match=message):
        ComparisonStart(**(values | change))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"size": 5}, "`size` must be an integer of at least 6; received 5"),
        ({"size": 11.0}, "`size` must be an integer of at least 6; received 11.0"),
        ({"kinds": ("red key",)}, "`kinds` must be two or more different names of .*received"),
        ({"kinds": ("red key", "red key")}, "`kinds` must be two or more different names"),
        ({"kinds": ("red key", "key")}, "`kinds` must be two or more different names"),
        ({"reward": "dense"}, "`reward` must be one of .*received 'dense'"),
        ({"frames": 0}, "`frames` must be a positive integer; received 0"),
        ({"max_steps": 0}, "max_steps` must be a positive integer; received 0"),
        ({"starts": []}, "`starts` must hold at least one ComparisonStart"),
        ({"starts": STARTS[:1]}, "ComparisonStart of size 11; received ComparisonStart"),
    ],
    ids=str,
)
def test_invalid_arguments_raise(arguments, message):
    with pytest.raises(InvalidInput, match=message):
        make_comparison(**arguments)


def test_invalid_starts_and_actions_raise():
    env = make_comparison()
    with pytest.raises(InvalidInput, match="must be a ComparisonStart of size 11; received 3"):
        env.reset(options={"start": 3})
    env.reset(seed=0)
    with pytest.raises(InvalidInput, match="an action must be 0, 1 or 2; received 3"):
        env.step(3)
    assert env.unwrapped.step_count == 0


def test_levels_share_spaces_and_evaluate_every_start():
    task = comparison_task((11, 14))
    assert (task.name, task.num_actions) == ("ComparisonS14", 3)
    assert task.preprocessor.shape == (7, 7, 24)
    assert (task.preprocessor.unseen_feature, task.preprocessor.agent_cell) == (0, (3, 6))
    for level, size in enumerate((11, 14)):
        resets = task.evaluation_resets(level, 1000)
        starts = [reset["options"]["start"] for reset in resets]
        assert starts == list(enumerate_comparison_starts(size))
        assert task.make_env(level).unwrapped.width == size
    env = task.make_test_env(render_mode="rgb_array")
    observation, _ = env.reset(**resets[0])
    assert task.observation_space.contains(observation)
    assert task.entities(observation) == {"agent": (3, 6), "red key": (2, 6)}
    assert task.view(env).shape[-1] == env.render().shape[-1] == 3
    assert comparison_task((11,), frames=4).preprocessor.shape == (7, 7, 96)
    two = comparison_task((11,), kinds=("green box", "grey key"))
    assert two.make_env().reset(seed=0) and len(two.evaluation_resets()) == 8 * 4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"sizes": ()},
            r"`sizes` must be an integer of at least 1, or a sequence of these; received \(\)",
        ),
        ({"sizes": (5,)}, "`size` must be an integer of at least 6; received 5"),
        ({"kinds": ()}, "`kinds` must be two or more"),
        ({"kinds": (["blue key"], "blue box")}, r"`kinds` must be .*\['blue key'\]"),
        ({"reward": "dense"}, "`reward` must be one of"),
        ({"frames": 0}, "`frames` must be a positive integer"),
        ({"max_steps": 0}, "`max_steps` must be a positive integer"),
    ],
    ids=str,
)
def test_invalid_comparison_tasks_raise(arguments, message):
    with pytest.raises(InvalidInput, match=message):
        comparison_task(**arguments)


@pytest.mark.tf_only
def test_the_script_has_a_preset_of_it():
    from train_scripts import train_recurrent

    task = train_recurrent.make_task(train_recurrent.PRESETS["comparison"])
    assert [level.name for level in task.levels] == [f"S{size}" for size in range(6, 15)]
