"""Checks of a memory find what is known of players made for them."""

import functools
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from recurrent_networks import array, network, sequences, some_memory

from rrl_tf.agents import evaluate
from rrl_tf.envs import enumerate_memory_starts, memory_task
from rrl_tf.errors import InvalidInput
from rrl_tf.interpret.memory_checks import (
    ShuffledMemory,
    ZeroedMemory,
    memory_ablations,
    swap_of_memory,
    uniform_attention_player,
)

pytestmark = pytest.mark.tf_only
LEFT, RIGHT, FORWARD = 0, 1, 2
OBJECTS = (5, 6)  # key and ball, in MiniGrid's codes


class Walker:
    """Walks to the end of the hallway, and there to the object it saw beside it at first.

    Whoever saw none turns to the upper object. The object's code is its memory.
    """

    def initial_recall(self, num_envs):
        return {"memory": np.zeros((num_envs, 1)), "note": np.zeros((num_envs, 1))}

    def __call__(self, observation, recall):
        beside = observation[:, 2, 6, 0]
        memory = np.where(np.isin(beside, OBJECTS)[:, None], beside[:, None], recall["memory"])
        left, right = observation[:, 1, 6, 0], observation[:, 5, 6, 0]
        at_end = np.isin(left, OBJECTS) & np.isin(right, OBJECTS)
        target = self.target(memory, recall)
        turn = np.where((target == left) | (target == 0), LEFT, RIGHT)
        return np.where(at_end, turn, FORWARD), memory

    def target(self, memory, recall):
        return memory[:, 0]

    def next_recall(self, recall, memory, action, reward, over):
        # Who is noted once is noted for the rest of the episode.
        return {"memory": memory, "note": np.where(recall["note"] == 0, memory, recall["note"])}


class Noting(Walker):
    """Remembers the object elsewhere, too, and goes by that."""

    def target(self, memory, recall):
        return recall["note"][:, 0]


class Wavering(Noting):
    """Turns by its memory, and back again where a note says something else."""

    def __call__(self, observation, recall):
        action, memory = super().__call__(observation, recall)
        ahead, direction = observation[:, 3, 4, 0], observation[:, 3, 6, 3]
        note = recall["note"][:, 0]
        regrets = np.isin(ahead, OBJECTS) & (direction % 2 == 1) & (note != 0) & (ahead != note)
        back = np.where(direction == 3, RIGHT, LEFT)
        return np.where(regrets, back, action), memory

    def target(self, memory, recall):
        return memory[:, 0]


@functools.cache
def task():
    return memory_task((7,), max_steps=20)


def beside_the_object():
    return [start for start in enumerate_memory_starts(7) if start.agent == 1]


def resets():
    return [{"options": {"start": start}} for start in beside_the_object()]


def success(player):
    return evaluate(player, task().make_test_env, resets()).success.tolist()


def test_the_memory_of_who_goes_by_it_decides():
    found = swap_of_memory(Walker(), task())
    assert found.summary() == {"pairs": 8, "decided": 0.25, "action": 1.0, "outcome": 1.0}
    assert found.action.shape == found.outcome.shape == (4,)
    alone = swap_of_memory(Walker(), task(), starts=beside_the_object()[:1])
    assert alone.summary() == {"pairs": 1, "decided": 1.0, "action": 1.0, "outcome": 1.0}


def test_the_memory_of_who_does_not_go_by_it_does_not():
    found = swap_of_memory(Noting(), task(), starts=beside_the_object())
    assert found.summary() == {"pairs": 2, "decided": 1.0, "action": 0.0, "outcome": 0.0}


def test_an_action_that_is_taken_back_is_no_outcome():
    found = swap_of_memory(Wavering(), task(), starts=beside_the_object())
    assert found.summary() == {"pairs": 2, "decided": 1.0, "action": 1.0, "outcome": 0.0}


def test_who_remembers_nothing_decides_nothing():
    found = swap_of_memory(ZeroedMemory(Walker()), task())
    assert not found.decided.any()
    summary = found.summary()
    assert summary["decided"] == 0 and np.isnan([summary["action"], summary["outcome"]]).all()


def test_who_has_no_memory_goes_up():
    starts = beside_the_object()
    assert success(Walker()) == [True] * 4
    assert success(ZeroedMemory(Walker())) == [start.shown == start.upper for start in starts]


def with_key_above():
    """Two starts, one for each object shown."""
    return [reset for reset in resets() if reset["options"]["start"].upper == "key"]


def test_who_goes_by_anothers_memory_fails_where_it_is_of_the_other_object():
    found = evaluate(ShuffledMemory(Walker()), task().make_test_env, with_key_above())
    assert found.success.tolist() == [False, False]


@given(st.integers(2, 9), st.integers(0, 2**16))
def test_nobody_keeps_a_memory_that_is_shuffled(count, seed):
    player = ShuffledMemory(Walker(), seed)
    player.initial_recall(count)
    memory = np.arange(count)[:, None]
    shuffled = player.changed(memory)
    assert (shuffled != memory).all()
    assert sorted(shuffled[:, 0]) == list(range(count))


def test_the_last_episode_gets_a_memory_of_one_that_ended():
    player = ShuffledMemory(Walker())
    recall = player.initial_recall(2)
    memory = np.array([[5.0], [6.0]])
    player.next_recall(recall, memory, None, None, np.array([True, False]))
    np.testing.assert_array_equal(player.changed(memory[1:]), memory[:1])
    with pytest.raises(InvalidInput, match="two episodes; received 1"):
        player.initial_recall(1)


def agent_of(preset):
    from rrl_tf.agents import RecurrentDoubleDQN

    return RecurrentDoubleDQN(network(preset), lambda views: views)


@pytest.mark.parametrize("preset", ["relational-memory-entities", "relational-memory"])
def test_slots_of_uniform_attention_attend_to_all_that_is_seen_alike(preset):
    agent = agent_of(preset)
    before = [array(weight) for weight in agent.policy.weights]
    player = uniform_attention_player(agent)
    step = {name: values[:, 0] for name, values in sequences().items()}
    memory = some_memory(agent.policy, 2)
    q, after, scores = player.agent.policy(step, memory, return_attention_scores=True)
    attention = array(scores["block_1"])
    seen = np.ones((2, attention.shape[-1]), bool)
    if preset.endswith("entities"):
        seen[:, 3:-1] = step["observation"][..., 0].reshape(2, -1) < 0.5
    expected = seen / seen.sum(axis=-1, keepdims=True)
    expected = np.broadcast_to(expected[:, None, None], attention.shape)
    np.testing.assert_allclose(attention, expected, rtol=1e-5)
    _, usual, scores = agent.policy(step, memory, return_attention_scores=True)
    assert np.abs(array(scores["block_1"]) - expected).max() > 0.02
    assert np.abs(array(usual) - array(after)).max() > 1e-3
    for weight, value in zip(agent.policy.weights, before):  # the agent stays as it was
        np.testing.assert_array_equal(array(weight), value)
    recall = {**{n: v for n, v in step.items() if n != "observation"}, "memory": memory}
    action, remembered = player(step["observation"], recall)
    np.testing.assert_array_equal(action, array(q).argmax(axis=-1))
    np.testing.assert_allclose(remembered, array(after), rtol=1e-4, atol=1e-5)


def test_a_zeroed_memory_is_that_of_a_network_with_zeros():
    agent = agent_of("lstm")
    player = ZeroedMemory(agent.greedy_player())
    step = {name: values[:, 0] for name, values in sequences().items()}
    observation = step.pop("observation")
    memory = some_memory(agent.policy, 2)
    _, after = player(observation, {**step, "memory": memory})
    _, expected = agent.policy({"observation": observation, **step}, np.zeros_like(memory))
    np.testing.assert_allclose(after, array(expected), rtol=1e-4, atol=1e-5)
    assert set(player.initial_recall(3)) == {"memory", "previous_action", "previous_reward"}


def test_ablations_are_those_that_a_memory_can_have():
    agent = SimpleNamespace(greedy_player=Walker, policy=SimpleNamespace(core="lstm"))
    found = memory_ablations(agent, task(), with_key_above())
    assert {name: each.success.mean() for name, each in found.items()} == {
        "trained": 1.0,
        "zeroed": 0.5,
        "shuffled": 0.0,
    }


def test_a_relational_memory_can_be_made_uniform():
    from rrl_tf.agents.loops import make_recurrent_agent
    from rrl_tf.agents.recurrent_double_dqn_run import RecurrentDoubleDQNConfig
    from rrl_tf.models import RecurrentQNetwork

    core = {"mem_slots": 2, "head_size": 3}
    model = RecurrentQNetwork.from_preset(
        "relational-memory-dense", num_actions=3, core_arguments=core
    )
    agent = make_recurrent_agent(task(), model, RecurrentDoubleDQNConfig(name="x"))
    found = memory_ablations(agent, task(), resets())
    assert [*found] == ["trained", "zeroed", "shuffled", "uniform attention"]
    assert all(len(each.success) == 4 for each in found.values())


def test_what_cannot_be_checked_is_told():
    with pytest.raises(InvalidInput, match=r"slots of a Relational Memory attend; .*'lstm'"):
        uniform_attention_player(agent_of("lstm"))
    with pytest.raises(InvalidInput, match="at least one start; received none"):
        swap_of_memory(Walker(), task(), starts=())
    with pytest.raises(InvalidInput, match="MemoryStarts on; received None"):
        swap_of_memory(Walker(), task(), starts=[None])
