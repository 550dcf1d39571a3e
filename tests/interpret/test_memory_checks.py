"""Memory checks, applied to players whose use of memory is known."""

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
    swap_memories,
    uniform_attention_player,
)

pytestmark = pytest.mark.tf_only
LEFT, RIGHT, FORWARD = 0, 1, 2
OBJECTS = (5, 6)  # MiniGrid's codes of key and ball


class Walker:
    """Walk to the end of the hallway, then to the object seen at the start.

    The memory is the code of the object. With an empty memory, turn to the upper object.
    """

    def initial_state(self, num_envs):
        self.note = np.zeros((num_envs, 1))
        return {"memory": self.note, "note": self.note}

    def __call__(self, observation, state):
        beside, self.note = observation[:, 2, 6, 0], state["note"]
        memory = np.where(np.isin(beside, OBJECTS)[:, None], beside[:, None], state["memory"])
        left, right = observation[:, 1, 6, 0], observation[:, 5, 6, 0]
        at_end = np.isin(left, OBJECTS) & np.isin(right, OBJECTS)
        target = self.target(memory, state)
        turn = np.where((target == left) | (target == 0), LEFT, RIGHT)
        return np.where(at_end, turn, FORWARD), memory

    def target(self, memory, state):
        return memory[:, 0]

    def next_state(self, memory, action, reward, over):
        return {"memory": memory, "note": np.where(self.note == 0, memory, self.note)}


class Noting(Walker):
    """Also store the object in the state `note`, and decide by the note."""

    def target(self, memory, state):
        return state["note"][:, 0]


class Wavering(Noting):
    """Turn to the object in memory, and turn back if the note differs."""

    def __call__(self, observation, state):
        action, memory = super().__call__(observation, state)
        ahead, direction = observation[:, 3, 4, 0], observation[:, 3, 6, 3]
        note = state["note"][:, 0]
        regrets = np.isin(ahead, OBJECTS) & (direction % 2 == 1) & (note != 0) & (ahead != note)
        back = np.where(direction == 3, RIGHT, LEFT)
        return np.where(regrets, back, action), memory

    def target(self, memory, state):
        return memory[:, 0]


@functools.cache
def task():
    return memory_task((7,), max_steps=20)


def starts_next_to_the_object():
    return [start for start in enumerate_memory_starts(7) if start.agent == 1]


def resets():
    return [{"options": {"start": start}} for start in starts_next_to_the_object()]


def success(player):
    return evaluate(player, task().make_test_env, resets()).success.tolist()


def test_swapped_memories_swap_actions_and_outcomes_of_a_player_that_uses_them(open_envs):
    found = swap_memories(Walker(), task())
    assert not open_envs
    assert found.summary() == {"pairs": 8, "decided": 0.25, "action": 1.0, "outcome": 1.0}
    assert found.action.shape == found.outcome.shape == (4,)
    alone = swap_memories(Walker(), task(), starts=starts_next_to_the_object()[:1])
    assert alone.summary() == {"pairs": 1, "decided": 1.0, "action": 1.0, "outcome": 1.0}


def test_swapped_memories_change_nothing_for_a_player_that_ignores_them():
    found = swap_memories(Noting(), task(), starts=starts_next_to_the_object())
    assert found.summary() == {"pairs": 2, "decided": 1.0, "action": 0.0, "outcome": 0.0}


def test_reverted_action_is_not_an_outcome():
    found = swap_memories(Wavering(), task(), starts=starts_next_to_the_object())
    assert found.summary() == {"pairs": 2, "decided": 1.0, "action": 1.0, "outcome": 0.0}


def test_zeroed_memory_decides_no_pair():
    found = swap_memories(ZeroedMemory(Walker()), task())
    assert not found.decided.any()
    summary = found.summary()
    assert summary["decided"] == 0 and np.isnan([summary["action"], summary["outcome"]]).all()


def test_zeroed_memory_solves_only_starts_with_the_object_above():
    starts = starts_next_to_the_object()
    assert success(Walker()) == [True] * 4
    assert success(ZeroedMemory(Walker())) == [start.shown == start.upper for start in starts]


def with_key_above():
    """Return the two starts with the key as the upper object, one for each shown object."""
    return [reset for reset in resets() if reset["options"]["start"].upper == "key"]


def test_shuffled_memory_of_the_other_object_fails():
    found = evaluate(ShuffledMemory(Walker()), task().make_test_env, with_key_above())
    assert found.success.tolist() == [False, False]


@given(st.integers(2, 9), st.integers(0, 2**16))
def test_shuffle_moves_every_memory(count, seed):
    player = ShuffledMemory(Walker(), seed)
    player.initial_state(count)
    memory = np.arange(count)[:, None]
    shuffled = player.changed(memory)
    assert (shuffled != memory).all()
    assert sorted(shuffled[:, 0]) == list(range(count))


def test_last_episode_gets_the_memory_of_one_that_ended():
    player = ShuffledMemory(Walker())
    player.initial_state(2)
    memory = np.array([[5.0], [6.0]])
    player.next_state(memory, None, None, np.array([True, False]))
    np.testing.assert_array_equal(player.changed(memory[1:]), memory[:1])
    with pytest.raises(InvalidInput, match="at least 2 to shuffle memories; received 1"):
        player.initial_state(1)


def agent_of(preset):
    from rrl_tf.agents import RecurrentDoubleDQN

    return RecurrentDoubleDQN(network(preset), lambda views: views)


@pytest.mark.parametrize("preset", ["relational-memory-entities", "relational-memory"])
def test_uniform_attention_player_attends_equally_to_all_visible_cells(preset):
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
    for weight, value in zip(agent.policy.weights, before):  # the original agent is unchanged
        np.testing.assert_array_equal(array(weight), value)
    state = {**{n: v for n, v in step.items() if n != "observation"}, "memory": memory}
    action, remembered = player(step["observation"], state)
    np.testing.assert_array_equal(action, array(q).argmax(axis=-1))
    np.testing.assert_allclose(remembered, array(after), rtol=1e-4, atol=1e-5)


def test_zeroed_memory_equals_the_network_with_zeros():
    agent = agent_of("lstm")
    player = ZeroedMemory(agent.greedy_policy())
    step = {name: values[:, 0] for name, values in sequences().items()}
    observation = step.pop("observation")
    memory = some_memory(agent.policy, 2)
    _, after = player(observation, {**step, "memory": memory})
    _, expected = agent.policy({"observation": observation, **step}, np.zeros_like(memory))
    np.testing.assert_allclose(after, array(expected), rtol=1e-4, atol=1e-5)
    assert set(player.initial_state(3)) == {"memory", "previous_action", "previous_reward"}


def test_memory_ablations_without_relational_memory():
    agent = SimpleNamespace(greedy_policy=Walker, policy=SimpleNamespace(core="lstm"))
    found = memory_ablations(agent, task(), with_key_above())
    assert {name: each.success.mean() for name, each in found.items()} == {
        "trained": 1.0,
        "zeroed": 0.5,
        "shuffled": 0.0,
    }


def test_memory_ablations_of_a_relational_memory_include_uniform_attention():
    from rrl_tf.agents import RecurrentDoubleDQNConfig, make_agent
    from rrl_tf.models import RecurrentQNetwork

    core = {"mem_slots": 2, "head_size": 3}
    model = RecurrentQNetwork.from_preset(
        "relational-memory-dense", num_actions=3, core_arguments=core
    )
    agent = make_agent(task(), model, RecurrentDoubleDQNConfig(name="x"))
    found = memory_ablations(agent, task(), resets())
    assert [*found] == ["trained", "zeroed", "shuffled", "uniform attention"]
    assert all(len(each.success) == 4 for each in found.values())


def test_wrong_arguments_raise_one_error():
    with pytest.raises(InvalidInput, match="must have a Relational Memory; received core='lstm'"):
        uniform_attention_player(agent_of("lstm"))
    with pytest.raises(InvalidInput, match="at least one MemoryStart; received none"):
        swap_memories(Walker(), task(), starts=())
    with pytest.raises(InvalidInput, match="must be MemoryStarts; received the start None"):
        swap_memories(Walker(), task(), starts=[None])


def test_swapped_memories_can_be_changed():
    starts, seen = starts_next_to_the_object(), []
    own = swap_memories(Walker(), task(), starts=starts, change=lambda own, other: own)
    assert own.summary() == {"pairs": 2, "decided": 1.0, "action": 0.0, "outcome": 0.0}

    def other(*memories):
        seen.append(sorted(np.concatenate(memories)))
        return memories[1]

    assert swap_memories(Walker(), task(), starts=starts, change=other).action.all()
    assert seen == [[5, 6]] * 4
