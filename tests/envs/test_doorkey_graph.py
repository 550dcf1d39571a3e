"""DoorKeyGraph equals MiniGrid: rules, views, starts and ends."""

import collections
import itertools

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st
from minigrid_oracle import MiniGridOracle, differences, every_state

from rrl_tf.agents import GraphEnvs
from rrl_tf.envs import DoorKeyGraph, DoorKeyStart, DoorKeyState, enumerate_starts, make_doorkey
from rrl_tf.envs.doorkey.graph import packed_view
from rrl_tf.envs.graph import choose
from rrl_tf.errors import InvalidInput

pytestmark = pytest.mark.tf_only

START = DoorKeyStart(size=5, wall=2, door=1, key=(1, 2), agent=(1, 1), direction=1)
SOLUTION = (3, 0, 4, 2, 2, 1, 2, 2)  # pick up, left, toggle, ahead, ahead, right, ahead, ahead


def state_from(rows):
    return DoorKeyState(*np.ascontiguousarray(np.asarray(rows, np.int32).T))


def rows_of(state):
    return np.stack([np.asarray(column) for column in state], axis=1)


def assert_same(a, b):
    for x, y in zip(tf.nest.flatten(a), tf.nest.flatten(b), strict=True):
        assert x.dtype == y.dtype
        np.testing.assert_array_equal(x, y)


@pytest.fixture(scope="module")
def step():
    """One compiled step for all sizes, because the size is part of the state."""
    graph = DoorKeyGraph(actions="all")
    return tf.function(graph.step, jit_compile=True)


@pytest.mark.parametrize("size", [5, pytest.param(6, marks=pytest.mark.slow)])
def test_every_action_in_every_state_equals_minigrid(step, size):
    """The test is exhaustive, because all results depend only on state and action."""
    states = every_state(size)
    cases, actions = (
        np.repeat(states, 7, axis=0),
        np.tile(np.arange(7, dtype=np.int32), len(states)),
    )
    assert len(cases) == {5: 5544, 6: 82_992}[size]
    assert differences(step, cases, actions) == 0


@pytest.mark.parametrize("size", [6, 8, 16])
def test_any_action_in_any_state_of_larger_grids_equals_minigrid(step, size):
    rng = np.random.default_rng(size)
    states = any_states(size, 400, rng)
    assert differences(step, states, rng.integers(7, size=400, dtype=np.int32)) == 0


def any_states(size, count, rng):
    """Return random states. In most of them, the agent is next to the door or the key."""
    rows = []
    while len(rows) < count:
        wall, door = rng.integers(2, size - 2), rng.integers(1, size - 2)
        lock, direction = rng.integers(3), rng.integers(4)
        key = (-1, -1) if rng.random() < 0.3 else tuple(rng.integers(1, size - 1, 2))
        near = ((wall, door), key, (size - 2, size - 2))[rng.integers(3)]
        agent = tuple(np.clip(near + rng.integers(-2, 3, 2), 1, size - 2))
        free = agent != key and (agent[0] != wall or (agent[1] == door and lock == 0))
        if key[0] != wall and key != (size - 2, size - 2) and free:
            steps = rng.integers(10 * size**2)
            rows.append((size, wall, door, lock, *key, *agent, direction, steps))
    return np.array(rows, np.int32)


def test_the_oracle_and_the_comparison_notice_a_difference():
    states, actions = every_state(5)[:40], np.full(40, 2, np.int32)
    graph = DoorKeyGraph(actions="all")

    def wrong(place):
        def step(state, action):
            outcome = [*graph.step(state, action)]
            if place == 0:
                outcome[0] = outcome[0]._replace(x=outcome[0].x + 1)
            else:
                values = outcome[place].numpy()
                values.view(np.uint8).reshape(40, -1)[:, -1] ^= 1
                outcome[place] = values
            return outcome

        return step

    assert differences(graph.step, states, actions) == 0
    for place in range(5):
        assert differences(wrong(place), states, actions) == 40


@pytest.mark.parametrize(
    ("size", "starts"),
    [
        (5, enumerate_starts(5)),
        (6, enumerate_starts(6)[::17]),
        pytest.param(6, enumerate_starts(6), marks=pytest.mark.slow),
        (8, None),
        (16, None),
    ],
    ids=["5", "6", "6, every start", "8", "16"],
)
def test_random_play_equals_minigrid_step_by_step(step, size, starts):
    graph = DoorKeyGraph(size, actions="all")
    state = graph.initial_state(48, (0, 0)) if starts is None else graph.state_of(starts)
    views = {}
    oracles = [MiniGridOracle(size, views) for _ in rows_of(state)]
    for oracle, row in zip(oracles, rows_of(state).tolist()):
        oracle.put(row)
    assert_same(graph.observe(state), np.stack([oracle.gen_obs()["compass"] for oracle in oracles]))
    rng = np.random.default_rng(size)
    for _ in range(60):
        # Forward and toggle are more frequent, so that the agent passes doors and reaches goals.
        actions = rng.choice([0, 1, 2, 2, 2, 3, 4, 5, 5, 6], len(oracles)).astype(np.int32)
        state, *outcome = step(state, actions)
        transitions = [oracle.transition(int(a)) for oracle, a in zip(oracles, actions)]
        for ours, theirs in zip((rows_of(state), *outcome), zip(*transitions), strict=True):
            np.testing.assert_array_equal(ours, np.stack(theirs))


@given(data=st.data(), size=st.integers(5, 12), max_steps=st.none() | st.integers(1, 12))
def test_any_start_and_any_actions_equal_minigrid(data, size, max_steps):
    wall, door = data.draw(st.integers(2, size - 3)), data.draw(st.integers(1, size - 3))
    cells = list(itertools.product(range(1, wall), range(1, size - 1)))
    key, agent = data.draw(st.permutations(cells))[:2]
    start = DoorKeyStart(size, wall, door, key, agent, data.draw(st.integers(0, 3)))
    graph = DoorKeyGraph(size, actions="all", max_steps=max_steps)
    state = graph.state_of([start])
    oracle = MiniGridOracle(size, max_steps=max_steps)
    oracle.put(rows_of(state)[0].tolist())
    for action in data.draw(st.lists(st.integers(0, 6), max_size=15)):
        state, *outcome = graph.step(state, [action])
        expected, *theirs = oracle.transition(action)
        assert tuple(rows_of(state)[0]) == expected
        for ours, value in zip(outcome, theirs, strict=True):
            np.testing.assert_array_equal(ours[0], value)


def test_a_start_is_the_one_of_make_doorkey():
    graph, env = DoorKeyGraph(6), make_doorkey(6, observation="compass")
    starts = enumerate_starts(6)[::40]
    observations = [env.reset(options={"start": start})[0] for start in starts]
    assert_same(graph.observe(graph.state_of(starts)), np.stack(observations))
    assert graph.observation_space == env.observation_space
    assert graph.action_space == env.action_space
    assert graph.action_names == env.get_wrapper_attr("action_names")


@pytest.mark.parametrize("reward", ["env", "success", "book"])
@pytest.mark.parametrize("observation", ["view", "compass"])
def test_options_are_those_of_make_doorkey(reward, observation):
    options = {"observation": observation, "reward": reward, "max_steps": 9}
    graph, env = DoorKeyGraph(5, **options), make_doorkey(5, **options)
    state = graph.state_of([START])
    env.reset(options={"start": START})
    for action in (*SOLUTION, 0):
        state, *outcome = graph.step(state, [action])
        expected = env.step(action)
        for ours, theirs in zip(outcome, expected[:4], strict=True):
            np.testing.assert_array_equal(ours[0], np.asarray(theirs, ours.dtype.as_numpy_dtype))
    assert outcome[-1].numpy() == [True]


@pytest.mark.parametrize("size", [5, 6, 8, 16])
def test_rewards_are_minigrids_after_any_number_of_steps(step, size):
    limit, taken = 10 * size**2, np.arange(1, 5121)
    beside_the_goal = (size, 2, 1, 0, -1, -1, size - 2, size - 3, 1)
    state = state_from([(*beside_the_goal, steps - 1) for steps in taken])
    _, _, reward, terminated, truncated = step(state, np.full(5120, 2, np.int32))
    expected = (1 - 0.9 * (taken / limit)).astype(np.float32)
    np.testing.assert_array_equal(reward[:limit], expected[:limit])
    # After the limit, for loops that ignore it, only rewards near 0 are rounded differently.
    np.testing.assert_allclose(reward, expected, rtol=0, atol=1e-15)
    assert terminated.numpy().all()
    np.testing.assert_array_equal(truncated, taken >= limit)


def test_nothing_is_truncated_without_a_time_limit():
    graph = DoorKeyGraph(5, max_steps=1, reset_on_truncation=False)
    *_, truncated = graph.step(graph.state_of([START]), [0])
    assert not truncated.numpy().any()


@pytest.mark.parametrize("starts", [None, enumerate_starts(6)[5::90]], ids=["drawn", "listed"])
def test_eager_graph_and_xla_are_equal(starts):
    """The steps include ends of episodes, new episodes and a loop in the graph."""
    graph = DoorKeyGraph(6, max_steps=4, starts=starts)
    actions = np.random.default_rng(0).integers(5, size=(6, 9), dtype=np.int32)

    def advance(state, action, seed):
        state, *outcome, terminated, truncated = graph.step(state, action)
        done = terminated | truncated
        return choose(done, graph.initial_state(9, seed), state), *outcome, done

    def play(step):
        state, outcomes = graph.initial_state(9, (3, 2**40)), []
        for t, action in enumerate(actions):
            outcomes.append(step(state, tf.constant(action), tf.constant((3, t), tf.int64)))
            state = outcomes[-1][0]
        return outcomes

    @tf.function(jit_compile=True)
    def loop(state):
        def body(t, state, reward):
            seed = tf.stack((tf.constant(3, tf.int64), tf.cast(t, tf.int64)))
            state, _, gained, *_ = advance(state, tf.gather(actions, t), seed)
            return t + 1, state, reward + gained

        begin = (0, state, tf.zeros(9))
        return tf.while_loop(lambda t, *_: t < len(actions), body, begin)

    eager = play(advance)
    assert_same(play(tf.function(advance)), eager)
    assert_same(play(tf.function(advance, jit_compile=True)), eager)
    _, state, reward = loop(graph.initial_state(9, (3, 2**40)))
    assert_same(state, eager[-1][0])
    np.testing.assert_allclose(reward, sum(outcome[2] for outcome in eager))


def test_an_episode_that_ends_is_followed_by_another():
    graph = DoorKeyGraph(5, max_steps=8)
    envs = GraphEnvs([graph], 2)
    state, lost = graph.state_of([START, START]), []
    for t, action in enumerate(SOLUTION):
        state, observation, outcome, done, success = envs.step_and_reset(
            state, [action, 0], (1, t), tf.constant(0)
        )
        lost.append(np.any(observation != outcome["observation_tp1"]))
    assert lost == [False] * 7 + [True]
    assert done.numpy().all() and success.numpy().tolist() == [True, False]
    assert outcome["terminated"].numpy().tolist() == [True, False]
    # The goal in the last step is no truncation.
    assert outcome["truncated"].numpy().tolist() == [False, True]
    assert outcome["reward_t"].numpy().tolist() == [np.float32(0.1), 0]
    assert_same(state, envs.initial_state((1, 7), 0))
    assert_same(observation, graph.observe(state))
    final = outcome["observation_tp1"].numpy()
    assert final[0, 3, 6].tolist() == [5, 4, 0, 1]  # the key in hand, looking down


def probabilities(size):
    """Return start -> its probability in MiniGrid's generator."""
    chance = {}
    for start in enumerate_starts(size):
        cells = (start.wall - 1) * (size - 2)
        chance[start] = 1 / ((size - 4) * (size - 3) * cells * (cells - 1) * 4)
    assert sum(chance.values()) == pytest.approx(1)
    return chance


def unlikeliness(counts, expected):
    """Return by how many standard deviations chi-square is above its mean."""
    freedom = len(expected) - 1
    return (((counts - expected) ** 2 / expected).sum() - freedom) / np.sqrt(2 * freedom)


def starts_of(state):
    return [
        DoorKeyStart(size, wall, door, (key_x, key_y), (x, y), direction)
        for size, wall, door, _, key_x, key_y, x, y, direction, _ in rows_of(state).tolist()
    ]


@pytest.mark.parametrize("size", [5, 6])
def test_levels_are_drawn_as_minigrid_draws_them(size):
    chance = probabilities(size)
    draws = 200 * len(chance)
    drawn = collections.Counter(starts_of(DoorKeyGraph(size).initial_state(draws, (size, 0))))
    assert drawn.keys() == chance.keys()
    counts = np.array([drawn[start] for start in chance])
    assert abs(unlikeliness(counts, draws * np.array([*chance.values()]))) < 4


def test_minigrid_draws_with_these_probabilities():
    chance = probabilities(5)
    oracle, drawn = MiniGridOracle(5), collections.Counter()
    oracle.reset(seed=0)
    for _ in range(100 * len(chance)):
        oracle.reset()
        _, wall, door, _, key_x, key_y, *agent, direction, _ = oracle.state()
        drawn[DoorKeyStart(5, wall, door, (key_x, key_y), tuple(agent), direction)] += 1
    counts = np.array([drawn[start] for start in chance])
    assert abs(unlikeliness(counts, 100 * np.ones(len(chance)))) < 4


@pytest.mark.parametrize("size", [8, 16, 255])
def test_levels_of_larger_grids_are_possible_and_even(size):
    state = DoorKeyGraph(size).initial_state(20_000, (0, 1))
    wall, door, *corners, direction = (
        np.asarray(getattr(state, name))
        for name in ("wall", "door", "key_x", "key_y", "x", "y", "direction")
    )
    for values, least, limit in ((wall, 2, size - 4), (door, 1, size - 3), (direction, 0, 4)):
        counts = np.bincount(values - least, minlength=limit)
        assert len(counts) == limit
        assert abs(unlikeliness(counts, np.full(limit, 20_000 / limit))) < 4
    key, agent = ((x - 1) * (size - 2) + y - 1 for x, y in (corners[:2], corners[2:]))
    cells = (wall - 1) * (size - 2)
    assert not np.any(key == agent)
    # With u uniform in [0, 1), (number + u) / limit is uniform in [0, 1) for every limit.
    rng = np.random.default_rng(0)
    for number, limit in ((agent, cells), (key - (key > agent), cells - 1)):
        assert np.all((number >= 0) & (number < limit))
        counts, _ = np.histogram((number + rng.random(20_000)) / limit, 100, (0, 1))
        assert abs(unlikeliness(counts, np.full(100, 200))) < 4


def test_listed_starts_are_drawn_evenly_and_by_seed():
    starts = enumerate_starts(6)[::100]
    graph = DoorKeyGraph(6, starts=iter(starts))
    drawn = collections.Counter(starts_of(graph.initial_state(2000, (0, 0))))
    assert drawn.keys() == set(starts)
    counts = np.array([*drawn.values()])
    assert abs(unlikeliness(counts, np.full(len(starts), 2000 / len(starts)))) < 4
    assert_same(graph.initial_state(50, (0, 1)), graph.initial_state(50, tf.constant((0, 1))))
    assert (
        len({rows_of(graph.initial_state(50, (i, j))).tobytes() for i in (0, 1) for j in (0, 1)})
        == 4
    )


def test_state_keys_are_unique():
    states = np.concatenate([every_state(5), every_state(6)[::7]])
    keys = DoorKeyGraph().state_key(state_from(states)).numpy()
    assert len(np.unique(keys)) == len(states)
    later = state_from(states)._replace(steps=states[:, -1] + 1)
    np.testing.assert_array_equal(DoorKeyGraph().state_key(later), keys)


def test_sizes_mix_in_one_state():
    easy, hard = DoorKeyGraph(5), DoorKeyGraph(8)
    is_hard = tf.constant([True, False, True, False])
    state = choose(is_hard, hard.initial_state(4, (0, 0)), easy.initial_state(4, (0, 1)))
    mixed, *_, truncated = easy.step(state._replace(steps=state.steps + 249), [0] * 4)
    assert mixed.size.numpy().tolist() == [8, 5, 8, 5]
    assert truncated.numpy().tolist() == [False, True, False, True]
    views = easy.observe(state).numpy()
    assert_same(views[::2], hard.observe(hard.initial_state(4, (0, 0))).numpy()[::2])


def test_a_packed_view_equals_the_observation():
    state = state_from(every_state(5))
    packed = np.ascontiguousarray(packed_view(state).numpy().transpose(2, 0, 1))
    assert_same(packed.view(np.uint8).reshape(-1, 7, 7, 4), DoorKeyGraph().observe(state).numpy())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"size": 4}, "size must be from 5 to 255; received 4"),
        ({"size": 5.5}, "`size` must be a positive integer; received 5.5"),
        ({"size": 256}, "size must be from 5 to 255; received 256"),
        ({"observation": "full"}, "`observation` must be one of .*; received 'full'"),
        ({"actions": "some"}, "`actions` must be one of .*; received 'some'"),
        ({"reward": "dense"}, "`reward` must be one of .*; received 'dense'"),
        ({"max_steps": 0}, "`max_steps` must be a positive integer; received 0"),
        ({"starts": []}, "`starts` must hold at least one DoorKeyStart"),
        ({"size": 6, "starts": [START]}, "must be a DoorKeyStart of size 6; received DoorKey"),
    ],
)
def test_invalid_arguments_raise(arguments, message):
    with pytest.raises(InvalidInput, match=message):
        DoorKeyGraph(**arguments)


def test_wrong_calls_raise():
    graph = DoorKeyGraph(5)
    with pytest.raises(
        InvalidInput, match=r"must be a DoorKeyStart of size 5; received DoorKeyStart\(size=6"
    ):
        graph.state_of(enumerate_starts(6)[:1])
    with pytest.raises(InvalidInput, match="at least one DoorKeyStart; received none"):
        graph.state_of([])
    with pytest.raises(InvalidInput, match="`num_envs` must be a positive integer; received 0"):
        graph.initial_state(0, (0, 0))
