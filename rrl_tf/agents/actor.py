"""What one actor does: plays with its copy of the network and hands on what it saw."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rrl_tf.agents.loop import finished_episodes
from rrl_tf.envs.vector import SeededVectorEnv

if TYPE_CHECKING:  # it loads TensorFlow
    from rrl_tf.agents.double_dqn import DoubleDQN


@dataclasses.dataclass(frozen=True)
class Order:
    """What an actor is asked for.

    Attributes:
        steps: int, T, of every environment.
        epsilon: float, share of random actions.
        reset_options: of every episode that begins; see `SeededVectorEnv`.
        version: int, of the weights to play with: the updates they have been through.
    """

    steps: int
    epsilon: float
    reset_options: dict[str, Any] | None
    version: int


@dataclasses.dataclass(frozen=True)
class Rollout:
    """T steps of the E environments of one actor; they follow those of its last rollout.

    Attributes:
        observation_t: `(T, E, ...)`, what was seen before acting.
        action_t: `(T, E)` int.
        reward_t: `(T, E)` float32.
        terminated: `(T, E)` bool; also where a life was lost.
        truncated: `(T, E)` bool.
        observation_tp1: `(T, E, ...)`, what followed, never a new episode's start.
        episodes: T lists, the episodes that ended, as in `Record`.
        version: int, of the weights it was played with.
        begins: bool, all episodes begin here: the actor is new.
    """

    observation_t: np.ndarray
    action_t: np.ndarray
    reward_t: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    observation_tp1: np.ndarray
    episodes: Sequence[list[dict[str, float]]]
    version: int
    begins: bool

    def __len__(self) -> int:
        return len(self.action_t)


class Actor:
    """Plays E environments with a copy of the learner's network.

    Args:
        agent: `DoubleDQN`, or whatever has its `act` and `network`; it is never updated.
        env: its environments, all its own.
        seed: int, of the random actions.

    Example:
        >>> from rrl_tf.agents import DoubleDQN
        >>> from rrl_tf.envs import gymnasium_task
        >>> from rrl_tf.models import dense_q_network
        >>> task, network = gymnasium_task("CartPole-v1"), dense_q_network(2)
        >>> network.build((None, 4))
        >>> agent = DoubleDQN(network, task.preprocessor)
        >>> actor = Actor(agent, SeededVectorEnv(task.make_env, num_envs=2, seed=1), seed=1)
        >>> order = Order(steps=8, epsilon=0.1, reset_options=None, version=0)
        >>> actor.play(order, network.get_weights).reward_t.shape
        (8, 2)
    """

    def __init__(self, agent: DoubleDQN, env: SeededVectorEnv, seed: int) -> None:
        self.agent = agent
        self.env = env
        self._rng = np.random.default_rng(seed)
        self._version: int | None = None
        self._observation: Any = None

    def play(self, order: Order, weights: Callable[[], Sequence[np.ndarray]]) -> Rollout:
        """Takes `order.steps` steps of all environments.

        Args:
            order: what to do.
            weights: gives the network's weights of `order.version`; called where the actor has
                those of another one.
        """
        if order.version != self._version:
            self.agent.network.set_weights(weights())
            self._version = order.version
        self.env.reset_options = order.reset_options
        begins = self._observation is None
        if begins:
            self._observation, _ = self.env.reset()
        steps = [self._step(order.epsilon) for _ in range(order.steps)]
        columns: dict[str, Any] = {
            name: np.stack([step[name] for step, _ in steps]) for name in steps[0][0]
        }
        episodes = [episodes for _, episodes in steps]
        return Rollout(**columns, episodes=episodes, version=order.version, begins=begins)

    def _step(self, epsilon):
        """The arrays of a step, by their names in `Rollout`, and the episodes that ended."""
        observation_t = self._observation
        action_t = self.agent.act(observation_t, epsilon, self._rng)
        self._observation, reward_t, terminated, truncated, info = self.env.step(action_t)
        step = {
            "observation_t": observation_t,
            "action_t": action_t,
            "reward_t": reward_t,
            "terminated": terminated | info.get("life_lost", False),
            "truncated": truncated,
            "observation_tp1": info["final_obs"],
        }
        return step, finished_episodes(info)
