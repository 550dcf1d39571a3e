"""Whether an agent's memory decides: taken away, mixed up, made uniform, or swapped.

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
    >>> swap_of_memory(agent.greedy_player(), task).summary()
    {'pairs': 16, 'decided': 1.0, 'action': 1.0, 'outcome': 1.0}
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from rrl_tf.agents.evaluation import Evaluation, evaluate
from rrl_tf.envs import MemoryStart, Task
from rrl_tf.errors import InvalidInput

if TYPE_CHECKING:
    from rrl_tf.agents import RecurrentDoubleDQN
    from rrl_tf.models import RecurrentQNetwork

Recall = Mapping[str, np.ndarray]


class Player(Protocol):
    """What plays and remembers, as `RecurrentDoubleDQN.greedy_player` does."""

    def initial_recall(self, num_envs: int) -> dict[str, np.ndarray]:
        """What is known at the start of episodes."""

    def __call__(self, observation: np.ndarray, recall: Recall) -> tuple[np.ndarray, np.ndarray]:
        """Actions `(B,)` and the memory after looking, `(B, M)`."""

    def next_recall(self, recall: Any, *step: np.ndarray) -> dict[str, np.ndarray]:
        """What is known after a step: memory, action, reward, and which episodes are over."""


class ZeroedMemory:
    """A player whose memory is zeros before every step; its last action and reward stay.

    Args:
        player: `agent.greedy_player()`.
    """

    def __init__(self, player: Player) -> None:
        self.player = player

    def initial_recall(self, num_envs: int) -> dict[str, np.ndarray]:
        """As the player's own."""
        return self.player.initial_recall(num_envs)

    def __call__(self, observation: np.ndarray, recall: Recall) -> tuple[np.ndarray, np.ndarray]:
        """The player's answer to a changed memory."""
        return self.player(observation, {**recall, "memory": self.changed(recall["memory"])})

    def changed(self, memory: np.ndarray) -> np.ndarray:
        """What takes the place of the memories `(B, M)`."""
        return np.zeros_like(memory)

    def next_recall(self, recall: Any, *step: np.ndarray) -> dict[str, np.ndarray]:
        """As the player's own."""
        return self.player.next_recall(recall, *step)


class ShuffledMemory(ZeroedMemory):
    """A player who acts by the memory of another episode at every step, never by its own.

    What an episode remembers comes from what was seen in it, as ever, but another one goes by it:
    one of those played side by side, or, for the last of them, one that is over.

    Args:
        player: `agent.greedy_player()`.
        seed: of who goes by whose.
    """

    def __init__(self, player: Player, seed: int = 0) -> None:
        super().__init__(player)
        self._rng = np.random.default_rng(seed)
        self._ended: Any = None  # the last memory of an episode that is over

    def initial_recall(self, num_envs: int) -> dict[str, np.ndarray]:
        """As the player's own.

        Raises:
            InvalidInput: if there is no other episode.
        """
        if num_envs < 2:
            raise InvalidInput(f"to shuffle memories takes two episodes; received {num_envs}")
        self._ended = None
        return super().initial_recall(num_envs)

    def __call__(self, observation: np.ndarray, recall: Recall) -> tuple[np.ndarray, np.ndarray]:
        """What the player does with others' memories, and what it remembers with its own."""
        _, memory = self.player(observation, recall)
        return super().__call__(observation, recall)[0], memory

    def changed(self, memory: np.ndarray) -> np.ndarray:
        """The memories `(B, M)`, each in another's place."""
        if len(memory) == 1:
            return self._ended[None]  # there were two in the beginning
        # Round a circle in random order: nobody comes out in his own place.
        circle = self._rng.permutation(len(memory))
        shuffled = np.empty_like(memory)
        shuffled[circle] = memory[np.roll(circle, 1)]
        return shuffled

    def next_recall(self, recall: Any, *step: np.ndarray) -> dict[str, np.ndarray]:
        """As the player's own; keeps a memory of those that are over."""
        memory, _, _, over = step
        if over.any():
            self._ended = memory[np.flatnonzero(over)[0]]
        return super().next_recall(recall, *step)


def uniform_attention_player(agent: RecurrentDoubleDQN) -> Player:
    """The agent's player when the slots attend to all that they may attend to alike.

    The weights are a copy. With queries of zero all scores are equal, whatever the keys are.

    Args:
        agent: of a network with a Relational Memory.

    Raises:
        InvalidInput: if the network has another memory.
    """
    from rrl_tf.agents import RecurrentDoubleDQN  # it loads TensorFlow

    if agent.policy.core != "relational_memory":
        raise InvalidInput(
            f"only the slots of a Relational Memory attend; received core={agent.policy.core!r}"
        )
    twin = RecurrentDoubleDQN(agent.policy, agent.prepare)
    silence_slots(twin.policy)  # its averaged network, which is a copy
    return twin.greedy_player()


def silence_slots(network: RecurrentQNetwork) -> None:
    """Sets the queries of a network's Relational Memory to zero, in place."""
    for attention in network.core_layer.cell.attentions:
        # What comes before the norm, the norm centres; its columns are `[head][q | k | v]`.
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
    """What an agent is worth without its memory, with another episode's, and so on.

    Args:
        agent: the agent.
        task: what is played.
        resets: keyword arguments of `reset`, one an episode; the task's evaluation, if left out.
        epsilon: share of random actions.
        seed: of whose memory goes to whom, and of random actions.

    Returns:
        Dict of an `Evaluation` each: `"trained"`, as it is; `"zeroed"` before every step;
        `"shuffled"`, another episode's at every step; and, of a Relational Memory,
        `"uniform attention"` of its slots.

    Raises:
        InvalidInput: if there is only one episode to play.

    Example: at the top of this module.
    """
    player = agent.greedy_player()
    players: dict[str, Player] = {
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
    """What came of swapping the memories of two episodes that differ in the object shown.

    Attributes:
        decided: `(P,)` bool, pairs that come to the same place, see the same there and act
            differently: by then only the memory tells them apart.
        action: `(2 D,)` bool, of both episodes of each of those D pairs: with the other's memory
            it does what the other did.
        outcome: `(2 D,)` bool: with the other's memory it ends where the other ended.
    """

    decided: np.ndarray
    action: np.ndarray
    outcome: np.ndarray

    def summary(self) -> dict[str, float]:
        """How many pairs there are, and the shares as a dict; nan where no pair was decided."""
        means = {name: getattr(self, name) for name in ("decided", "action", "outcome")}
        return {
            "pairs": len(self.decided),
            **{n: float(v.mean()) if v.size else float("nan") for n, v in means.items()},
        }


def swap_of_memory(
    player: Player, task: Task, level: int = -1, starts: Iterable[MemoryStart] | None = None
) -> MemorySwap:
    """Whether the remembered object decides where an agent goes in MiniGrid's Memory.

    Two greedy episodes begin alike but for the object shown. Where they come to the same place,
    see the same and yet act differently, the one goes on with the other's memory, and the other
    with its: if it is the memory that decides, they change sides. Of several such places the last
    counts, past which neither comes back to look again.

    Args:
        player: `agent.greedy_player()`.
        task: of `memory_task`.
        level: which of its levels.
        starts: `MemoryStart`s, each of which is paired with that of the other object; the level's
            evaluation, if left out.

    Returns:
        A `MemorySwap`, in the order of the starts.

    Raises:
        InvalidInput: if a start is none of Memory, or there is none.

    Example: at the top of this module.
    """
    if starts is None:
        resets = task.evaluation_resets(level)
        starts = [reset.get("options", {}).get("start") for reset in resets]
    pairs = _pairs(starts)
    envs = [task.make_test_env(level) for _ in range(2 * len(pairs))]
    ways = [_Way(env, start) for env, start in zip(envs, (s for pair in pairs for s in pair))]
    _play(player, ways, player.initial_recall(len(ways)))
    meetings = [_last_meeting(*pair) for pair in zip(ways[::2], ways[1::2])]
    swapped, followed = [], []
    for number, meeting in enumerate(meetings):
        if meeting is None:
            continue
        pair = list(zip(ways[2 * number : 2 * number + 2], meeting))
        for (way, t), (other, at) in (pair, pair[::-1]):
            swapped.append(way.again(t, other.recalls[at]["memory"]))
            followed.append((other, at))
    if swapped:
        _play(player, swapped, _stacked([way.recall for way in swapped]))
    for env in envs:
        env.close()
    return MemorySwap(
        decided=np.array([meeting is not None for meeting in meetings]),
        action=np.array([w.actions[0] == o.actions[at] for w, (o, at) in zip(swapped, followed)]),
        outcome=np.array([w.end == o.end for w, (o, _) in zip(swapped, followed)]),
    )


def _pairs(starts):
    """Every start and the same with the other object, without the ones that come twice."""
    pairs: dict[MemoryStart, MemoryStart] = {}
    for start in starts:
        if not isinstance(start, MemoryStart):
            raise InvalidInput(f"memories are swapped from MemoryStarts on; received {start!r}")
        key, ball = (dataclasses.replace(start, shown=shown) for shown in ("key", "ball"))
        pairs[key] = ball
    if not pairs:
        raise InvalidInput("swap_of_memory needs at least one start; received none")
    return list(pairs.items())


class _Way:
    """An episode as it was played: what was seen, recalled and done at every step."""

    def __init__(self, env, start):
        self.env, self.start = env, start
        self.observation, _ = env.reset(options={"start": start})
        self.recall, self.over = None, False
        self.observations, self.places, self.recalls, self.actions = [], [], [], []
        self.rewards = []
        self.end = None

    @property
    def place(self):
        """Where the agent stands, and which way it looks."""
        world = self.env.unwrapped
        return (*map(int, world.agent_pos), int(world.agent_dir))

    def step(self, recall, action):
        """Acts, and keeps how it came to it; what came of it is the reward."""
        self.observations.append(self.observation)
        self.places.append(self.place)
        self.recalls.append(recall)
        self.actions.append(action)
        self.observation, reward, terminated, truncated, _ = self.env.step(action)
        self.rewards.append(float(reward))
        self.over = terminated or truncated
        if self.over:
            # An episode that was not decided ended nowhere: not even where another one did.
            self.end = self.place[:2] if terminated else object()

    def again(self, t, memory):
        """The same up to step t, there with another memory."""
        other = _Way(self.env, self.start)
        for action in self.actions[:t]:
            other.observation, *_ = other.env.step(action)
        other.recall = {**self.recalls[t], "memory": memory}
        return other


def _play(player, ways, recall):
    """Plays all to their ends, side by side."""
    running = ways
    while running:
        action, memory = player(np.stack([way.observation for way in running]), recall)
        for row, (way, choice) in enumerate(zip(running, action)):
            way.step({name: value[row] for name, value in recall.items()}, int(choice))
        reward, over = (
            np.array([value(way) for way in running])
            for value in (lambda way: way.rewards[-1], lambda way: way.over)
        )
        recall = player.next_recall(recall, memory, action, reward, over)
        recall = {name: value[~over] for name, value in recall.items()}
        running = [way for way in running if not way.over]


def _stacked(recalls):
    return {name: np.stack([recall[name] for recall in recalls]) for name in recalls[0]}


def _last_meeting(one, other):
    """The last steps `(t, u)` at which two episodes are and see the same and act differently."""
    at = {}
    for u, place in enumerate(other.places):
        at.setdefault(place, []).append(u)
    meetings = [
        (t, u)
        for t, place in enumerate(one.places)
        for u in at.get(place, ())
        if one.actions[t] != other.actions[u]
        and np.array_equal(one.observations[t], other.observations[u])
    ]
    return max(meetings, key=sum, default=None)
