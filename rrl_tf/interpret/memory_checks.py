"""Tests of whether an agent's memory decides: zeroed, shuffled, made uniform, or swapped.

Example:
    >>> from rrl_tf.agents import RecurrentDoubleDQN
    >>> from rrl_tf.envs import memory_task
    >>> from rrl_tf.models import RecurrentQNetwork
    >>> network = RecurrentQNetwork.from_preset("memory-s17")
    >>> task = memory_task((11,), max_steps=50)
    >>> agent = RecurrentDoubleDQN(network, task.preprocessor)
    >>> found = memory_ablations(agent, task, task.evaluation_resets(at_most=8))
    >>> {name: found[name].summary()["success"] for name in ("trained", "zeroed")}
    {'trained': 1.0, 'zeroed': 0.0}
    >>> swap_memories(agent.greedy_policy(), task).summary()
    {'pairs': 16, 'decided': 1.0, 'action': 1.0, 'outcome': 1.0}
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from rrl_tf.agents import RecurrentDoubleDQN
from rrl_tf.agents.evaluation import Evaluation, evaluate
from rrl_tf.envs import MemoryStart, Task
from rrl_tf.errors import InvalidInput
from rrl_tf.models import RecurrentQNetwork

State = Mapping[str, np.ndarray]


class ZeroedMemory:
    """A player whose memory is zeros before every step; its last action and reward stay.

    Args:
        player: `agent.greedy_policy()`, or another object with its methods.
    """

    def __init__(self, player: Any) -> None:
        self.player = player

    def initial_state(self, num_envs: int) -> dict[str, np.ndarray]:
        """Return the player's state at the start of episodes."""
        return self.player.initial_state(num_envs)

    def __call__(self, observation: np.ndarray, state: State) -> tuple[np.ndarray, np.ndarray]:
        """Return the player's actions and next memory, given the changed memory."""
        return self.player(observation, {**state, "memory": self.changed(state["memory"])})

    def changed(self, memory: np.ndarray) -> np.ndarray:
        """Return what replaces the memories `(B, M)`."""
        return np.zeros_like(memory)

    def next_state(self, *step: np.ndarray) -> dict[str, np.ndarray]:
        """Return the player's state after a step."""
        return self.player.next_state(*step)


class ShuffledMemory(ZeroedMemory):
    """A player that acts by the memory of another episode at every step, never by its own.

    The memory of an episode still comes from its own observations. Another episode acts by it: one
    that runs at the same time or, for the last one that runs, one that has ended.

    Args:
        player: `agent.greedy_policy()`, or another object with its methods.
        seed: seed of the permutations.
    """

    def __init__(self, player: Any, seed: int = 0) -> None:
        super().__init__(player)
        self._rng = np.random.default_rng(seed)
        self._ended: Any = None  # the last memory of an episode that has ended

    def initial_state(self, num_envs: int) -> dict[str, np.ndarray]:
        """Return the player's state at the start of episodes.

        Raises:
            InvalidInput: if there is only one episode.
        """
        if num_envs < 2:
            raise InvalidInput(f"`num_envs` must be at least 2 to shuffle; received {num_envs}")
        self._ended = None
        return super().initial_state(num_envs)

    def __call__(self, observation: np.ndarray, state: State) -> tuple[np.ndarray, np.ndarray]:
        """Return the actions by other episodes' memories, and the next memories by their own."""
        _, memory = self.player(observation, state)
        return super().__call__(observation, state)[0], memory

    def changed(self, memory: np.ndarray) -> np.ndarray:
        """Return the memories `(B, M)`, each in another's place."""
        if len(memory) == 1:
            return self._ended[None]
        # A cycle in random order, because a permutation may leave a memory in its place.
        cycle = self._rng.permutation(len(memory))
        shuffled = np.empty_like(memory)
        shuffled[cycle] = memory[np.roll(cycle, 1)]
        return shuffled

    def next_state(self, *step: np.ndarray) -> dict[str, np.ndarray]:
        """Return the player's state after a step; keep the memory of an episode that ended."""
        memory, _, _, over = step
        if over.any():
            self._ended = memory[np.flatnonzero(over)[0]]
        return super().next_state(*step)


def uniform_attention_player(agent: RecurrentDoubleDQN) -> Any:
    """Return the agent's player with uniform attention of its memory's slots.

    It plays a copy of the network. With queries of zero all scores are equal, whatever the keys.

    Args:
        agent: agent of a network with a Relational Memory.

    Raises:
        InvalidInput: if the network has another memory.
    """
    if agent.policy.core != "relational_memory":
        raise InvalidInput(
            f"`agent` must have a Relational Memory; received core={agent.policy.core!r}"
        )
    twin = RecurrentDoubleDQN(agent.policy, agent.preprocess)
    silence_slots(twin.policy)  # the averaged network, which is a copy
    return twin.greedy_policy()


def silence_slots(network: RecurrentQNetwork) -> None:
    """Set the queries of a network's Relational Memory to zero, in place."""
    for attention in network.core_layer.cell.attentions:
        # The norm centres its inputs; the columns of its weights are `[head][q | k | v]`.
        for variable in (attention.fused_norm.gamma, attention.fused_norm.beta):
            columns = np.array(variable).reshape(attention.num_heads, -1)
            columns[:, : attention.key_size] = 0
            variable.assign(columns.reshape(variable.shape))


def memory_ablations(
    agent: RecurrentDoubleDQN,
    task: Task,
    resets: Sequence[Mapping[str, Any]] | None = None,
    epsilon: float = 0.0,
    seed: int = 0,
) -> dict[str, Evaluation]:
    """Evaluate an agent with its memory, without it, and with other episodes' memories.

    Args:
        agent: the agent.
        task: the task to play.
        resets: keyword arguments of `reset`, one for each episode; by default the task's
            evaluation.
        epsilon: fraction of random actions.
        seed: seed of the permutations and of the random actions.

    Returns:
        Dict of an `Evaluation` each: `"trained"`, with its memory; `"zeroed"`, with zeros before
        every step; `"shuffled"`, with another episode's memory at every step; and, for a Relational
        Memory, `"uniform attention"` of its slots.

    Example: at the top of this module.
    """
    player = agent.greedy_policy()
    players = {
        "trained": player,
        "zeroed": ZeroedMemory(player),
        "shuffled": ShuffledMemory(player, seed),
    }
    if agent.policy.core == "relational_memory":
        players["uniform attention"] = uniform_attention_player(agent)
    resets = task.evaluation_resets() if resets is None else resets
    return {
        name: evaluate(each, task.make_test_env, resets, epsilon, seed)
        for name, each in players.items()
    }


@dataclasses.dataclass(frozen=True)
class MemorySwap:
    """The result of swapping the memories of pairs of episodes that differ in the object shown.

    Attributes:
        decided: `(P,)` bool, pairs that reach the same place with the same observation and act
            differently: only the memory differs there.
        action: `(2 D,)` bool, for both episodes of each of those D pairs: with the other's memory
            it takes the other's action.
        outcome: `(2 D,)` bool: with the other's memory it ends where the other ended.
    """

    decided: np.ndarray
    action: np.ndarray
    outcome: np.ndarray

    def summary(self) -> dict[str, float]:
        """Return the number of pairs and the fractions; nan if no pair was decided."""
        means = {name: getattr(self, name) for name in ("decided", "action", "outcome")}
        return {
            "pairs": len(self.decided),
            **{n: float(v.mean()) if v.size else float("nan") for n, v in means.items()},
        }


def swap_memories(
    player: Any, task: Task, level: int = -1, starts: Iterable[MemoryStart] | None = None
) -> MemorySwap:
    """Test whether the remembered object decides where an agent goes in MiniGrid's Memory.

    Two greedy episodes start alike except for the object shown. Where they reach the same place
    with the same observation and act differently, each continues with the other's memory. If the
    memory decides, they exchange their outcomes. Of several such places the last counts, because
    after it neither agent returns to look again.

    Args:
        player: `agent.greedy_policy()`, or another object with its methods.
        task: a task of `memory_task`.
        level: index of the level.
        starts: `MemoryStart`s; each is paired with the one that shows the other object. By default
            those of the level's evaluation.

    Returns:
        `MemorySwap`, in the order of the starts.

    Raises:
        InvalidInput: if a start is not a `MemoryStart`, or there is none.

    Example: at the top of this module.
    """
    if starts is None:
        resets = task.evaluation_resets(level)
        starts = [reset.get("options", {}).get("start") for reset in resets]
    episodes = [_Episode(task.make_test_env(level), start) for start in _paired(starts)]
    _play(player, episodes, player.initial_state(len(episodes)))
    decided, swapped, others = [], [], []
    for pair in zip(episodes[::2], episodes[1::2]):
        meeting = _last_meeting(*pair)
        decided.append(meeting is not None)
        if meeting is not None:
            sides = list(zip(pair, meeting))
            for (episode, t), (other, u) in (sides, sides[::-1]):
                swapped.append(episode.replay(t, other.steps[u].state["memory"]))
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
    """Return every start with a key and the same with a ball, one after the other, each once."""
    paired: dict[MemoryStart, None] = {}
    for start in starts:
        if not isinstance(start, MemoryStart):
            raise InvalidInput(f"`starts` must be MemoryStarts; received {start!r}")
        for shown in ("key", "ball"):
            paired[dataclasses.replace(start, shown=shown)] = None
    if not paired:
        raise InvalidInput("`starts` must be at least one MemoryStart; received none")
    return paired


class _Step(NamedTuple):
    place: tuple[int, ...]
    observation: np.ndarray
    state: State
    action: int


class _Episode:
    """An episode of Memory and its recorded steps."""

    def __init__(self, env, start, actions=(), state=None):
        self.env, self.start, self.state = env, start, state
        self.observation, _ = env.reset(options={"start": start})
        for action in actions:
            self.observation, *_ = env.step(action)
        self.steps: list[_Step] = []
        self.reward, self.over, self.end = 0.0, False, None

    def step(self, state, action):
        world = self.env.unwrapped
        place = (*map(int, world.agent_pos), int(world.agent_dir))
        self.steps.append(_Step(place, self.observation, state, action))
        self.observation, reward, terminated, truncated, _ = self.env.step(action)
        self.reward, self.over = float(reward), terminated or truncated
        # An episode that was cut has no end, and so not the end of another that was cut.
        self.end = tuple(map(int, world.agent_pos)) if terminated else object()

    def replay(self, t, memory):
        """Return the same episode up to step t, to continue with another memory."""
        actions = [step.action for step in self.steps[:t]]
        return _Episode(self.env, self.start, actions, {**self.steps[t].state, "memory": memory})


def _play(player, episodes, state):
    """Play all episodes to their ends, as a batch."""
    while episodes:
        actions, memory = player(np.stack([each.observation for each in episodes]), state)
        for row, (episode, action) in enumerate(zip(episodes, actions)):
            episode.step({name: value[row] for name, value in state.items()}, int(action))
        reward = np.array([episode.reward for episode in episodes])
        over = np.array([episode.over for episode in episodes])
        state = player.next_state(memory, actions, reward, over)
        state = {name: value[~over] for name, value in state.items()}
        episodes = [episode for episode in episodes if not episode.over]


def _last_meeting(one, other):
    """Return the last steps `(t, u)` of equal place and observation with different actions."""
    meetings = [
        (t, u)
        for t, a in enumerate(one.steps)
        for u, b in enumerate(other.steps)
        if a.place == b.place
        and a.action != b.action
        and np.array_equal(a.observation, b.observation)
    ]
    return max(meetings, key=sum, default=None)
