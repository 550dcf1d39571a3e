"""Memory and KeyCorridor without options equal MiniGrid's; their starts and tasks."""

import itertools
import pickle

import gymnasium
import minigrid  # noqa: F401  registers the stock environments
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from hypothesis import given, settings
from hypothesis import strategies as st

from rrl_tf.envs import (
    MemoryStart,
    enumerate_memory_starts,
    key_corridor_task,
    make_key_corridor,
    make_memory,
    memory_task,
)
from rrl_tf.errors import InvalidInput

LEFT, RIGHT, FORWARD = range(3)
KINDS = {5: "key", 6: "ball"}  # MiniGrid's codes


def stock(size, random_length):
    kwargs = {"size": size, "random_length": random_length}
    return gymnasium.make("MiniGrid-MemoryS7-v0", **kwargs).unwrapped


def read_start(env):
    """Read a MemoryStart from the grid of a stock environment after its reset."""
    codes = env.grid.encode()[..., 0]
    middle = env.height // 2
    placed = {tuple(map(int, cell)): KINDS[codes[tuple(cell)]] for cell in np.argwhere(codes > 4)}
    shown = placed.pop((1, middle - 1))
    (hallway_end,) = {x - 1 for x, _ in placed}
    assert env.agent_dir == 0 and env.agent_pos[1] == middle
    upper = placed[hallway_end + 1, middle - 2]
    return MemoryStart(env.width, hallway_end, int(env.agent_pos[0]), shown, upper)


def way(start, right_one=True):
    """Return the moves to the correct or the wrong object."""
    goes_up = (start.shown == start.upper) == right_one
    return [FORWARD] * (start.hallway_end + 1 - start.agent) + [LEFT if goes_up else RIGHT, FORWARD]


@pytest.mark.parametrize(("size", "random_length"), [(7, False), (13, True), (17, True)])
def test_equals_minigrid_without_options(size, random_length):
    ours = make_memory(size, random_length, actions="all", reward="env")
    theirs = stock(size, random_length)
    rng = np.random.default_rng(size)
    for seed in range(4):
        observation, _ = ours.reset(seed=seed)
        expected, _ = theirs.reset(seed=seed)
        assert ours.unwrapped.start == read_start(theirs) == read_start(ours.unwrapped)
        for _ in range(150):
            np.testing.assert_array_equal(observation[..., :3], expected["image"])
            assert (observation[..., 3] == expected["direction"]).all()
            action = int(rng.choice(7, p=[0.15, 0.15, 0.4, 0.1, 0.05, 0.1, 0.05]))
            observation, *outcome, info = ours.step(action)
            expected, *expected_outcome, _ = theirs.step(action)
            assert outcome == expected_outcome
            if outcome[1] or outcome[2]:
                assert info["success"] == (outcome[0] > 0)
                observation, _ = ours.reset()
                expected, _ = theirs.reset()


@pytest.mark.parametrize(
    ("size", "random_length", "starts"),
    [(7, False, 16), (9, False, 24), (11, False, 32), (13, False, 40), (9, True, 60)],
)
def test_enumerated_starts_are_those_minigrid_generates(size, random_length, starts):
    enumerated = enumerate_memory_starts(size, random_length)
    assert len(enumerated) == len(set(enumerated)) == starts
    env = stock(size, random_length)
    env.reset(seed=0)
    seen = set()
    for _ in range(15 * starts):
        env.reset()
        seen.add(read_start(env))
    assert seen == set(enumerated)


@pytest.mark.parametrize(("size", "starts"), [(13, 196), (17, 396)])
def test_random_starts_of_a_larger_grid_stay_in_its_enumeration(size, starts):
    enumerated, env = set(enumerate_memory_starts(size, random_length=True)), stock(size, True)
    assert len(enumerated) == starts
    for seed in range(200):
        env.reset(seed=seed)
        assert read_start(env) in enumerated


@pytest.mark.parametrize(("size", "random_length"), [(7, False), (11, False), (9, True)])
def test_every_start_is_solved_by_the_correct_object_only(size, random_length):
    env = make_memory(size, random_length)
    for start in enumerate_memory_starts(size, random_length):
        for right_one in (True, False):
            env.reset(options={"start": start})
            assert env.unwrapped.start == start == read_start(env.unwrapped)
            *moves, last = way(start, right_one)
            for move in moves:
                _, reward, terminated, truncated, info = env.step(move)
                assert (reward, terminated, truncated, info) == (0, False, False, {})
            _, reward, terminated, truncated, info = env.step(last)
            assert (reward, terminated, truncated) == (right_one, True, False)
            assert info == {"success": right_one}
    env.reset(seed=1)
    assert env.unwrapped.start == read_start(env.unwrapped)  # a request holds for one episode


def test_a_time_limit_is_not_a_success():
    env = make_memory(7, max_steps=2)
    env.reset(seed=0)
    env.step(LEFT)
    _, reward, terminated, truncated, info = env.step(LEFT)
    assert (reward, terminated, truncated, info) == (0, False, True, {"success": False})


def test_starts_are_drawn_from_the_given_ones_by_seed():
    starts = enumerate_memory_starts(9)[::5]
    env = make_memory(9, starts=starts)
    drawn = [env.reset(seed=seed) and env.unwrapped.start for seed in range(60)]
    assert set(drawn) == set(starts)
    assert drawn[:9] == [env.reset(seed=seed) and env.unwrapped.start for seed in range(9)]


@settings(max_examples=20, deadline=None)
@given(
    start=st.sampled_from(enumerate_memory_starts(9, random_length=True)),
    other=st.sampled_from(enumerate_memory_starts(9, random_length=True)),
    moves=st.lists(st.integers(0, 2), max_size=6),
)
def test_state_keys_of_different_states_differ(start, other, moves):
    env = make_memory(9, random_length=True)
    key = env.get_wrapper_attr("state_key")
    env.reset(options={"start": start})
    before = key()
    env.step(LEFT)
    assert key() != before
    env.step(RIGHT)
    assert key() == before == (*start.layout, start.shown, start.upper, start.agent, 4, 0)
    env.reset(options={"start": other})
    assert (key() == before) == (start == other)


def test_passes_gymnasiums_check():
    check_env(make_memory(7).unwrapped, skip_render_check=True)


@pytest.mark.parametrize(
    "change",
    [
        {"size": 8},
        {"size": 5},
        {"hallway_end": 3},
        {"hallway_end": 5},
        {"agent": 0},
        {"agent": 5},
        {"agent": 1.5},
        {"hallway_end": "4"},
        {"shown": ["key"]},
        {"shown": "box"},
        {"upper": None},
    ],
    ids=str,
)
def test_impossible_starts_raise(change):
    values = {"size": 7, "hallway_end": 4, "agent": 1, "shown": "key", "upper": "ball"}
    with pytest.raises(InvalidInput, match=r"a MemoryStart must have .*received MemoryStart"):
        MemoryStart(**(values | change))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"size": 8}, "`size` must be odd and at least 7; received 8"),
        ({"size": 7.0}, "`size` must be odd and at least 7; received 7.0"),
        ({"actions": "some"}, "`actions` must be one of .*received 'some'"),
        ({"reward": "dense"}, "`reward` must be one of .*received 'dense'"),
        ({"frames": 0}, "`frames` must be a positive integer; received 0"),
        ({"max_steps": 0}, "max_steps` must be a positive integer; received 0"),
        ({"starts": []}, "`starts` must hold at least one MemoryStart"),
        ({"starts": enumerate_memory_starts(9)[:1]}, "MemoryStart of size 7; received MemoryStart"),
        ({"size": 9, "starts": enumerate_memory_starts(9, True)[:1]}, "without `random_length`"),
    ],
)
def test_invalid_arguments_raise(arguments, message):
    with pytest.raises(InvalidInput, match=message):
        make_memory(**arguments)
    with pytest.raises(InvalidInput, match="must be a MemoryStart of size 7; received 3"):
        make_memory(7).reset(options={"start": 3})


def test_levels_share_spaces_and_evaluate_every_start():
    task = memory_task((9, 13, 17), random_length=True)
    assert (task.name, task.num_actions) == ("MemoryS17Random", 3)
    assert task.preprocessor.shape == (7, 7, 24)
    assert (task.preprocessor.unseen_feature, task.preprocessor.agent_cell) == (0, (3, 6))
    assert [len(task.evaluation_resets(level, 1000)) for level in range(3)] == [24, 40, 396]
    env = task.make_test_env()
    observation, _ = env.reset(**task.evaluation_resets(at_most=1000)[0])
    assert task.observation_space.contains(observation)
    assert env.get_wrapper_attr("start").hallway_end == 4
    assert task.entities(observation)["agent"] == (3, 6)
    assert task.view(env).shape[-1] == 3
    assert memory_task((7,), frames=4).preprocessor.shape == (7, 7, 96)


def test_one_size_is_a_number_or_a_tuple_of_it():
    for sizes in (7, (7,), [np.int64(7)]):
        assert memory_task(sizes).name == "MemoryS7"


def test_an_even_size_has_a_hallway_one_cell_shorter():
    task = memory_task((9, 10, 11))
    ends = []
    for level, count in zip(range(3), (24, 28, 32)):
        resets = task.evaluation_resets(level, 1000)
        assert len(resets) == count
        env = task.make_test_env(level)
        assert {env.reset(**reset) and env.get_wrapper_attr("start") for reset in resets} == {
            reset["options"]["start"] for reset in resets
        }
        trained = task.levels[level].make_env()
        starts = [trained.reset(seed=s) and trained.get_wrapper_attr("start") for s in range(60)]
        assert len(set(starts)) > 10
        ends.append({(start.size, start.hallway_end) for start in starts})
    assert ends == [{(9, 6)}, {(11, 7)}, {(11, 8)}]
    assert pickle.loads(pickle.dumps(task.levels[1])).make_env().reset()[0].shape == (7, 7, 4)


def test_held_out_lengths_are_tested_and_never_trained_on():
    task = memory_task((9, 17), random_length=True, held_out=True)
    held = {r["options"]["start"].hallway_end for r in task.evaluation_resets(at_most=1000)}
    assert len(held) == 3  # of 10, because the easier level uses one of the 11
    env = task.make_env()
    met = {env.reset(seed=s) and env.get_wrapper_attr("start").hallway_end for s in range(150)}
    assert len(met) == 8 and not met & held
    assert len(task.evaluation_resets(level=0, at_most=1000)) == 24
    other = memory_task((17,), random_length=True, held_out=True, held_out_seed=1)
    assert held != {r["options"]["start"].hallway_end for r in other.evaluation_resets()}


@pytest.mark.parametrize("sizes", [(16, 17), (14, 15, 16, 17), (7, 9, 11, 13, 15, 17), (17, 17)])
@pytest.mark.parametrize("seed", range(4))
def test_lengths_of_easier_levels_are_not_held_out(sizes, seed):
    """Regression: easier levels trained on held-out lengths."""
    task = memory_task(sizes, random_length=True, held_out=True, held_out_seed=seed)
    held = {r["options"]["start"].hallway_end for r in task.evaluation_resets(at_most=1000)}
    easier = range(len(sizes) - 1)
    resets = [reset for level in easier for reset in task.evaluation_resets(level, 1000)]
    assert held and not held & {reset["options"]["start"].hallway_end for reset in resets}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"sizes": ()},
            r"`sizes` must be an integer of at least 1, or a sequence of these; received \(\)",
        ),
        ({"sizes": (6,)}, "`size` must be odd"),
        ({"sizes": (7.0,)}, r"sizes. must be an integer .*received \(7.0,\)"),
        ({"sizes": (7, 10), "random_length": True}, "`size` must be odd"),
        ({"held_out": True}, "`held_out` requires `random_length`"),
        ({"reward": "dense"}, "`reward` must be one of"),
        ({"frames": 0}, "`frames` must be a positive integer"),
    ],
)
def test_invalid_memory_tasks_raise(arguments, message):
    with pytest.raises(InvalidInput, match=message):
        memory_task(**arguments)


def test_key_corridor_is_minigrids_with_six_actions():
    task = key_corridor_task((1, 2, 3))
    assert [level.name for level in task.levels] == ["S3R1", "S3R2", "S3R3"]
    assert task.preprocessor.shape == (7, 7, 24)
    for level, rows in enumerate((1, 2, 3)):
        ours, theirs = task.make_env(level), gymnasium.make(f"MiniGrid-KeyCorridorS3R{rows}-v0")
        registered = gymnasium.make(f"rrl_tf/KeyCorridorS3R{rows}-v0")
        np.testing.assert_array_equal(registered.reset(seed=7)[0], ours.reset(seed=7)[0])
        rng = np.random.default_rng(rows)
        for seed in range(2):
            observation, _ = ours.reset(seed=seed)
            expected, _ = theirs.reset(seed=seed)
            done = False
            while not done:
                np.testing.assert_array_equal(observation[..., :3], expected["image"])
                action = int(rng.integers(6))
                observation, reward, *ends, info = ours.step(action)
                expected, their_reward, *their_ends, _ = theirs.step(action)
                assert (reward, ends) == (their_reward > 0, their_ends)
                done = any(ends)
            assert info["success"] == (their_reward > 0)


@pytest.mark.parametrize(("room_size", "rows"), [(3, 1), (3, 2), (3, 3), (4, 3), (5, 3), (6, 3)])
def test_key_corridor_has_minigrids_names(room_size, rows):
    name = f"KeyCorridorS{room_size}R{rows}-v0"
    ours, theirs = gymnasium.make(f"rrl_tf/{name}"), gymnasium.make(f"MiniGrid-{name}")
    assert ours.unwrapped.max_steps == theirs.unwrapped.max_steps
    for env in (ours, theirs):
        env.reset(seed=3)
    assert ours.unwrapped.grid == theirs.unwrapped.grid


def test_only_the_ball_is_a_success():
    task = key_corridor_task((1,), max_steps=400)
    successes = []
    for seed in range(30):
        env = task.make_env()
        env.reset(seed=seed)
        rng = np.random.default_rng(seed)
        done = False
        while not done:
            _, reward, terminated, truncated, info = env.step(int(rng.integers(6)))
            done = terminated or truncated
        assert info["success"] == terminated == (reward == 1)
        successes.append(terminated)
    assert {True, False} == set(successes)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"rows": ()},
            r"`rows` must be an integer of at least 1, or a sequence of these; received \(\)",
        ),
        (
            {"rows": (0,)},
            r"`rows` must be an integer of at least 1, or a sequence of these; received \(0,\)",
        ),
        ({"room_size": 2}, "`room_size` must be at least 3 .*; received 2"),
        ({"reward": "dense"}, "`reward` must be one of .*received 'dense'"),
        ({"frames": 0}, "`frames` must be a positive integer"),
        ({"max_steps": 0}, "`max_steps` must be a positive integer"),
    ],
)
def test_invalid_key_corridor_tasks_raise(arguments, message):
    with pytest.raises(InvalidInput, match=message):
        key_corridor_task(**arguments)
    if arguments.get("rows") != ():
        one = {name: each[0] if name == "rows" else each for name, each in arguments.items()}
        with pytest.raises(InvalidInput):
            make_key_corridor(**one)


@pytest.mark.parametrize(("size", "most"), [(7, 3), (9, 3), (11, 2), (13, 2), (17, 2)])
def test_all_three_objects_are_in_one_view_in_small_rooms_only(size, most):
    """The docs state from which size on Memory requires a memory."""
    env = stock(size, random_length=False)
    env.reset(seed=0)
    seen = []
    for x, y, direction in itertools.product(range(size), range(size), range(4)):
        cell = env.grid.get(x, y)
        if cell is None or cell.can_overlap():
            env.agent_pos, env.agent_dir = np.array((x, y)), direction
            seen.append(np.isin(env.gen_obs()["image"][..., 0], [*KINDS]).sum())
    assert max(seen) == most
