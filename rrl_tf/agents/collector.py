"""Acting in several environments: from an agent and environments to transitions."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

import tensorflow as tf

from rrl_tf._arguments import stored_arrays
from rrl_tf._typing import Tensor
from rrl_tf.agents import random
from rrl_tf.agents.environments import GraphEnvs, PythonEnvs


class Collector:
    """Lets an agent act in E environments of this process.

    What a collector carries from step to step is a structure of tensors that `step` takes and
    returns, so that a `tf.function` can take many steps.

    Args:
        agent: `DoubleDQN` or `RecurrentDoubleDQN`.
        env: `GraphEnvs` or `PythonEnvs` of E environments.
        seed: seed of the random actions and, in the graph, of the episodes.

    Attributes:
        num_envs: E.
        jit_compile: whether XLA can compile `step`.

    Example:
        >>> from rrl_tf.agents import DoubleDQN
        >>> from rrl_tf.envs import SeededVectorEnv, gymnasium_task
        >>> from rrl_tf.models import dense_q_network
        >>> task, network = gymnasium_task("CartPole-v1"), dense_q_network(2)
        >>> network.build((None, 4))
        >>> env = PythonEnvs(SeededVectorEnv(task.make_env, num_envs=4, seed=0))
        >>> collector = Collector(DoubleDQN(network, task.preprocessor), env, seed=0)
        >>> carry, _ = collector.prepare(None)
        >>> carry, transition, episode = collector.step(carry, epsilon=0.1, number=0, level=0)
        >>> transition["observation_tp1"].shape
        TensorShape([4, 4])
    """

    def __init__(self, agent: Any, env: GraphEnvs | PythonEnvs, seed: int) -> None:
        self.agent = agent
        self.env = env
        self.seed = seed
        self.num_envs = env.num_envs
        self.jit_compile = env.jit_compile

    @property
    def reset_options(self) -> dict[str, Any] | None:
        """The options that new episodes begin with; `{"level": number}` chooses the level."""
        return self.env.reset_options

    @reset_options.setter
    def reset_options(self, options: dict[str, Any] | None) -> None:
        self.env.reset_options = options

    @property
    def level(self) -> int:
        """Number of the curriculum's level that new episodes begin at."""
        return (self.reset_options or {}).get("level", 0)

    def running(self) -> AbstractContextManager[None]:
        """Return the context to step in; an environment's error leaves it as it was raised."""
        return self.env.errors_as_raised()

    def gauges(self, updates: int) -> dict[str, float]:
        """Return values to log after this number of updates: none."""
        return {}

    def prepare(self, carry: Any, epsilon: Any = 0.0, updates: int = 0) -> tuple[Any, int]:
        """Return what `step` takes, and how many steps it can take.

        Args:
            carry: as `step` or `set_state` returned it, or `None` to begin.
            epsilon, updates: fraction of random actions and number of updates so far; unused here.
        """
        if carry is None:
            carry = self._new_carry(*self.env.begin(self._seed(random.RESETS, -1)))
        return carry, sys.maxsize

    def _new_carry(self, env_state, observation):
        return {
            "env": env_state,
            "observation": observation,
            "state": self.agent.initial_state(self.num_envs),
            "return": tf.zeros((self.num_envs,)),
            "length": tf.zeros((self.num_envs,)),
        }

    def step(
        self, carry: Any, epsilon: Any, number: Any, level: Any
    ) -> tuple[Any, dict[str, Any], Tensor]:
        """Take one step in every environment.

        Args:
            carry: as `prepare` or `step` returned it.
            epsilon: fraction of random actions, a scalar or `(E,)`.
            number: number of the step; it seeds the draws.
            level: level of the episodes that begin.

        Returns:
            The next carry; the arguments of `ReplayBuffer.add`; and `(4, E)` float32 of whether the
            episode is over, its return and length so far, and its success (nan if unknown).
        """
        observation_t, state_t = carry["observation"], carry["state"]
        with tf.name_scope("act"):
            seed = self._seed(random.ACTIONS, number)
            action_t, memory = self.agent.act(observation_t, state_t, epsilon, seed)
        with tf.name_scope("environment"):
            seed = self._seed(random.RESETS, number)
            env_state, observation, outcome, over, success = self.env.step_and_reset(
                carry["env"], action_t, seed, level
            )
        transition = {
            "observation_t": observation_t,
            "action_t": action_t,
            **outcome,
            "episode_step": tf.cast(carry["length"], tf.int32),
            "state": state_t,
        }
        reward_t = outcome["reward_t"]
        returned, length = carry["return"] + reward_t, carry["length"] + 1.0
        episode = [tf.cast(each, tf.float32) for each in (over, returned, length, success)]
        carry = {
            "env": env_state,
            "observation": observation,
            "state": self.agent.next_state(memory, action_t, reward_t, over),
            "return": tf.where(over, 0.0, returned),
            "length": tf.where(over, 0.0, length),
        }
        return carry, transition, tf.stack(episode)

    def _seed(self, stream, number):
        return random.fold_in((self.seed, stream), number)

    def get_state(self, carry: Any) -> dict[str, dict[str, Any]]:
        """Return the parts of a loop's state: `environment`, `episodes` and `recurrent_state`."""
        return {
            "environment": self.env.get_state(carry["env"]),
            "episodes": {name: carry[name].numpy() for name in ("return", "length")},
            "recurrent_state": {name: value.numpy() for name, value in carry["state"].items()},
        }

    def set_state(self, state: Mapping[str, Any]) -> Any:
        """Restore what `get_state` returned, and return what `step` takes.

        Raises:
            InvalidInput: if a part does not fit the agent or the environments.
        """
        carry = self._new_carry(*self.env.set_state(state["environment"]))
        episodes = {name: carry[name] for name in ("return", "length")}
        carry |= _restored("episodes", state["episodes"], episodes)
        carry["state"] = _restored("recurrent_state", state["recurrent_state"], carry["state"])
        return carry


def _restored(part, stored, example):
    """Return the stored arrays as tensors, checked against an example."""
    expected = {
        name: (tuple(value.shape), value.dtype.as_numpy_dtype) for name, value in example.items()
    }
    return {
        name: tf.constant(array) for name, array in stored_arrays(part, stored, expected).items()
    }
