"""Box-World equals transitions recorded from the authors' code; properties of its levels.

A script that drove pycolab's own `box_world.py` (commit 6504c80, with one line of `ascii_art.py`
fixed for NumPy 2) wrote `box_world_transitions.npz`. It contains six configurations from 6 to 14
cells with one to five boxes, forward distractors up to three boxes long and backward ones, and a
room built by hand with the authors' classes: loose keys next to each other, a box that opens on
another's lock, and two adjacent locks. The moves are random, follow the solution with and without
random steps, enter distractors, and push against closed cells: walls, locks without the key,
locked keys and gems. The file contains every board, reward and end of an episode.
"""

import collections
import functools
import itertools
import pathlib

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from hypothesis import given, settings
from hypothesis import strategies as st

from rrl_tf.envs import (
    BoxWorld,
    BoxWorldLevels,
    BoxWorldStart,
    SeededVectorEnv,
    held_out_pairs,
)
from rrl_tf.envs.box_world.env import ACTION_NAMES, AGENT, LOOKS, MOVES
from rrl_tf.envs.box_world.levels import COLOURS, DISTRACTOR, GEM, KEY, LOCK, cell_code
from rrl_tf.errors import InvalidInput

RECORDED = pathlib.Path(__file__).with_name("box_world_transitions.npz")


def recorded():
    """Yield the recorded episodes of the authors' code as dicts."""
    arrays = dict(np.load(RECORDED))
    cell = step = board = 0
    for name, limit, size, length in zip(*(arrays[k] for k in ("name", "limit", "size", "length"))):
        area, length = int(size + 2) ** 2, int(length)
        yield {
            "name": str(name),
            "limit": int(limit),
            "distractors": arrays["distractors"][cell : cell + area].reshape(size + 2, -1),
            "boards": arrays["boards"][board : board + (length + 1) * area].reshape(
                length + 1, size + 2, -1
            ),
            **{k: arrays[k][step : step + length] for k in ("actions", "rewards", "overs")},
        }
        cell, step, board = cell + area, step + length, board + (length + 1) * area


EPISODES = list(recorded())


def start_of(board, distractors):
    """Return the start that equals the authors' board of characters."""
    cells = np.zeros(board[1:-1, 1:-1].shape, np.uint8)
    for place in np.ndindex(*cells.shape):
        char = chr(board[1:-1, 1:-1][place])
        if char == "*":
            cells[place] = cell_code(GEM)
        elif char.islower():
            cells[place] = cell_code(KEY, 1 + ord(char) - ord("a"))
        elif char.isupper():
            kind = DISTRACTOR if distractors[1:-1, 1:-1][place] else LOCK
            cells[place] = cell_code(kind, 1 + ord(char) - ord("A"))
    ((row, column),) = np.argwhere(board[1:-1, 1:-1] == ord("."))
    return BoxWorldStart(len(cells), cells.tobytes(), (int(row), int(column)))


def board_of(observation):
    """Return an observation as the authors' board of characters."""
    letters = {0: " ", 3: "*", AGENT: "."}
    board = np.full(np.add(observation.shape[:2], 2), ord("#"), np.uint8)
    for row, column in np.ndindex(*observation.shape[:2]):
        kind, colour = map(int, observation[row, column])
        letter = chr(ord("a" if kind == 1 else "A") + colour - 1)
        board[row + 1, column + 1] = ord(letters.get(kind, letter))
        if kind == AGENT and colour:
            board[0, 0] = ord("a") + colour - 1
    return board


@pytest.mark.parametrize("episode", EPISODES, ids=lambda episode: episode["name"])
def test_every_step_equals_the_authors(episode):
    # The authors' limit allows one more step than its value.
    env = BoxWorld(len(episode["boards"][0]) - 2, 1, 0, max_steps=episode["limit"] + 1)
    start = start_of(episode["boards"][0], episode["distractors"])
    observation, _ = env.reset(options={"start": start})
    np.testing.assert_array_equal(board_of(observation), episode["boards"][0])
    for t, action in enumerate(episode["actions"]):
        observation, reward, terminated, truncated, info = env.step(int(action))
        np.testing.assert_array_equal(board_of(observation), episode["boards"][t + 1])
        assert reward == episode["rewards"][t]
        assert (terminated or truncated) == episode["overs"][t]
        assert info.get("success", False) == (reward == 10)


def test_the_recording_contains_all_events():
    assert len(EPISODES) >= 30
    rewards = collections.Counter(np.concatenate([e["rewards"] for e in EPISODES]).tolist())
    assert rewards[10] >= 10 and rewards[-1] >= 5 and rewards[1] >= 20
    seen = collections.Counter()
    for episode in EPISODES:
        held = episode["boards"][:, 0, 0]
        for t, action in enumerate(episode["actions"]):
            ((row, column),) = np.argwhere(episode["boards"][t] == ord("."))
            target = chr(episode["boards"][t][row + MOVES[action][0], column + MOVES[action][1]])
            moved = episode["boards"][t + 1][row, column] != ord(".")
            kind = target if target in "#*" else "key" if target.islower() else "lock"
            seen[kind if target != " " else "floor", bool(moved)] += 1
            seen["exchanged"] += held[t] != held[t + 1] and ord("#") not in held[t : t + 2]
        seen["timed out"] += len(episode["actions"]) == episode["limit"] + 1
    for happened in (
        *itertools.product(("*", "key", "lock"), (True, False)),
        *(("#", False), ("floor", True), "exchanged", "timed out"),
    ):
        assert seen[happened] >= 3, happened
    assert not seen["#", True] and not seen["floor", False]


LEVELS = st.builds(
    BoxWorldLevels,
    size=st.integers(12, 14),
    goal_length=st.lists(st.integers(1, 3), min_size=1, max_size=3).map(tuple),
    num_distractors=st.integers(0, 2),
    distractor_length=st.integers(1, 2),
    num_colours=st.integers(10, 31),
    part=st.sampled_from(["all", "train"]),
    area=st.none() | st.just(12),
)


def solve(env):
    """Play the solution in its intended order and return the rewards.

    It uses only observations and the positions of distractors.
    """
    rewards, terminated = [], False
    while not terminated:
        cells = np.frombuffer(env.state_key()[0], np.uint8).reshape(2 * [env.start.size])
        kinds, colours = np.divmod(cells, COLOURS + 1)
        held = env.state_key()[2]
        if held:
            (goal,) = np.argwhere((kinds == LOCK) & (colours == held))
        else:
            closed = np.zeros(kinds.shape, bool)
            closed[:, :-1] = (kinds[:, 1:] == LOCK) | (kinds[:, 1:] == DISTRACTOR)
            (goal,) = np.argwhere(((kinds == KEY) | (kinds == GEM)) & ~closed)
        for action in route(kinds == 0, env.state_key()[1], tuple(map(int, goal))):
            _, reward, terminated, _, _ = env.step(action)
        rewards.append(reward)
    return rewards


def route(floor, start, goal):
    """Return a shortest path over the floor to the goal."""
    came, queue = {start: None}, collections.deque([start])
    while goal not in came:
        cell = queue.popleft()
        for action, move in enumerate(MOVES):
            then = (cell[0] + move[0], cell[1] + move[1])
            inside = all(0 <= place < len(floor) for place in then)
            if inside and then not in came and (floor[then] or then == goal):
                came[then] = (cell, action)
                queue.append(then)
    actions = []
    while came[goal]:
        goal, action = came[goal]
        actions.append(action)
    return actions[::-1]


@given(levels=LEVELS, seed=st.integers(0, 2**63))
@settings(max_examples=60)
def test_every_level_is_solved_in_the_intended_order(levels, seed):
    start = levels.draw(np.random.default_rng(seed))
    env = BoxWorld(levels.size, 1, 0, num_colours=levels.num_colours, max_steps=10_000)
    env.reset(options={"start": start})
    length = sum(not wrong for *_, wrong in start.boxes)
    boxes = [box for box in start.boxes if not box[2]]
    assert length in levels.goal_length and len(boxes) == length
    # key, box, key, box, ..., gem
    assert solve(env) == [0.0, 1.0] * length + [10.0]


@given(levels=LEVELS, seed=st.integers(0, 2**63))
@settings(max_examples=60)
def test_a_level_contains_its_boxes_and_one_loose_key(levels, seed):
    start = levels.draw(np.random.default_rng(seed))
    again = levels.draw(np.random.default_rng(seed))
    assert start == again and hash(start) == hash(again)
    wrong = [box for box in start.boxes if box[2]]
    assert len(wrong) == levels.num_distractors[0] * levels.distractor_length
    assert all(key and lock != key for lock, key, _ in wrong)
    assert max(max(box[:2]) for box in start.boxes) <= levels.num_colours
    if levels.part == "train":
        assert not start.pairs & levels.held_out


@given(seed=st.integers(0, 2**63), length=st.integers(2, 3))
@settings(max_examples=60)
def test_test_levels_need_a_held_out_pair(seed, length):
    levels = BoxWorldLevels(8, (1, length), (0, 1), part="test")
    start = levels.draw(np.random.default_rng(seed))
    assert levels.goal_length == (length,)
    assert levels.held_out == held_out_pairs()
    assert {(lock, key) for lock, key, wrong in start.boxes if not wrong} & levels.held_out


def test_boxes_are_apart_and_anywhere_as_in_the_authors_code():
    levels = BoxWorldLevels(8, 2, (0, 1))
    rng = np.random.default_rng(0)
    lefts, agents = set(), set()
    for _ in range(1500):
        start = levels.draw(rng)
        kinds = np.frombuffer(start.cells, np.uint8).reshape(8, 8) >> 5
        lefts |= {tuple(c) for c in np.argwhere((kinds == KEY) | (kinds == GEM)).tolist()}
        agents.add(start.agent)
        assert not kinds[[0, -1]].any() and not kinds[:, [0, -1]].any()
    assert lefts == set(itertools.product(range(1, 7), range(1, 5)))
    assert agents == set(itertools.product(range(1, 7), range(7)))


def test_boxes_and_agent_are_inside_a_square_area_anywhere_in_the_room():
    levels = BoxWorldLevels(12, 1, 0, area=8)
    rng = np.random.default_rng(0)
    lefts, agents = set(), set()
    for _ in range(2500):
        start = levels.draw(rng)
        kinds = np.frombuffer(start.cells, np.uint8).reshape(12, 12) >> 5
        things = [*np.argwhere(kinds).tolist(), list(start.agent)]
        assert (np.ptp(things, axis=0) <= [5, 6]).all()  # of 8 rows and columns, as in a room of 8
        lefts |= {tuple(c) for c in np.argwhere((kinds == KEY) | (kinds == GEM)).tolist()}
        agents.add(start.agent)
    assert lefts == set(itertools.product(range(1, 11), range(1, 9)))
    assert agents <= set(itertools.product(range(1, 11), range(11))) and len(agents) > 100


def test_an_area_of_the_whole_room_changes_no_level():
    levels = BoxWorldLevels(8, (1, 2), (0, 1)), BoxWorldLevels(8, (1, 2), (0, 1), area=8)
    assert levels[0] == levels[1]
    first, second = (each.draw(np.random.default_rng(3)) for each in levels)
    assert first == second
    # Drawn before `area` existed: levels of the same seed must not change.
    cells = np.zeros(64, np.uint8)
    cells[[12, 13, 27, 44, 45]] = 96, 73, 50, 41, 82
    assert first == BoxWorldStart(8, cells.tobytes(), (2, 1))


def test_goal_lengths_and_distractors_are_drawn_uniformly():
    levels = BoxWorldLevels(12, (1, 3), (0, 2))
    rng = np.random.default_rng(0)
    counts = collections.Counter()
    for _ in range(800):
        boxes = levels.draw(rng).boxes
        counts[sum(not wrong for *_, wrong in boxes), sum(wrong for *_, wrong in boxes)] += 1
    assert set(counts) == {(1, 0), (1, 2), (3, 0), (3, 2)}
    assert all(150 < count < 250 for count in counts.values())


def random_success(episodes, **settings):
    env = BoxWorld(**settings)
    rng = np.random.default_rng(0)
    solved = 0
    for seed in range(episodes):
        env.reset(seed=seed)
        done = False
        while not done:
            *_, terminated, truncated, info = env.step(int(rng.integers(4)))
            done = terminated or truncated
        solved += info["success"]
    return solved / episodes


def test_random_play_scores_as_in_the_authors_code():
    """The authors' code solves 32 ± 2.3 % of 400 episodes of one box in 6 x 6."""
    assert 0.27 < random_success(300, size=6, goal_length=1, num_distractors=0) < 0.43


def test_box_world_is_registered_with_gymnasium():
    env = gymnasium.make("rrl_tf/BoxWorld-v0", size=8, goal_length=2, num_distractors=1)
    check_env(env.unwrapped, skip_render_check=True)
    observation, _ = env.reset(seed=3)
    np.testing.assert_array_equal(observation, env.reset(seed=3)[0])
    assert env.get_wrapper_attr("action_names") == ACTION_NAMES


def test_state_keys_change_with_the_state():
    env = BoxWorld(8, 2, 1)
    env.reset(seed=0)
    keys, seen = set(), set()
    rng = np.random.default_rng(0)
    for _ in range(100):
        observation, *_ = env.step(int(rng.integers(4)))
        keys.add(env.state_key())
        seen.add(observation.tobytes())
    assert len(keys) == len(seen) > 10


def test_render_draws_the_walls_and_the_held_key():
    env = BoxWorld(8, 1, 0, render_mode="rgb_array")
    env.reset(seed=0)
    assert env.render().shape == (160, 160, 3) and not env.render()[:16].any()
    solve_key = route(
        np.frombuffer(env.start.cells, np.uint8).reshape(8, 8) == 0,
        env.start.agent,
        next((r, c) for r, c in np.ndindex(8, 8) if env.start.cells[r * 8 + c] >> 5 == KEY),
    )
    for action in solve_key:
        env.step(action)
    assert env.state_key()[2] and env.render()[:16, :16].any()
    assert BoxWorld(8, 1, 0).render() is None


def test_a_distractor_looks_like_a_lock():
    np.testing.assert_array_equal(LOOKS[cell_code(DISTRACTOR, 7)], [LOCK, 7])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"size": 6, "goal_length": 2}, "the room is too small|`size` must be larger"),
        ({"size": 0}, "size"),
        ({"area": 0}, "`area` must be a positive integer; received 0"),
        ({"area": 13}, "`area` must be from 1 to 12; received 13"),
        ({"area": 8}, "size 12 with area=8 must have at most 7 boxes.*; received up to 9"),
        ({"goal_length": 0}, "goal_length"),
        ({"goal_length": ()}, "goal_length"),
        (
            {"goal_length": True},
            "`goal_length` must be an integer of at least 1, or a sequence of these; .*True",
        ),
        ({"num_distractors": "two"}, "num_distractors"),
        ({"num_colours": 32}, "num_colours"),
        ({"num_colours": 5}, "num_colours"),
        ({"num_colours": 20.0}, "num_colours. must be an integer; received 20.0"),
        (
            {"held_out_seed": -1, "part": "train"},
            "`held_out_seed` must be an integer of at least 0",
        ),
        ({"held_out_fraction": -1}, "`held_out_fraction` must be from 0 to 1; received -1"),
        ({"held_out_fraction": "x"}, "`held_out_fraction` must be from 0 to 1; received 'x'"),
        ({"held_out_fraction": None}, "`held_out_fraction` must be from 0 to 1; received None"),
        # Regression: such large numbers hung.
        ({"num_distractors": 10**6}, "at most 16 boxes, .*; received up to 1000005"),
        ({"distractor_length": 10**6}, "at most 16 boxes, .*; received up to 4000005"),
        ({"size": 10**6}, "`size` must be from 1 to 255; received 1000000"),
        ({"part": "validation"}, "part"),
        ({"part": "test", "goal_length": 1}, "`goal_length` must include at least 2"),
        ({"part": "train", "goal_length": 4, "held_out_fraction": 1.0}, "held_out_fraction"),
        ({"max_steps": 0}, "max_steps"),
        ({"render_mode": "human"}, "render_mode"),
    ],
)
def test_invalid_arguments_raise(arguments, message):
    with pytest.raises(InvalidInput, match=message):
        BoxWorld(**arguments)


def test_invalid_starts_and_actions_raise():
    env = BoxWorld(8, 1, 0)
    with pytest.raises(gymnasium.error.ResetNeeded, match="before the first reset"):
        env.step(0)
    with pytest.raises(gymnasium.error.ResetNeeded):
        BoxWorld(8, 1, 0, render_mode="rgb_array").render()
    with pytest.raises(InvalidInput, match="size 8"):
        env.reset(options={"start": BoxWorldStart(2, bytes(4), (0, 0))})
    env.reset(seed=0)
    with pytest.raises(InvalidInput, match="an action must be"):
        env.step(4)


def test_a_step_after_the_end_of_an_episode_raises():
    env = BoxWorld(8, 1, 0)
    start = BoxWorldStart(8, bytes([0, cell_code(GEM), *62 * [0]]), (0, 0))
    for _ in range(2):
        env.reset(options={"start": start})
        assert env.step(ACTION_NAMES.index("right"))[1:3] == (10.0, True)
        with pytest.raises(gymnasium.error.ResetNeeded, match="after the end"):
            env.step(0)


def test_a_time_limit_can_be_ignored():
    """Regression: a step after the time limit raised an error."""
    start = BoxWorldStart(8, bytes([0, cell_code(GEM), *62 * [0]]), (0, 0))
    make = functools.partial(BoxWorld, 8, 1, 0, max_steps=2)
    vector = SeededVectorEnv(make, 1, seed=0, reset_on_truncation=False)
    vector.reset(options={"start": start})
    up, right = (ACTION_NAMES.index(name) for name in ("up", "right"))
    for _ in range(4):
        *_, terminated, truncated, info = vector.step([up])
        assert not (terminated | truncated | info["_episode"]).any()
    *_, terminated, truncated, info = vector.step([right])
    assert terminated.all() and not truncated.any()
    assert {name: value.tolist() for name, value in info["episode"].items()} == {
        "return": [10.0],
        "length": [5],
        "success": [True],
        "_success": [True],
    }
