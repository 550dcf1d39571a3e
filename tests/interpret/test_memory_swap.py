"""Swapped memories of players whose use of memory is known."""

import functools

import numpy as np
import pytest

from rrl_tf.envs import enumerate_memory_starts, memory_task
from rrl_tf.errors import InvalidInput
from rrl_tf.interpret import swap_memories

pytestmark = pytest.mark.tf_only
LEFT, RIGHT, FORWARD = 0, 1, 2
OBJECTS = (5, 6)  # MiniGrid's codes of key and ball


class Walker:
    """Walk to the end of the hallway, then to the object seen at the start, the memory."""

    def initial_state(self, num_envs):
        self.note = np.zeros((num_envs, 1))
        return {"memory": self.note, "note": self.note}

    def __call__(self, observation, state):
        beside, self.note = observation[:, 2, 6, 0], state["note"]
        memory = np.where(np.isin(beside, OBJECTS)[:, None], beside[:, None], state["memory"])
        left, right = observation[:, 1, 6, 0], observation[:, 5, 6, 0]
        at_end = np.isin(left, OBJECTS) & np.isin(right, OBJECTS)
        target = self.target(memory, state)
        turn = np.where(target == left, LEFT, RIGHT)
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


class Forgetful(Walker):
    """Always turn to the same side."""

    def target(self, memory, state):
        return 0 * memory[:, 0]


@functools.cache
def task():
    return memory_task((7,), max_steps=20)


def starts_next_to_the_object():
    return [start for start in enumerate_memory_starts(7) if start.agent == 1]


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


def test_forgotten_object_decides_no_pair():
    found = swap_memories(Forgetful(), task())
    assert not found.decided.any()
    summary = found.summary()
    assert summary["decided"] == 0 and np.isnan([summary["action"], summary["outcome"]]).all()


def test_wrong_arguments_raise_one_error():
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
