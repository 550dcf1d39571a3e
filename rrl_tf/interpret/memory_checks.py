"""Test whether an agent's decisions depend on its memory.

The tests set the memory to zero, exchange it between episodes, or make its attention uniform.

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

import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from rrl_tf.agents import RecurrentDoubleDQN
from rrl_tf.agents.evaluation import Evaluation, evaluate
from rrl_tf.envs import MemoryStart, Task
from rrl_tf.errors import InvalidInput

State = Mapping[str, np.ndarray]


class ZeroedMemory:
    """A player whose memory is set to zero before every step.

    The previous action and reward, which are also part of its state, do not change.

    Args:
        player: `agent.greedy_policy()`, or another object with the same methods.
    """

    def __init__(self, player: Any) -> None:
        self.player = player

    def initial_state(self, num_envs: int) -> dict[str, np.ndarray]:
        """Return the player's state at the start of episodes."""
        return self.player.initial_state(num_envs)

    def __call__(self, observation: np.ndarray, state: State) -> tuple[np.ndarray, np.ndarray]:
        """Return the actions and next memory that the player computes from the changed memory."""
        return self.player(observation, {**state, "memory": self.changed(state["memory"])})

    def changed(self, memory: np.ndarray) -> np.ndarray:
        """Return the memories `(B, M)` that replace `memory`."""
        return np.zeros_like(memory)

    def next_state(self, *step: np.ndarray) -> dict[str, np.ndarray]:
        """Return the player's state after a step."""
        return self.player.next_state(*step)


class ShuffledMemory(ZeroedMemory):
    """A player that chooses every action with the memory of another episode.

    Each episode still updates its own memory from its own observations. To choose an action, it
    uses the memory of another episode that is running or, if it is the last one to run, of an
    episode that has ended.

    Args:
        player: `agent.greedy_policy()`, or another object with the same methods.
        seed: seed of the permutations of episodes.
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
            raise InvalidInput(
                f"`num_envs` must be at least 2 to shuffle memories; received {num_envs}"
            )
        self._ended = None
        return super().initial_state(num_envs)

    def __call__(self, observation: np.ndarray, state: State) -> tuple[np.ndarray, np.ndarray]:
        """Return actions computed from other episodes' memories, and memories from their own."""
        _, memory = self.player(observation, state)
        return super().__call__(observation, state)[0], memory

    def changed(self, memory: np.ndarray) -> np.ndarray:
        """Return the memories `(B, M)`, exchanged so that no episode has its own."""
        if len(memory) == 1:
            return self._ended[None]
        # Use a random cycle: an arbitrary permutation may give an episode its own memory.
        cycle = self._rng.permutation(len(memory))
        shuffled = np.empty_like(memory)
        shuffled[cycle] = memory[np.roll(cycle, 1)]
        return shuffled

    def next_state(self, *step: np.ndarray) -> dict[str, np.ndarray]:
        """Return the player's state after a step, and store the memory of an ended episode."""
        memory, _, _, done = step
        if done.any():
            self._ended = memory[np.flatnonzero(done)[0]]
        return super().next_state(*step)


def uniform_attention_player(agent: RecurrentDoubleDQN) -> Any:
    """Return a greedy policy of the agent in which the slots of the memory attend uniformly.

    It uses a copy of the network whose queries are zero, so that all attention scores are equal.

    Args:
        agent: agent whose network has a Relational Memory.

    Raises:
        InvalidInput: if the network has no Relational Memory.
    """
    if agent.policy.core != "relational_memory":
        raise InvalidInput(
            f"`agent` must have a Relational Memory; received core={agent.policy.core!r}"
        )
    twin = RecurrentDoubleDQN(agent.policy, agent.preprocess)
    # This does not change the agent's own network, because a new agent copies its network.
    for attention in twin.policy.core_layer.cell.attentions:
        # The norm's output is the queries, keys and values, with columns `[head][q | k | v]`.
        for variable in (attention.fused_norm.gamma, attention.fused_norm.beta):
            columns = np.array(variable).reshape(attention.num_heads, -1)
            columns[:, : attention.key_size] = 0
            variable.assign(columns.reshape(variable.shape))
    return twin.greedy_policy()


def memory_ablations(
    agent: RecurrentDoubleDQN,
    task: Task,
    resets: Sequence[Mapping[str, Any]] | None = None,
) -> dict[str, Evaluation]:
    """Evaluate an agent with its memory, without it, and with other episodes' memories.

    Args:
        agent: the agent to evaluate.
        task: the task to play.
        resets: keyword arguments of `reset`, one mapping per episode; `None` uses
            `task.evaluation_resets()`.

    Returns:
        A dict whose values are an `Evaluation`: `"trained"`, the agent with its own memory;
        `"zeroed"`, with zeros before every step; `"shuffled"`, with another episode's memory at
        every step; and, for a Relational Memory, `"uniform attention"`, with equal attention to all
        slots.

    For an example, see the top of this module.
    """
    player = agent.greedy_policy()
    players = {
        "trained": player,
        "zeroed": ZeroedMemory(player),
        "shuffled": ShuffledMemory(player),
    }
    if agent.policy.core == "relational_memory":
        players["uniform attention"] = uniform_attention_player(agent)
    resets = task.evaluation_resets() if resets is None else resets
    return {name: evaluate(each, task.make_test_env, resets) for name, each in players.items()}


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
