"""Training in the graph: equal to itself when resumed, and to the Python loop in what it counts."""

import copy
import functools

import keras
import numpy as np
import pytest
import tensorflow as tf
from rrl_tf.agents.graph_envs import CurriculumGraph
from rrl_tf.agents.graph_loop import GraphLoop
from rrl_tf.agents.timeline import Timeline

from rrl_tf.agents import DoubleDQN
from rrl_tf.envs import DoorKeyGraph, DoorKeyState, doorkey_task
from rrl_tf.errors import InvalidInput
from rrl_tf.training import linear_schedule

pytestmark = pytest.mark.tf_only
TASK = doorkey_task((5, 6))
NUM_ENVS = 4


def make_loop(seed=0, sizes=(5, 6), max_steps=30, **changes):
    keras.utils.set_random_seed(seed)
    layers = keras.layers
    network = keras.Sequential(
        [layers.Flatten(), layers.Dense(8, "relu"), layers.Dense(TASK.num_actions)]
    )
    network.build((None, *TASK.preprocessor.shape))
    levels = [DoorKeyGraph(size, reward="success", max_steps=max_steps) for size in sizes]
    numbers = {
        "epsilon": functools.partial(linear_schedule, start=1.0, end=0.2, steps=600),
        "updates_per_step": 0.1,
        "batch_size": 8,
        "learning_starts": 50,
        "seed": seed,
        "pauses": (100, 150),
        **changes,
    }
    replay = Timeline(
        200,
        (7, 7, 4),
        "uint8",
        num_envs=NUM_ENVS,
        n_step=3,
        priority_exponent=0.6,
        observe_returns=True,
        jit_compile=False,
    )
    agent = DoubleDQN(network, TASK.preprocessor, jit_compile=False)
    return GraphLoop(agent, CurriculumGraph(levels, NUM_ENVS), replay, **numbers)


def outcome(record):
    return record.step, record.updates, record.metrics, record.episodes


def test_a_restored_loop_goes_on_to_the_same_bits():
    whole = make_loop(seed=1)
    whole.env.reset_options = {"level": 1}
    later = []
    for record in whole.run(600):
        if record.step == 300:
            state = copy.deepcopy(whole.get_state())
        elif record.step > 300:
            later.append(outcome(record))
    second = make_loop(seed=1)
    second.agent.network.set_weights([w + 1 for w in second.agent.network.get_weights()])
    second.set_state(state)
    assert [outcome(record) for record in second.run(600)] == later
    for part, values in whole.get_state().items():
        for name, value in values.items():
            np.testing.assert_array_equal(value, second.get_state()[part][name], err_msg=name)


def test_it_pauses_counts_and_learns_as_it_is_told():
    loop = make_loop()
    records = list(loop.run(601))
    # Multiples of 100 and 150, and the end, in whole steps of four environments.
    assert [r.step for r in records] == [100, 152, 200, 300, 400, 452, 500, 600, 604]
    assert records[0].epsilon == pytest.approx(1 - 0.8 * 96 / 600)
    assert records[0].updates > 0 and set(records[0].metrics) == {
        "loss",
        "q_mean",
        "gradient_norm",
    }
    assert all(np.isfinite(list(r.metrics.values())).all() for r in records)
    # 0.1 updates a step from the moment that more than 50 transitions can be drawn.
    assert records[-1].updates == pytest.approx(0.1 * (604 - 60), abs=1)
    episodes = [episode for r in records for episode in r.episodes]
    assert len(episodes) >= 604 / 30 - NUM_ENVS
    for episode in episodes:
        assert 1 <= episode["length"] <= 30
        assert episode["return"] == episode["success"]  # the reward is 1 at the goal
        assert episode["success"] or episode["length"] == 30


def test_what_it_remembers_is_what_happened():
    loop = make_loop(updates_per_step=0.0)
    for _ in loop.run(160):
        pass
    state = loop.replay.get_state()
    over = state["over"].reshape(-1, NUM_ENVS)
    seen, next_seen = (
        state[name].reshape(-1, NUM_ENVS, 7, 7, 4) for name in ("observation_t", "observation_tp1")
    )
    assert over.any()
    # Where an episode goes on, the next step sees what followed; where it ended, a new start.
    np.testing.assert_array_equal(seen[1:][~over[:-1]], next_seen[:-1][~over[:-1]])
    assert (seen[1:][over[:-1]] != next_seen[:-1][over[:-1]]).any()
    now = loop.get_state()["environment"]
    assert {now[name].shape for name in DoorKeyState._fields} == {(NUM_ENVS,)}


@pytest.mark.parametrize(
    ("level", "share", "expected"), [(0, 0.7, 0.0), (1, 0.7, 0.7), (1, 1.0, 1)]
)
def test_the_current_level_has_its_share(level, share, expected):
    levels = [DoorKeyGraph(5), DoorKeyGraph(6)]
    env = CurriculumGraph(levels, 4000, share)
    state = env.initial_state((3, 4), tf.constant(level))
    assert np.mean(state.size.numpy() == 6) == pytest.approx(expected, abs=0.03)


def test_a_later_level_is_shared_by_all_the_easier_ones():
    env = CurriculumGraph([DoorKeyGraph(size) for size in (5, 6, 8)], 6000, 0.7)
    sizes = env.initial_state((0, 0), tf.constant(2)).size.numpy()
    shares = [np.mean(sizes == size) for size in (5, 6, 8)]
    np.testing.assert_allclose(shares, [0.15, 0.15, 0.7], atol=0.03)


def test_a_state_of_other_environments_is_refused():
    loop, other = make_loop(), make_loop()
    for _ in loop.run(100):
        pass
    state = loop.get_state()
    state["environment"]["size"] = state["environment"]["size"][:2]
    with pytest.raises(InvalidInput, match=r"'size' must be int32\(4,\); received int32\(2,\)"):
        other.set_state(state)
    assert other.step == 0
    state = loop.get_state()
    state["environment"]["reset_options"] = {"level": 2}
    with pytest.raises(InvalidInput, match="level must be from 0 to 1; received 2"):
        other.set_state(state)


@pytest.mark.parametrize(
    ("argument", "value"),
    [("batch_size", 0), ("updates_per_step", -1.0), ("learning_starts", 192), ("pauses", (0,))],
)
def test_a_loop_that_cannot_learn_is_refused(argument, value):
    with pytest.raises(InvalidInput, match=f"{argument}.*received"):
        make_loop(**{argument: value})


def test_levels_of_other_spaces_are_refused():
    with pytest.raises(InvalidInput, match=r"levels.*share their spaces.*\(7, 7, 3\)"):
        CurriculumGraph([DoorKeyGraph(5), DoorKeyGraph(5, observation="view")], 2)
    with pytest.raises(InvalidInput, match="at least one"):
        CurriculumGraph([], 2)
