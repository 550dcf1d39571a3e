"""Test whether an agent's memory decides where it goes, by swapping memories between episodes.

Example:
    >>> from rrl_tf.agents import RecurrentDoubleDQN
    >>> from rrl_tf.envs import memory_task
    >>> from rrl_tf.models import RecurrentQNetwork
    >>> network = RecurrentQNetwork.from_preset("memory-s17")
    >>> task = memory_task((11,), max_steps=50)
    >>> agent = RecurrentDoubleDQN(network, task.preprocessor)
    >>> swap_memories(agent.greedy_policy(), task).summary()
    {'pairs': 16, 'decided': 1.0, 'action': 1.0, 'outcome': 1.0}
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from rrl_tf.envs import MemoryStart, Task
from rrl_tf.errors import InvalidInput

State = Mapping[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class MemorySwap:
    """The result of swapping memories in P pairs of episodes that differ in the object shown.

    Attributes:
        decided: `(P,)` bool, true for D pairs whose episodes reach the same position with the same
            observation and act differently. Only their memories differ there.
        action: `(2 D,)` bool, for both episodes of each of these pairs: whether the episode takes
            the action of the other episode if it gets the other's memory.
        outcome: `(2 D,)` bool, in the same order: whether the episode then ends where the other
            episode ended.
    """

    decided: np.ndarray
    action: np.ndarray
    outcome: np.ndarray

    def summary(self) -> dict[str, float]:
        """Return the number of pairs, and the fraction of true values of each attribute.

        If no pair is decided, the fractions of `action` and `outcome` are nan.
        """
        means = {name: getattr(self, name) for name in ("decided", "action", "outcome")}
        return {
            "pairs": len(self.decided),
            **{n: float(v.mean()) if v.size else float("nan") for n, v in means.items()},
        }


def swap_memories(
    player: Any,
    task: Task,
    level: int = -1,
    starts: Iterable[MemoryStart] | None = None,
    change: Callable[[np.ndarray, np.ndarray], np.ndarray] | None = None,
) -> MemorySwap:
    """Test whether the remembered object decides where an agent goes in MiniGrid's Memory.

    The two greedy episodes of a pair start in the same way, except that they show different
    objects. Where both reach the same position with the same observation and act differently, each
    of them continues with the memory of the other. If the memory decides, they exchange their
    outcomes. If there are several such positions, the last one is used, because after it neither
    agent returns to look at the object again.

    Args:
        player: `agent.greedy_policy()`, or another object with the same methods.
        task: a task of `memory_task`.
        level: index of the level.
        starts: `MemoryStart`s; each is paired with the same start that shows the other object.
            `None` uses the starts of the level's evaluation.
        change: function of an episode's own and the other's memory `(M,)` that returns the memory
            with which the episode continues. `None` returns the other's; a placebo returns a
            memory that is as far from its own in a random direction.

    Returns:
        `MemorySwap`, in the order of the starts.

    Raises:
        InvalidInput: if `starts` is empty or has an element that is not a `MemoryStart`.

    For an example, see the top of this module.
    """
    if starts is None:
        resets = task.evaluation_resets(level)
        starts = [reset.get("options", {}).get("start") for reset in resets]
    with contextlib.ExitStack() as stack:
        episodes = [
            _Episode(stack.enter_context(contextlib.closing(task.make_test_env(level))), start)
            for start in _paired(starts)
        ]
        return _swap(player, episodes, change)


def _swap(player, episodes, change):
    _play(player, episodes, player.initial_state(len(episodes)))
    decided, swapped, others = [], [], []
    for pair in zip(episodes[::2], episodes[1::2]):
        meeting = _last_meeting(*pair)
        decided.append(meeting is not None)
        if meeting is not None:
            both = list(zip(pair, meeting))
            for (episode, t), (other, u) in (both, both[::-1]):
                memories = [e.steps[i].state["memory"] for e, i in ((episode, t), (other, u))]
                swapped.append(episode.replay(t, change(*memories) if change else memories[1]))
                others.append((other, u))
    if swapped:
        names = swapped[0].state
        _play(player, swapped, {n: np.stack([each.state[n] for each in swapped]) for n in names})
    results = [
        (a.steps[0].action == b.steps[u].action, a.end == b.end)
        for a, (b, u) in zip(swapped, others)
    ]
    action, outcome = np.array(results, bool).reshape(-1, 2).T
    return MemorySwap(np.array(decided), action, outcome)


def _paired(starts):
    """Return every start once with a key and once with a ball, next to each other."""
    paired: dict[MemoryStart, None] = {}
    for start in starts:
        if not isinstance(start, MemoryStart):
            raise InvalidInput(f"`starts` must be MemoryStarts; received the start {start!r}")
        for shown in ("key", "ball"):
            paired[dataclasses.replace(start, shown=shown)] = None
    if not paired:
        raise InvalidInput("`starts` must have at least one MemoryStart; received none")
    return paired


class _Step(NamedTuple):
    position: tuple[int, ...]
    observation: np.ndarray
    state: State
    action: int


class _Episode:
    """An episode of MiniGrid's Memory and its recorded steps."""

    def __init__(self, env, start, actions=(), state=None):
        self.env, self.start, self.state = env, start, state
        self.observation, _ = env.reset(options={"start": start})
        for action in actions:
            self.observation, *_ = env.step(action)
        self.steps: list[_Step] = []
        self.reward, self.done, self.end = 0.0, False, None

    def step(self, state, action):
        world = self.env.unwrapped
        position = (*map(int, world.agent_pos), int(world.agent_dir))
        self.steps.append(_Step(position, self.observation, state, action))
        self.observation, reward, terminated, truncated, _ = self.env.step(action)
        self.reward, self.done = float(reward), terminated or truncated
        # A new object differs from the end of every other episode, truncated or not.
        self.end = tuple(map(int, world.agent_pos)) if terminated else object()

    def replay(self, t, memory):
        """Return this episode up to step t, from where it continues with the given memory."""
        actions = [step.action for step in self.steps[:t]]
        return _Episode(self.env, self.start, actions, {**self.steps[t].state, "memory": memory})


def _play(player, episodes, state):
    """Play all episodes as a batch until every episode is done."""
    while episodes:
        actions, memory = player(np.stack([each.observation for each in episodes]), state)
        for row, (episode, action) in enumerate(zip(episodes, actions)):
            episode.step({name: value[row] for name, value in state.items()}, int(action))
        reward = np.array([episode.reward for episode in episodes])
        done = np.array([episode.done for episode in episodes])
        state = player.next_state(memory, actions, reward, done)
        state = {name: value[~done] for name, value in state.items()}
        episodes = [episode for episode in episodes if not episode.done]


def _last_meeting(one, other):
    """Return the last steps `(t, u)` with equal position and observation but different actions."""
    meetings = [
        (t, u)
        for t, a in enumerate(one.steps)
        for u, b in enumerate(other.steps)
        if a.position == b.position
        and a.action != b.action
        and np.array_equal(a.observation, b.observation)
    ]
    return max(meetings, key=sum, default=None)
