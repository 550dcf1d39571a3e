"""Experience replay: a preallocated ring of n-step transitions, uniform or prioritised."""

from __future__ import annotations

import collections
import copy
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rrl_tf._arguments import natural, number_from, positive_int, stored_arrays
from rrl_tf.agents.stored_observations import StoredArrays, StoredFrames
from rrl_tf.errors import InvalidInput


@dataclasses.dataclass(frozen=True)
class Batch:
    """What one update learns from; every array has one row a transition.

    Attributes:
        observation_t: `(B, ...)`, raw observations.
        action_t: `(B,)` int32.
        return_t: `(B,)` float32, discounted sum of up to n rewards.
        discount_t: `(B,)` float32, what the value at `t + n` is worth: 0 after a termination.
        floor_t: `(B,)` float32, the discounted return that was observed from t to the end of the
            episode; -inf where it is not known.
        observation_tpn: `(B, ...)`, raw observations n steps later (fewer at an episode's end).
        weight_t: `(B,)` float32 importance weights, 1 without priorities.
        index: `(B,)` int64, rows of the ring, for `ReplayBuffer.set_priorities`.
    """

    observation_t: np.ndarray
    action_t: np.ndarray
    return_t: np.ndarray
    discount_t: np.ndarray
    floor_t: np.ndarray
    observation_tpn: np.ndarray
    weight_t: np.ndarray
    index: np.ndarray


OBSERVATIONS = ("observation_t", "observation_tpn")
"""The columns of observations."""


class ReplayBuffer:
    """A first-in-first-out ring of n-step transitions gathered from several environments.

    A transition ends n steps later, or where its episode does. At a termination nothing follows
    (`discount_t = 0`); at a time-out the true last observation is bootstrapped from.

    With `priority_exponent` α > 0 a transition is drawn with probability `p_i^α / Σ p^α`, where
    `p_i` is its last absolute temporal-difference error (new ones: the largest so far), and
    weighed by `(size · P(i))^-β`, divided by the batch's largest weight.

    Args:
        capacity: int, transitions kept.
        observation_shape: tuple, shape of one raw observation.
        observation_dtype: dtype of a raw observation.
        num_envs: int, environments that feed it (E).
        n_step: int, rewards summed before bootstrapping.
        discount: float in [0, 1], per step.
        priority_exponent: float ≥ 0, α; 0 samples uniformly, with replacement.
        importance_exponent: float in [0, 1], β.
        positive_copies: int, how often a transition with a positive reward is stored.
        observe_returns: bool, fill in `floor_t` when an episode has terminated. In a deterministic
            environment what was reached once can be reached again, so it bounds the optimal value
            from below (He et al., "Learning to play in a day", 2017).
        frames: int, observations that are stacked along the last axis, of which every step adds
            one; each is kept once.

    Raises:
        ValueError: if a number is out of range, or that many transitions do not fit in memory.

    Example:
        >>> replay = ReplayBuffer(100, (7, 7, 3), "uint8", num_envs=1, n_step=1, discount=0.9)
        >>> view = np.zeros((1, 7, 7, 3), "uint8")
        >>> replay.add(view, [0], [1.0], terminated=[True], truncated=[False], observation_tp1=view)
        >>> replay.sample(2, np.random.default_rng(0)).discount_t
        array([0., 0.], dtype=float32)

    Source: Schaul et al., "Prioritized experience replay" (2016), for the priorities.
    """

    def __init__(
        self,
        capacity: int,
        observation_shape: Sequence[int],
        observation_dtype: Any,
        *,
        num_envs: int,
        n_step: int = 1,
        discount: float = 0.99,
        priority_exponent: float = 0.0,
        importance_exponent: float = 0.4,
        positive_copies: int = 1,
        observe_returns: bool = False,
        frames: int = 1,
    ) -> None:
        self.capacity = positive_int("capacity", capacity)
        self.observation_shape = tuple(observation_shape)
        self.observation_dtype = observation_dtype
        self.num_envs = positive_int("num_envs", num_envs)
        self.n_step = positive_int("n_step", n_step)
        self.discount = number_from("discount", discount, 0, 1)
        self.priority_exponent = number_from("priority_exponent", priority_exponent, 0)
        self.importance_exponent = number_from("importance_exponent", importance_exponent, 0, 1)
        self.positive_copies = positive_int("positive_copies", positive_copies)
        self.observe_returns = observe_returns
        self._observations = StoredArrays(observation_shape, observation_dtype)
        if positive_int("frames", frames) > 1:
            self._observations = StoredFrames(
                observation_shape, observation_dtype, frames, num_envs
            )
        self._ring = self._empty_ring()
        self._added = 0
        self._largest_priority = 1.0
        self._pending: list[collections.deque[list[Any]]] = [
            collections.deque() for _ in range(num_envs)
        ]
        # Of the episode each environment is in: its rewards, and [number, time] of what is stored.
        self._episodes: list[dict[str, Any]] = [
            {"rewards": [], "stored": []} for _ in range(num_envs)
        ]

    def _empty_ring(self):
        numbers = {
            "action_t": np.int32,
            "return_t": np.float32,
            "discount_t": np.float32,
            "floor_t": np.float32,
            "priority": np.float64,
        }
        try:
            return {
                **{name: self._observations.column(self.capacity) for name in OBSERVATIONS},
                **{name: np.zeros(self.capacity, dtype) for name, dtype in numbers.items()},
            }
        except (MemoryError, ValueError, OverflowError) as error:  # ValueError: beyond 64 bits
            raise InvalidInput(
                f"the replay's capacity must fit in memory ({error}); received {self.capacity}"
            ) from error

    def __len__(self) -> int:
        return min(self._added, self.capacity)

    def add(
        self,
        observation_t: np.ndarray,
        action_t: Any,
        reward_t: Any,
        terminated: Any,
        truncated: Any,
        observation_tp1: np.ndarray,
        envs: Sequence[int] | None = None,
    ) -> None:
        """Takes one step of every environment, or of some of them.

        Args:
            observation_t: `(E, ...)`, what was seen before acting.
            action_t: `(E,)` int, actions taken.
            reward_t: `(E,)` float, rewards received.
            terminated: `(E,)` bool, the episode came to an end of its own.
            truncated: `(E,)` bool, the episode was cut by its time limit.
            observation_tp1: `(E, ...)`, what was seen after acting, never a new episode's start.
            envs: the numbers of the E environments that stepped; by default all.
        """
        for row, env in enumerate(range(self.num_envs) if envs is None else envs):
            seen, seen_next = self._observations.of_step(
                env, observation_t[row], observation_tp1[row]
            )
            pending = self._pending[env]
            pending.append([seen, int(action_t[row]), 0.0, 0])
            for transition in pending:
                transition[2] += self.discount ** transition[3] * float(reward_t[row])
                transition[3] += 1
            episode = self._episodes[env]
            episode["rewards"].append(float(reward_t[row]))
            over = terminated[row] or truncated[row]
            while pending and (over or pending[0][3] == self.n_step):
                observation, action, summed, steps = pending.popleft()
                after = 0.0 if terminated[row] else self.discount**steps
                for _ in range(self.positive_copies if summed > 0 else 1):
                    episode["stored"].append([self._added, len(episode["rewards"]) - steps])
                    self._store(observation, action, summed, after, seen_next)
            if over:
                if terminated[row] and self.observe_returns:
                    self._set_floors(**episode)
                self._begin_episode(env)

    def _begin_episode(self, env):
        self._episodes[env] = {"rewards": [], "stored": []}
        self._observations.begin_episode(env)

    def forget_episodes(self, envs: Sequence[int]) -> None:
        """Drops what waits for the end of the episodes that environments are in; they begin anew.

        What is stored of them stays: its rewards and the observation it ends with were seen.
        """
        for env in envs:
            self._pending[env].clear()
            self._begin_episode(env)

    def _store(self, observation_t, action_t, return_t, discount_t, observation_tpn):
        row = self._added % self.capacity
        ring = self._ring
        ring["observation_t"][row] = observation_t
        ring["action_t"][row] = action_t
        ring["return_t"][row] = return_t
        ring["discount_t"][row] = discount_t
        ring["floor_t"][row] = -np.inf
        ring["observation_tpn"][row] = observation_tpn
        ring["priority"][row] = self._largest_priority**self.priority_exponent
        self._added += 1

    def _set_floors(self, rewards, stored):
        """Writes the returns to the end of a terminated episode to its transitions."""
        returns = np.zeros(len(rewards) + 1)
        for t in reversed(range(len(rewards))):
            returns[t] = rewards[t] + self.discount * returns[t + 1]
        for number, t in stored:
            if number >= self._added - self.capacity:  # still in the ring
                self._ring["floor_t"][number % self.capacity] = returns[t]

    def sample(self, batch_size: int, rng: np.random.Generator) -> Batch:
        """Draws a `Batch` with replacement.

        Args:
            batch_size: int, B.
            rng: `numpy.random.Generator` that draws.

        Raises:
            ValueError: if nothing is stored yet.
        """
        size = len(self)
        if size == 0:
            raise InvalidInput("cannot sample from an empty replay buffer")
        if self.priority_exponent == 0:
            index = rng.integers(size, size=batch_size)
            weight = np.ones(batch_size, np.float32)
        else:
            # A running sum over the ring costs less than an update does, up to ~1e6 transitions;
            # a sum tree would save nothing that can be noticed.
            cumulative = np.cumsum(self._ring["priority"][:size])
            index = np.searchsorted(cumulative, rng.random(batch_size) * cumulative[-1], "right")
            index = np.minimum(index, size - 1)
            probability = self._ring["priority"][index] / cumulative[-1]
            weight = (size * probability) ** -self.importance_exponent
            weight = (weight / weight.max()).astype(np.float32)
        numbers = {*self._ring} - {*OBSERVATIONS, "priority"}
        return Batch(
            **{name: self._observations.rows(self._ring[name], index) for name in OBSERVATIONS},
            **{name: self._ring[name][index] for name in numbers},
            weight_t=weight,
            index=index,
        )

    def set_priorities(self, index: np.ndarray, error: np.ndarray) -> None:
        """Remembers the temporal-difference errors of sampled rows as their new priorities.

        Args:
            index: `(B,)`, `Batch.index`.
            error: `(B,)`, temporal-difference errors of those rows, of either sign.
        """
        if self.priority_exponent == 0:
            return
        priority = np.abs(error).astype(np.float64) + 1e-6
        self._ring["priority"][index] = priority**self.priority_exponent
        self._largest_priority = max(self._largest_priority, float(priority.max()))

    def get_state(self) -> dict[str, Any]:
        """Everything needed to go on exactly, as a dict of arrays and JSON-able values."""
        columns = {name: column[: len(self)] for name, column in self._ring.items()}
        observations = {name: columns.pop(name) for name in OBSERVATIONS}
        waiting = [item[0] for pending in self._pending for item in pending]
        return {
            **columns,
            **self._observations.to_arrays({**observations, "pending_observation": waiting}),
            "pending": [[item[1:] for item in pending] for pending in self._pending],
            "episodes": copy.deepcopy(self._episodes),
            "added": self._added,
            "largest_priority": self._largest_priority,
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Restores what `get_state` returned.

        Raises:
            ValueError: if it came from a buffer of another shape, capacity or number of
                environments.
        """
        added = natural("added", state["added"])
        size = min(added, self.capacity)
        numbers = {
            name: ((size, *column.shape[1:]), column.dtype)
            for name, column in self._ring.items()
            if name not in OBSERVATIONS
        }
        stored_arrays("replay", state, numbers)
        for name in OBSERVATIONS:  # what a row of them is, see below
            if len(state[name]) != size:
                raise InvalidInput(
                    f"replay state {name!r} must be {size} rows; received {len(state[name])}"
                )
        for part in ("pending", "episodes"):
            if len(state[part]) != self.num_envs:
                raise InvalidInput(
                    f"replay state is of {len(state[part])} environments, expected {self.num_envs}"
                )
        columns: Any = self._observations.from_arrays(state, (*OBSERVATIONS, "pending_observation"))
        for name, column in self._ring.items():
            column[:size] = columns.get(name, state[name])
        self._added = added
        self._largest_priority = float(number_from("priority", state["largest_priority"], 0))
        self._episodes = [
            {
                "rewards": [float(reward) for reward in episode["rewards"]],
                "stored": [[int(number), int(t)] for number, t in episode["stored"]],
            }
            for episode in state["episodes"]
        ]
        observations = collections.deque(columns["pending_observation"])
        self._pending = [
            collections.deque(
                [observations.popleft(), int(action), float(summed), int(steps)]
                for action, summed, steps in pending
            )
            for pending in state["pending"]
        ]
