"""Define `DQN` and `RecurrentDQN`, which learn a Gymnasium environment in a few lines."""

from __future__ import annotations

import dataclasses
import os
import pathlib
from collections.abc import Iterable
from typing import Any, ClassVar, Self

import gymnasium
import keras
import numpy as np

from rrl_tf._arguments import positive_int
from rrl_tf.agents.config import DQNConfig, RecurrentDQNConfig
from rrl_tf.agents.double_dqn import DoubleDQN
from rrl_tf.agents.evaluation import evaluate_level, make_play
from rrl_tf.agents.networks import fitting_network, make_q_network, make_recurrent_q_network
from rrl_tf.agents.train import LogCallback, export_agent, make_agent, train_double_dqn
from rrl_tf.envs import gymnasium_task
from rrl_tf.envs.checks import ArrayCheck
from rrl_tf.envs.task import Task
from rrl_tf.interpret import draw_episode
from rrl_tf.training.config import require_fields
from rrl_tf.training.devices import make_replicas
from rrl_tf.training.fit import load_weights
from rrl_tf.training.run import Run


class DQN:
    """A double DQN agent for a Gymnasium environment with discrete actions.

    This class makes the task with `gymnasium_task` and a network that fits its observations, and
    trains with `train_double_dqn`. `python -m train_scripts.train_dqn` uses it, so both return the
    same numbers for the same options.

    Args:
        env: id of the environment, such as `CartPole-v1` or `module:Name-v0`.
        **options: fields of `DQNConfig`, such as `seed`, `learning_rate`, `network` or `runs`.

    Attributes:
        config: the `DQNConfig`.
        task: the `Task`.
        agent: the `DoubleDQN`.
        run: the `Run` of the last `learn`, with the run folder; `None` before.

    Raises:
        InvalidInput: if an option does not exist or is out of range, or the network does not fit.

    Example:
        >>> options = {"jit_compile": False, "learning_starts": 64, "evaluation_episodes": 2}
        >>> agent = DQN("CartPole-v1", max_steps=10, **options)
        >>> _ = agent.learn(96)  # doctest: +ELLIPSIS
        environment ...
        >>> observation, _ = agent.make_env().reset(seed=0)
        >>> action, _ = agent.predict(observation)
        >>> action in (0, 1)
        True
    """

    config_class: ClassVar[Any] = DQNConfig

    def __init__(self, env: str, **options: Any) -> None:
        require_fields(self.config_class, options)
        self._set_up(self.config_class(env=env, **options))

    @classmethod
    def from_config(cls, config: Any) -> Self:
        """Return an agent with the configuration that a script has parsed."""
        agent = cls.__new__(cls)
        agent._set_up(config)
        return agent

    def _set_up(self, config: Any) -> None:
        self._replicas = make_replicas(config, config.batch_size)
        self.task = gymnasium_task(
            config.env,
            test_env=config.test_env or None,
            curriculum=config.curriculum,
            success_return=config.success_return,
            max_steps=config.max_steps,
            frames=config.frames,
            actions=config.actions,
        )
        keras.utils.set_random_seed(config.seed)
        self.config, network = self._make_network(config, self.task)
        self.run: Run | None = None
        self._network, self._steps = network, 0
        self._use(make_agent(self.task, network, self.config, self._replicas))

    def _use(self, agent: DoubleDQN) -> None:
        self.agent = agent
        self._policy = agent.greedy_policy()  # compiled once

    def _make_network(self, config: Any, task: Task) -> tuple[Any, keras.Model]:
        """Return the configuration with the defaults of the task, and a new network."""
        is_grid = fitting_network(task.preprocessor) == "grid"
        defaults = {"discount": 0.95 if is_grid else 0.99, "n_step": 1 if is_grid else 3}
        unset = [name for name in defaults if getattr(config, name) is None]
        config = dataclasses.replace(config, **{name: defaults[name] for name in unset})
        return config, make_q_network(config, task)

    def learn(
        self,
        steps: int,
        callbacks: Iterable[LogCallback] = (),
    ) -> Self:
        """Train, evaluate and export the agent; a second call trains for as many steps more.

        The run folder keeps checkpoints. In a new process, `learn` continues from the last
        checkpoint of the same configuration, and does not train if it has all `steps` already.

        Args:
            steps: number of environment steps, over all environments.
            callbacks: as in `train_double_dqn`.
        """
        self._steps += positive_int("steps", steps)
        self.config = dataclasses.replace(self.config, steps=self._steps)
        self.run, trained = train_double_dqn(
            self.task,
            self._network,
            self.config,
            replicas=self._replicas,
            draw_episode=draw_episode,
            callbacks=callbacks,
        )
        self._use(trained)
        return self

    def make_env(self, render_mode: str | None = None) -> gymnasium.Env:
        """Return a new environment with the observations and actions of `predict`."""
        return self.task.make_env(render_mode=render_mode)

    def predict(self, observation: Any) -> tuple[Any, None]:
        """Return the greedy action, an int, or `(B,)` for a batch of observations; and `None`.

        Args:
            observation: observation of `make_env()`, or a batch of them.
        """
        batch, is_single = self._batch(observation)
        actions = self._policy(batch)
        return (int(actions[0]) if is_single else actions), None

    def _batch(self, observation):
        """Return observations with a batch axis, and whether they had none."""
        space: Any = self.task.observation_space
        is_single = np.ndim(observation) <= len(space.shape)
        batch = [observation] if is_single else observation
        check = ArrayCheck("`observation`", space.shape, space.dtype)
        return check.batch(batch, len(batch), "observation {} of the batch".format), is_single

    def evaluate(self, episodes: int = 100) -> dict[str, float]:
        """Play evaluation episodes greedily, and with 5 % random actions, and return the metrics.

        With a curriculum, the episodes are of the last level, `env`.

        Args:
            episodes: number of episodes; they are the same in every call.
        """
        play = make_play(self.agent, self.task, positive_int("episodes", episodes))
        levels = len(self.task.levels)
        return evaluate_level(play, levels - 1, levels)

    def save(self, path: str | os.PathLike) -> None:
        """Save the network that plays as a `.keras` file, which `load` reads."""
        self.agent.policy.save(path)

    @classmethod
    def load(cls, path: str | os.PathLike, env: str, **options: Any) -> Self:
        """Return an agent with a saved network.

        Args:
            path: file that `save` has written.
            env, **options: as for the class.

        Raises:
            InvalidInput: if the file cannot be read, or contains a different network.
        """
        agent = cls(env, **options)
        load_weights(agent._network, path)
        agent._use(make_agent(agent.task, agent._network, agent.config, agent._replicas))
        return agent

    def export(self, folder: str | os.PathLike) -> pathlib.Path:
        """Export the policy as a SavedModel, for `rrl_tf.load_policy` and `rrl-serve`.

        Args:
            folder: parent of the version folders.

        Returns:
            The new version folder.
        """
        return export_agent(pathlib.Path(folder), self.agent, self.task, {})


class RecurrentDQN(DQN):
    """A recurrent double DQN agent, R2D2, for a Gymnasium environment with discrete actions.

    Args:
        env: as for `DQN`.
        **options: fields of `RecurrentDQNConfig`. `python -m train_scripts.train_recurrent --env`
            returns the same numbers for the same options.

    Example:
        >>> agent = RecurrentDQN("MiniGrid-MemoryS7-v0", network="lstm-dense")
        >>> env, done, state, reward = agent.make_env(), False, None, 0.0
        >>> observation, _ = env.reset(seed=0)
        >>> while not done:
        ...     action, state = agent.predict(observation, state, reward)
        ...     observation, reward, terminated, truncated, _ = env.step(action)
        ...     done = terminated or truncated
    """

    config_class = RecurrentDQNConfig

    def _make_network(self, config: Any, task: Task) -> tuple[Any, keras.Model]:
        return config, make_recurrent_q_network(config, task)

    def predict(self, observation: Any, state: Any = None, reward: Any = 0.0) -> tuple[Any, Any]:
        """Return the greedy action and the state for the next call.

        Args:
            observation: observation of `make_env()`, or a batch of them.
            state: the state that the call before returned; `None` at the start of an episode.
            reward: reward of the step before, a float or `(B,)`; it has no effect with `None`.
        """
        batch, is_single = self._batch(observation)
        if state is None:
            recurrent = self._policy.initial_state(len(batch))
        else:
            rewards = np.broadcast_to(np.asarray(reward, "float32"), len(batch))
            recurrent = self._policy.next_state(*state, rewards, np.zeros(len(batch), bool))
        actions, memory = self._policy(batch, recurrent)
        return (int(actions[0]) if is_single else actions), (memory, actions)
