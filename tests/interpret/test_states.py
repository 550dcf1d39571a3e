"""States of a task are collected with facts about them."""

import numpy as np
import pytest

from rrl_tf.envs import doorkey_task, gymnasium_task
from rrl_tf.errors import InvalidInput
from rrl_tf.interpret import collect_states, trace
from rrl_tf.models import RecurrentQNetwork, RelationalQNetwork

TASK = doorkey_task((5,))
KEY, DOOR = 5, 4  # MiniGrid's codes


def test_facts_of_doorkey_agree_with_the_observations(open_envs):
    model = RelationalQNetwork.from_preset("doorkey-5x5")
    found = collect_states(model, TASK, 60, seed=1)
    assert found.inputs.shape == (60, 7, 7, 24) and not open_envs
    np.testing.assert_array_equal(found.inputs, np.array(TASK.preprocessor(found.observations)))
    held = found.observations[:, 3, 6, 0] == KEY
    np.testing.assert_array_equal(found.facts["key held"], held)
    door = found.observations[..., 0] == DOOR
    locked = (door & (found.observations[..., 2] == 2)).any(axis=(1, 2))
    seen = door.any(axis=(1, 2))
    np.testing.assert_array_equal(found.facts["door locked"][seen], locked[seen])
    np.testing.assert_array_equal(found.facts["door visible"], seen)
    assert (np.diff(found.episodes) >= 0).all() and len(set(found.episodes)) > 5
    assert all(each.any() and not each.all() for each in found.facts.values())
    again = collect_states(model, TASK, 60, seed=1)
    np.testing.assert_array_equal(again.observations, found.observations)


def test_states_of_a_recurrent_network_follow_each_other():
    model = RecurrentQNetwork.from_preset("doorkey-6x6")
    found = collect_states(model, TASK, 10_000, epsilon=0.0)
    after, steps = trace(model, found.inputs), len(found.episodes)
    first = found.inputs["previous_action"] == -1
    starts = np.flatnonzero(np.diff(found.episodes, prepend=-1))
    assert np.flatnonzero(first).tolist() == starts.tolist()
    follows = np.flatnonzero(~first)
    memory = after["memory/after"].reshape(steps, -1)
    np.testing.assert_allclose(found.inputs["memory"][follows], memory[follows - 1], atol=1e-4)
    greedy = after["output"].argmax(axis=1)
    assert (found.inputs["previous_action"][follows] == greedy[follows - 1]).mean() > 0.99


def test_model_without_a_place_is_rejected():
    from rrl_tf.models import dense_q_network

    with pytest.raises(InvalidInput, match="`model` must have attention or a memory"):
        collect_states(dense_q_network(2), gymnasium_task("CartPole-v1"), 5)
