"""DoorKey without options equals MiniGrid's; tests of every option of `make_doorkey`."""

import gymnasium
import minigrid  # noqa: F401  registers the stock environments
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from hypothesis import given, settings
from hypothesis import strategies as st

from rrl_tf.envs import DoorKeyStart, doorkey_task, enumerate_starts, make_doorkey, split_layouts

# The key is ahead and the door to the left of it, so the shortest solution is known.
START = DoorKeyStart(size=5, wall=2, door=1, key=(1, 2), agent=(1, 1), direction=1)
SOLUTION = ("pickup", "left", "toggle", "forward", "forward", "right", "forward", "forward")


def stock(size):
    return gymnasium.make(f"MiniGrid-DoorKey-{size}x{size}-v0").unwrapped


def read_start(env):
    """Read a DoorKeyStart from the grid of a stock environment after its reset."""
    codes = env.grid.encode()[..., 0]
    (door,) = np.argwhere(codes == 4).tolist()
    (key,) = np.argwhere(codes == 5).tolist()
    agent = tuple(int(v) for v in env.agent_pos)
    return DoorKeyStart(env.width, door[0], door[1], tuple(key), agent, int(env.agent_dir))


def act(env, names):
    offered = env.get_wrapper_attr("action_names")
    for name in names:
        result = env.step(offered.index(name))
    return result


@pytest.mark.parametrize("size", [5, 6, 8])
def test_equals_minigrid_without_options(size):
    ours, theirs = make_doorkey(size, actions="all"), stock(size)
    rng = np.random.default_rng(size)
    for seed in range(5):
        observation, _ = ours.reset(seed=seed)
        expected, _ = theirs.reset(seed=seed)
        done = False
        while not done:
            np.testing.assert_array_equal(ours.unwrapped.grid.encode(), theirs.grid.encode())
            np.testing.assert_array_equal(observation, expected["image"])
            assert ours.unwrapped.agent_dir == expected["direction"]
            action = int(rng.integers(7))
            observation, *outcome, info = ours.step(action)
            expected, *expected_outcome, _ = theirs.step(action)
            assert outcome == expected_outcome
            done = outcome[1] or outcome[2]
            assert info.get("success") == (outcome[1] if done else None)


def test_a_second_reset_without_seed_also_follows_minigrid():
    ours, theirs = make_doorkey(6), stock(6)
    ours.reset(seed=3), theirs.reset(seed=3)
    for _ in range(20):
        ours.reset(), theirs.reset()
        assert ours.unwrapped.start == read_start(theirs)


@pytest.mark.parametrize(("size", "starts", "layouts"), [(5, 48, 6), (6, 816, 36)])
def test_enumerated_starts_are_those_minigrid_generates(size, starts, layouts):
    enumerated = enumerate_starts(size)
    assert len(enumerated) == len(set(enumerated)) == starts
    assert len({start.layout for start in enumerated}) == layouts
    env = stock(size)
    env.reset(seed=0)
    seen = set()
    for _ in range(25 * starts if size == 5 else 3 * starts):
        env.reset()
        seen.add(read_start(env))
    assert seen <= set(enumerated)
    if size == 5:
        assert seen == set(enumerated)
    else:
        assert len(seen) > 0.8 * starts  # MiniGrid draws the wall first: some starts are rare


def test_random_starts_of_a_larger_grid_stay_in_its_enumeration():
    enumerated, env = set(enumerate_starts(8)), stock(8)
    for seed in range(500):
        env.reset(seed=seed)
        assert read_start(env) in enumerated


@pytest.mark.parametrize("size", [5, 6, 7])
def test_a_requested_start_equals_that_of_minigrid(size):
    ours, theirs = make_doorkey(size), gymnasium.make("MiniGrid-DoorKey-5x5-v0", size=size)
    theirs = theirs.unwrapped
    for seed in range(50):
        expected, _ = theirs.reset(seed=seed)
        start = read_start(theirs)
        observation, _ = ours.reset(options={"start": start})
        np.testing.assert_array_equal(ours.unwrapped.grid.encode(), theirs.grid.encode())
        np.testing.assert_array_equal(observation, expected["image"])
        assert ours.unwrapped.start == start == read_start(ours.unwrapped)
        assert act(ours, ["left"])[0].tolist() == theirs.step(0)[0]["image"].tolist()


def test_starts_are_drawn_uniformly_and_by_seed():
    starts = enumerate_starts(6)[::100]
    env = make_doorkey(6, starts=starts)
    env.reset(seed=0)
    drawn = []
    for _ in range(200 * len(starts)):
        env.reset()
        drawn.append(env.unwrapped.start)
    counts = np.array([drawn.count(start) for start in starts])
    assert counts.sum() == len(drawn)
    assert np.all(np.abs(counts - 200) < 70)  # five standard deviations
    env.reset(seed=0)
    for start in drawn[:20]:
        env.reset()
        assert env.unwrapped.start == start
    env.reset(options={"start": enumerate_starts(6)[1]})
    assert env.unwrapped.start == enumerate_starts(6)[1]
    env.reset()
    assert env.unwrapped.start in starts  # a requested start holds for one episode


@given(st.sampled_from([5, 6, 7]), st.floats(0.2, 0.8), st.integers(0, 100))
@settings(max_examples=15, deadline=None)
def test_split_keeps_layouts_apart(size, held_out, seed):
    starts = enumerate_starts(size)
    train, test = split_layouts(starts, held_out, seed)
    layouts = [{start.layout for start in part} for part in (train, test)]
    assert not layouts[0] & layouts[1]
    assert sorted(train + test) == sorted(starts)
    assert abs(len(layouts[1]) - held_out * len(layouts[0] | layouts[1])) <= 0.5
    assert (train, test) == split_layouts(iter(starts), held_out, seed)
    assert (sorted(train), sorted(test)) == tuple(
        map(sorted, split_layouts(starts[::-1], held_out, seed))
    )


def test_splits_of_other_seeds_differ():
    assert len({split_layouts(enumerate_starts(6), seed=seed) for seed in range(5)}) == 5


@pytest.mark.parametrize("held_out", [0, 0.01, 1])
def test_a_split_with_an_empty_part_raises(held_out):
    with pytest.raises(ValueError, match=f"at least one layout .*; received {held_out} of 6"):
        split_layouts(enumerate_starts(5), held_out)


@pytest.mark.parametrize(
    "change",
    [
        {"size": 4},
        {"wall": 1},
        {"wall": 3},
        {"door": 0},
        {"door": 3},
        {"key": (1, 1)},
        {"key": (2, 1)},
        {"agent": (1, 4)},
        {"agent": (0, 1)},
        {"direction": 4},
        {"key": [1, 2], "agent": [1, 1]},  # lists, as in JSON
        {"key": 1},
        {"door": 1.0},  # regression: raised only at the reset
        {"wall": "2"},
    ],
    ids=str,
)
def test_impossible_starts_raise(change):
    values = {"size": 5, "wall": 2, "door": 1, "key": (1, 2), "agent": (1, 1), "direction": 1}
    with pytest.raises(ValueError, match=r"a DoorKeyStart must have size .*received DoorKeyStart"):
        DoorKeyStart(**(values | change))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"size": 4}, "`size` must be at least 5 .*; received 4"),
        ({"observation": "full"}, "`observation` must be one of .*view.*; received 'full'"),
        ({"actions": "some"}, "`actions` must be one of .*task.*; received 'some'"),
        ({"reward": "dense"}, "`reward` must be one of .*book.*; received 'dense'"),
        ({"size": 5.5}, "`size` must be an integer; received 5.5"),
        ({"size": "5"}, "`size` must be an integer; received '5'"),
        ({"frames": 0}, "`frames` must be a positive integer; received 0"),
        ({"frames": 1.5}, "`frames` must be a positive integer; received 1.5"),
        ({"max_steps": 0}, "max_steps` must be a positive integer; received 0"),
        ({"max_steps": float("nan")}, "max_steps` must be a positive integer; received nan"),
        ({"starts": []}, "`starts` must hold at least one DoorKeyStart"),
        ({"size": 6, "starts": [START]}, "a DoorKeyStart of size 6; received DoorKey"),
    ],
)
def test_invalid_arguments_raise(arguments, message):
    with pytest.raises(ValueError, match=message):
        make_doorkey(**arguments)


@pytest.mark.parametrize("start", [enumerate_starts(6)[0], (5, 2, 1)], ids=["size", "type"])
def test_a_start_of_another_grid_raises_at_reset(start):
    with pytest.raises(ValueError, match="must be a DoorKeyStart of size 5; received"):
        make_doorkey(5).reset(options={"start": start})


@pytest.mark.parametrize(("actions", "count"), [("task", 5), ("all", 7)])
def test_unknown_actions_raise(actions, count):
    env = make_doorkey(actions=actions)
    env.reset(seed=0)
    assert env.action_space.n == count == len(env.get_wrapper_attr("action_names"))
    for action in (-1, count):
        with pytest.raises(
            ValueError, match=f"an action must be 0 to {count - 1}; received {action}"
        ):
            env.step(action)


@pytest.mark.parametrize(
    ("reward", "each", "last"),
    [("env", 0, 1 - 0.9 * 8 / 20), ("success", 0, 1), ("book", -0.01, 1 - 0.9 * 8 / 20)],
)
@pytest.mark.parametrize("actions", ["task", "all"])
def test_the_known_solution_earns_the_reward(actions, reward, each, last):
    env = make_doorkey(5, actions=actions, reward=reward, max_steps=20)
    env.reset(options={"start": START})
    for name in SOLUTION[:-1]:
        _, received, terminated, truncated, info = act(env, [name])
        assert (received, terminated, truncated, info) == (each, False, False, {})
    _, received, terminated, truncated, info = act(env, SOLUTION[-1:])
    assert (terminated, truncated, info) == (True, False, {"success": True})
    assert received == pytest.approx(last)


@pytest.mark.parametrize("max_steps", [None, 1, 7])
def test_max_steps_is_the_time_limit(max_steps):
    env = make_doorkey(5, max_steps=max_steps)
    env.reset(seed=0)
    for _ in range((max_steps or 250) - 1):
        assert act(env, ["left"])[2:] == (False, False, {})
    assert act(env, ["left"])[2:] == (False, True, {"success": False})


@given(st.integers(1, 4), st.lists(st.integers(0, 4), max_size=12), st.integers(0, 99))
@settings(max_examples=25, deadline=None)
def test_frames_are_the_last_observations_oldest_first(frames, actions, seed):
    single = make_doorkey(6)
    stacked = make_doorkey(6, frames=frames)
    compass = make_doorkey(6, frames=frames, observation="compass")
    history = [single.reset(seed=seed)[0]] * frames
    directions = [single.unwrapped.agent_dir] * frames
    views, with_compass = stacked.reset(seed=seed)[0], compass.reset(seed=seed)[0]
    for action in [*actions, None]:
        np.testing.assert_array_equal(views, np.concatenate(history[-frames:], axis=-1))
        planes = with_compass.reshape(7, 7, frames, 4)
        np.testing.assert_array_equal(planes[..., :3].reshape(7, 7, -1), views)
        np.testing.assert_array_equal(
            planes[..., 3], np.broadcast_to(directions[-frames:], (7, 7, frames))
        )
        for env, observation in ((stacked, views), (compass, with_compass)):
            assert env.observation_space.contains(observation)
        if action is not None:
            history.append(single.step(action)[0])
            directions.append(single.unwrapped.agent_dir)
            before = views.copy(), views
            views, with_compass = stacked.step(action)[0], compass.step(action)[0]
            np.testing.assert_array_equal(*before)  # a step does not overwrite returned arrays


def test_all_states_and_observations_of_the_small_grid():
    """Search all states breadth first: a state key determines grid, agent and observation.

    There are 48 states with the key on the floor, all of them starts. While the agent carries the
    key, there are 24 states with a locked door, 24 to the left and 16 to the right of a closed
    door, and 48 with an open door.
    """
    env = make_doorkey(5)
    paths, observations = {}, {}
    waiting = [(start, ()) for start in enumerate_starts(5)]
    while waiting:
        start, path = waiting.pop(0)
        observation, _ = env.reset(options={"start": start})
        terminated = False
        for action in path:
            observation, _, terminated, *_ = env.step(action)
        key = env.get_wrapper_attr("state_key")()
        whole = (
            env.unwrapped.grid.encode().tobytes(),
            env.unwrapped.agent_pos,
            env.unwrapped.agent_dir,
        )
        if terminated:
            continue
        if key in paths:
            assert paths[key] == whole
            assert observations[key] == observation.tobytes()
            continue
        paths[key], observations[key] = whole, observation.tobytes()
        waiting += [(start, (*path, action)) for action in range(5)]
    assert len(paths) == len(set(paths.values())) == 48 + 24 + 24 + 16 + 48
    assert len(set(observations.values())) == 112


def test_state_key_counts_the_stacked_frames():
    one, four = make_doorkey(5), make_doorkey(5, frames=4)
    keys = {}
    for env in (one, four):
        env.reset(options={"start": START})
        state_key = env.get_wrapper_attr("state_key")
        keys[env] = [state_key()] + [(act(env, ["left"]), state_key())[1] for _ in range(12)]
    assert keys[one][0] == keys[one][4] == keys[one][8]
    assert len(set(keys[one])) == 4
    assert keys[four][0] != keys[four][4]  # the reset repeated the first frame
    assert keys[four][3] != keys[four][4] == keys[four][8] == keys[four][12]
    assert len({hash(key) for key in keys[four][4:8]}) == 4


@pytest.mark.filterwarnings("ignore:.*is different from the unwrapped version")
@pytest.mark.parametrize("render_mode", [None, "rgb_array"])
@pytest.mark.parametrize(
    "arguments",
    [{}, {"size": 6, "observation": "compass", "frames": 4, "actions": "all", "reward": "book"}],
    ids=["default", "all options"],
)
def test_passes_gymnasiums_checker(arguments, render_mode):
    check_env(make_doorkey(**arguments, render_mode=render_mode), skip_render_check=True)


def test_render_returns_an_image():
    env = make_doorkey(5, render_mode="rgb_array")
    env.reset(seed=0)
    assert env.render().shape == (160, 160, 3)


@pytest.mark.parametrize("size", [5, 6, 8, 16])
def test_registered_environment_equals_that_of_recorded_data(size):
    env = gymnasium.make(f"rrl_tf/DoorKey-{size}x{size}-v0")
    check_env(env.unwrapped, skip_render_check=True)
    ours = doorkey_task((size,), reward="env").make_env()
    assert env.observation_space == ours.observation_space
    rng = np.random.default_rng(size)
    (observation, _), (expected, _) = env.reset(seed=3), ours.reset(seed=3)
    done = False
    while not done:
        np.testing.assert_array_equal(observation, expected)
        action = int(rng.integers(env.action_space.n))
        observation, *told = env.step(action)
        expected, *ours_told = ours.step(action)
        assert told == ours_told
        done = told[1] or told[2]
