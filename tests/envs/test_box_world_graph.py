"""BoxWorldGraph equals BoxWorld; the Box-World task."""

import collections

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from rrl_tf.agents import GraphEnvs
from rrl_tf.envs import (
    BoxWorld,
    BoxWorldGraph,
    BoxWorldLevels,
    BoxWorldStart,
    DoorKeyStart,
    box_world_cells,
    box_world_task,
    held_out_pairs,
)
from rrl_tf.envs.box_world.levels import DISTRACTOR, GEM, KEY, LOCK, cell_code
from rrl_tf.errors import InvalidInput

pytestmark = pytest.mark.tf_only

SIZE, ENVS, LIMIT = 5, 16, 40
CODES = [cell_code(kind, colour) for kind in (KEY, LOCK, DISTRACTOR) for colour in (1, 2)]


@pytest.fixture(scope="module")
def graph():
    return BoxWorldGraph(pool=50, size=6, goal_length=1, num_distractors=0, max_steps=LIMIT)


@pytest.fixture(scope="module")
def crowded():
    """Return a graph and its step for hand-built starts in a room too small for real levels."""
    graph = BoxWorldGraph(size=6, goal_length=1, num_distractors=0, max_steps=LIMIT)
    graph.size, graph.levels = SIZE, BoxWorldLevels(SIZE, 1, 0)

    def step(state, action):
        state, observation, reward, terminated, truncated = graph.step(state, action)
        told = observation, reward, terminated, truncated
        return state, *told, graph.state_key(state), graph.succeeded(reward, terminated)

    return graph, tf.function(step, jit_compile=True)


def any_start(rng):
    """Return a room with random contents, where events are more frequent than in real levels."""
    cells = rng.choice([0, cell_code(GEM), *CODES], SIZE**2, p=[0.64] + [0.02] + [0.34 / 6] * 6)
    agent = int(rng.integers(SIZE**2))
    cells[agent] = 0
    return BoxWorldStart(SIZE, cells.astype(np.uint8).tobytes(), divmod(agent, SIZE))


@given(seed=st.integers(0, 2**32))
@settings(max_examples=5, deadline=None)
def test_every_step_equals_the_single_environment(crowded, seed):
    graph, step = crowded
    rng = np.random.default_rng(seed)
    starts = [any_start(rng) for _ in range(ENVS)]
    state = graph.state_of(starts)
    envs = [BoxWorld(6, 1, 0, max_steps=LIMIT) for _ in starts]
    for env, start in zip(envs, starts):
        env.levels = BoxWorldLevels(SIZE, 1, 0)
        env.reset(options={"start": start})
    keys = [{} for _ in envs]
    done = np.zeros(ENVS, bool)
    for _ in range(LIMIT):
        actions = rng.integers(4, size=ENVS).astype(np.int32)
        state, *told, key, success = step(state, actions)
        told, key, success = [each.numpy() for each in told], key.numpy(), success.numpy()
        for i in np.flatnonzero(~done):
            expected, *outcome, info = envs[i].step(int(actions[i]))
            np.testing.assert_array_equal(told[0][i], expected)
            assert [each[i] for each in told[1:]] == outcome
            assert success[i] == info.get("success", False)
            # Within an episode, both keys distinguish the same states.
            assert keys[i].setdefault(envs[i].state_key(), key[i]) == key[i]
            done[i] = outcome[1] or outcome[2]
    assert done.all()
    for seen in keys:
        assert len(set(seen.values())) == len(seen)


def test_random_rooms_contain_all_events():
    """Check that `any_start` covers all events in the comparison above."""
    rng, happened = np.random.default_rng(0), collections.Counter()
    env = BoxWorld(6, 1, 0, max_steps=LIMIT)
    env.levels = BoxWorldLevels(SIZE, 1, 0)
    for _ in range(300):
        env.reset(options={"start": any_start(rng)})
        done = False
        while not done:
            before = env.state_key()
            _, reward, terminated, truncated, _ = env.step(int(rng.integers(4)))
            happened[reward] += 1
            happened["taken"] += before[2] == 0 < env.state_key()[2]
            happened["exchanged"] += 0 != before[2] != env.state_key()[2] != 0
            done = terminated or truncated
    assert all(happened[what] > 30 for what in (1.0, -1.0, 10.0, "taken", "exchanged")), happened


def test_new_episodes_come_from_the_pool(graph):
    begin = tf.function(graph.initial_state, jit_compile=True)
    state = graph.initial_state(2000, (0, 1))
    for a, b in zip(state, begin(2000, tf.constant((0, 1)))):
        np.testing.assert_array_equal(a, b)
    levels = collections.Counter(
        (cells.tobytes(), int(agent)) for cells, agent in zip(state.cells.numpy(), state.agent)
    )
    assert len(levels) == 50 and max(levels.values()) < 80


def test_the_pool_is_not_a_constant_of_a_compiled_function(graph):
    concrete = tf.function(graph.initial_state).get_concrete_function(4, tf.constant((0, 1)))
    held = [n for n in concrete.graph.as_graph_def().node if n.op == "Const"]
    assert sum(n.attr["value"].tensor.ByteSize() for n in held) < 50 * 36


def test_nothing_is_truncated_without_a_time_limit():
    graph = BoxWorldGraph(
        pool=2, reset_on_truncation=False, size=6, goal_length=1, num_distractors=0, max_steps=1
    )
    state = graph.initial_state(3, (0, 0))
    assert not graph.step(state, tf.constant([0, 1, 2]))[4].numpy().any()


def test_a_curriculum_of_levels_and_its_state():
    task = box_world_task(8, levels=((1, 0), (2, 0)), pool=20)
    env = GraphEnvs([level.make_graph() for level in task.levels], num_envs=6)
    env.reset_options = {"level": 1}
    state, observation = env.begin((0, 0))
    kinds = observation.numpy()[..., 0]
    assert set((kinds == LOCK).sum((1, 2)).tolist()) == {1, 2}
    state, observation, *_, success = env.step_and_reset(state, tf.zeros(6, tf.int32), (0, 1), 1)
    assert success.shape == (6,)
    stored = env.get_state(state)
    again, seen = env.set_state(stored)
    assert type(again) is type(state)
    np.testing.assert_array_equal(seen, observation)
    for a, b in zip(state, again):
        np.testing.assert_array_equal(a, b)
    stored["cells"] = stored["cells"][:, 1:]
    with pytest.raises(InvalidInput, match=r"'cells' must be int32\(6, 64\); received int32.6, 63"):
        env.set_state(stored)


def test_a_distractor_is_not_a_success():
    cells = np.zeros((6, 6), np.uint8)
    cells[2, 2], cells[2, 3], cells[4, 3] = (
        cell_code(KEY, 1),
        cell_code(DISTRACTOR, 2),
        cell_code(KEY, 2),
    )
    start = BoxWorldStart(6, cells.tobytes(), (5, 3))
    graph = BoxWorldGraph(size=6, goal_length=1, num_distractors=0)
    state = graph.state_of([start])
    state, *_ = graph.step(state, [0])
    state, *_ = graph.step(state, [0])
    _, _, reward, terminated, _ = graph.step(state, [0])
    assert reward == -1 and terminated and not graph.succeeded(reward, terminated)


@pytest.mark.parametrize("colour", [20, 21, 31])
def test_a_start_with_unknown_colours_raises(graph, colour):
    start = BoxWorldStart(6, bytes([0, cell_code(KEY, colour), *bytes(34)]), (0, 0))
    if colour <= 20:
        assert graph.state_of([start]).cells.shape == (1, 36)
    else:
        with pytest.raises(InvalidInput, match="size 6 with colours up to 20; received"):
            graph.state_of([start])


@pytest.mark.parametrize("starts", [[], [DoorKeyStart(5, 2, 1, (1, 2), (1, 1), 0)]])
def test_invalid_starts_raise(graph, starts):
    with pytest.raises(InvalidInput, match="BoxWorldStart"):
        graph.state_of(starts)


def test_box_world_task_has_the_levels_it_is_given():
    task = box_world_task(8, test_part="test", levels=((1, 1, 7), ((1, 2), (0, 1))))
    held = held_out_pairs()
    for reset in task.evaluation_resets(at_most=20):
        env = task.make_test_env()
        env.reset(**reset)
        assert {(lock, key) for lock, key, wrong in env.unwrapped.start.boxes if not wrong} & held
        env = task.make_env()
        env.reset(**reset)
        assert not env.unwrapped.start.pairs & held
    easy = task.make_test_env(0)
    easy.reset(seed=0)  # a single box has no pair
    assert not easy.unwrapped.start.pairs & held
    assert [level.name for level in task.levels] == [
        "1 boxes, 1 distractors in 7x7",
        "1-2 boxes, 0-1 distractors",
    ]
    assert easy.unwrapped.levels.area == 7 and task.make_env(1).unwrapped.levels.area == 8
    assert task.preprocessor.shape == (8, 8, 26)
    longer = box_world_task(8, levels=((1, 0),), test_goal_length=4)
    env = longer.make_test_env()
    env.reset(seed=0)
    assert len(env.unwrapped.start.boxes) == 4


def test_numbers_of_boxes_may_be_numpy_integers():
    one, two = np.int64(1), np.int64(2)
    task = box_world_task(8, levels=[(one, np.arange(2)), ([one, two], one)], test_goal_length=two)
    assert [level.name for level in task.levels] == [
        "1 boxes, 0-1 distractors",
        "1-2 boxes, 1 distractors",
    ]
    assert task.make_test_env().unwrapped.levels.goal_length == (2,)


def test_box_world_cells_labels_agent_gem_keys_and_locks():
    env = box_world_task(8).make_test_env()
    observation, _ = env.reset(seed=1)
    cells = box_world_cells(observation)
    assert cells["agent"] == env.unwrapped.start.agent
    boxes = sum(label.startswith("box") for label in cells)
    assert boxes == len(env.unwrapped.start.boxes) and "open" not in cells
    row, column = cells["agent"]
    observation[row, column, 1] = observation[cells["box"]][1]
    assert box_world_cells(observation)["open"] == cells["box"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"levels": ()}, r"`levels` must hold at least one tuple .*; received \(\)"),
        ({"levels": (3,)}, r"`levels` must hold .*\(goal_length, num_distractors\).*\(3,\)"),
        ({"levels": ((1, 0, 8, 8),)}, r"`levels` must hold .*received \(\(1, 0, 8, 8\),\)"),
        ({"levels": ((1, 0, 9),)}, "`area` must be from 1 to 8; received 9"),
        ({"levels": (((), 0),)}, r"`goal_length` must be .*received \(\)"),
        ({"levels": ((1, True),)}, r"`num_distractors` must be .*received True"),
        ({"test_goal_length": "a"}, "`test_goal_length` must be .*received 'a'"),
        ({"train_part": "some"}, "train_part"),
        ({"test_part": "some"}, "test_part"),
        ({"size": 4}, "the room is too small"),
        ({"num_distractors": 0}, "must not have .* received num_distractors"),
        ({"area": 6}, "must not have .* received area"),
        ({"part": "all", "goal_length": 2}, "must not have .* received goal_length, part"),
        ({"pool": 0}, "pool"),
        ({"pool": "a"}, "pool.*'a'"),
    ],
)
def test_invalid_tasks_raise(arguments, message):
    with pytest.raises(InvalidInput, match=message):
        box_world_task(**arguments)
