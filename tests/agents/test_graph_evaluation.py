"""Evaluation in the graph equals the one in Python, episode by episode."""

import functools

import keras
import numpy as np
import pytest
from rrl_tf.agents.graph_evaluation import GraphEvaluation

from rrl_tf.agents import DoubleDQN, evaluate
from rrl_tf.envs import DoorKeyGraph, doorkey_task, enumerate_starts, make_doorkey

pytestmark = pytest.mark.tf_only
TASK = doorkey_task((5,))


def make_agent(seed):
    keras.utils.set_random_seed(seed)
    layers = keras.layers
    network = keras.Sequential(
        [layers.Flatten(), layers.Dense(16, "relu"), layers.Dense(TASK.num_actions)]
    )
    network.build((None, *TASK.preprocessor.shape))
    return DoubleDQN(network, TASK.preprocessor)


@pytest.mark.parametrize("seed", range(2))
def test_greedy_episodes_are_the_same(seed):
    agent, starts = make_agent(seed), enumerate_starts(6)[::9]
    make = functools.partial(make_doorkey, 6, "compass", max_steps=40)
    found = GraphEvaluation(agent, DoorKeyGraph(6, max_steps=40), starts)()
    expected = evaluate(agent.greedy, make, [{"options": {"start": start}} for start in starts])
    for name in ("success", "length", "reward", "loop"):
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), err_msg=name)
    assert found.loop.any()


def test_random_play_ends_as_often_in_both():
    # Always random: what is played does not depend on the network, and no loop is counted.
    agent, starts = make_agent(0), enumerate_starts(5) * 8
    play = GraphEvaluation(agent, DoorKeyGraph(5), starts)
    found = play(epsilon=1.0)
    expected = evaluate(
        agent.greedy,
        functools.partial(make_doorkey, 5, "compass"),
        [{"options": {"start": start}} for start in starts],
        epsilon=1.0,
    )
    assert not found.loop.any()
    assert found.success.mean() == pytest.approx(expected.success.mean(), abs=0.12)
    np.testing.assert_array_equal(found.length[~found.success], 250)
    np.testing.assert_array_equal(found.reward > 0, found.success)
    other = play(epsilon=1.0, seed=1)
    assert (other.length != found.length).any()
    again = play(epsilon=1.0)
    np.testing.assert_array_equal(again.length, found.length)
