"""Define `DecisionTransformerAgent`, which trains a Decision Transformer in a few lines."""

from __future__ import annotations

import copy
import dataclasses
import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np

from rrl_tf._arguments import path_of, positive_int
from rrl_tf.errors import InvalidInput
from rrl_tf.offline.config import FAST
from rrl_tf.offline.decision_transformer import train_decision_transformer
from rrl_tf.offline.episodes import OfflineData
from rrl_tf.offline.evaluation import (
    ReturnEvaluator,
    export_trajectory_policy,
    make_envs,
    set_noise_scale,
)
from rrl_tf.offline.networks import make_agent_parts
from rrl_tf.offline.sources import load_episodes
from rrl_tf.offline.trajectory_policy import TrajectoryPolicy
from rrl_tf.training.config import require_fields
from rrl_tf.training.devices import make_replicas
from rrl_tf.training.fit import FitRun, load_weights


class DecisionTransformerAgent:
    """Decision Transformer with the methods of a Stable-Baselines3 agent.

    Training with the same options equals `train_scripts.train_decision_transformer --preset fast`.

    Args:
        data: recorded episodes, or their source as for `load_episodes`, such as `"minari:FOLDER"`.
        **options: fields of `OfflineAgentConfig` that differ from `offline.config.FAST`, such as
            `seed`, `width`, or `evaluation_episodes=0` for data without an environment.

    Attributes:
        config: `OfflineAgentConfig`.
        data: `OfflineData`.
        scaling: `Scaling` of the training episodes.
        network: the network.
        run: run of the last call of `learn`, or None.

    Raises:
        InvalidInput: if the data cannot be read, or an option does not exist, is out of range or
            does not fit the data.

    Example:
        >>> from gymnasium.spaces import Discrete
        >>> from rrl_tf.offline import Episode
        >>> episodes = (Episode(np.eye(3), [0, 1], [r, 0.0], True, False) for r in (1.0, 2.0))
        >>> data = OfflineData("mine", tuple(episodes), Discrete(2), "none")
        >>> agent = DecisionTransformerAgent(data, warmup_steps=2, width=16, evaluation_episodes=0)
        >>> _ = agent.learn(4)  # doctest: +ELLIPSIS
        data ...
        >>> action, state = agent.predict(np.eye(3)[0], target_return=2.0)
        >>> action, state = agent.predict(np.eye(3)[1], state, reward=1.0)
        >>> action in (0, 1)
        True
    """

    def __init__(self, data: str | OfflineData, **options: Any) -> None:
        require_fields(type(FAST), options)
        source = data.name if isinstance(data, OfflineData) else data
        config = dataclasses.replace(FAST, data=source, **options)
        self._replicas = make_replicas(config, config.batch_size)  # before the network is made
        self.data = data if isinstance(data, OfflineData) else load_episodes(data)
        self.config, self.scaling, network = make_agent_parts(config, self.data, FAST)
        self.run: FitRun | None = None
        self._use(network)

    def _use(self, network: keras.Model) -> None:
        self.network = network
        self._policy = TrajectoryPolicy(network, self.scaling)

    def learn(
        self, steps: int, callbacks: Iterable[keras.callbacks.Callback] = ()
    ) -> DecisionTransformerAgent:
        """Train for a number of updates, then evaluate and export the policy; return the agent.

        All files are written to the run folder, `config.path`. If this folder contains a run with
        the same configuration, for example an interrupted one, it resumes.

        Args:
            steps: number of updates. A further call trains for this number in addition. This needs
                `schedule="constant"`, because a cosine schedule ends at a learning rate of 0.
            callbacks: Keras callbacks of the training.

        Raises:
            InvalidInput: as for `train_decision_transformer`, or if a further call exceeds the
                steps of a cosine schedule.
        """
        done = self.run.step if self.run else 0
        total = done + positive_int("steps", steps)
        if done and total != self.config.steps and "steps" not in self.config.mutable_fields():
            raise InvalidInput(
                f"`learn` must end at step {self.config.steps}, the end of the cosine schedule; "
                f"received {steps} steps after step {done}. Create the agent with "
                'schedule="constant" and another `name` to train in several calls.'
            )
        self.config = dataclasses.replace(self.config, steps=total)
        arguments = (self.data, self.network, self.scaling, self.config, self._replicas)
        self.run = train_decision_transformer(*arguments, callbacks)
        self._use(self.run.model)
        return self

    def predict(
        self,
        observation: Any,
        state: TrajectoryPolicy | None = None,
        reward: float = 0.0,
        target_return: float | None = None,
    ) -> tuple[Any, TrajectoryPolicy]:
        """Return the greedy action in one environment, and the state for the next call.

        Args:
            observation: raw observation.
            state: the state that the last call in this episode returned, which is updated. None
                begins an episode.
            reward: reward of the last action; ignored in the first step.
            target_return: target return of the episode, read in the first step. None means the
                highest return of the training episodes.

        Returns:
            `(action, state)`. The action is an int, or an array `(A,)` if actions are continuous.

        Raises:
            InvalidInput: if a value is not finite or has a wrong shape.
        """
        if state is None:
            state = copy.copy(self._policy)  # shares the compiled function
            target = self.scaling.target_return if target_return is None else target_return
            state.begin(np.array([target], "float64"))
        action = state.act(np.asarray(observation)[None], np.array([reward]))[0]
        return (int(action) if self.data.discrete else action), state

    def evaluate(
        self, target_returns: Sequence[float], episodes: int = 100
    ) -> dict[str, dict[str, float]]:
        """Play new episodes for each target return.

        Args:
            target_returns: target returns.
            episodes: number of episodes per target return.

        Returns:
            Dict target return -> dict of `"return"`, `"return_deviation"`, `"length"`, and
            `"success"` if the environment reports it.

        Raises:
            InvalidInput: if the data has no environment, or it cannot be created.
        """
        with make_envs(self.data, positive_int("episodes", episodes)) as envs:
            if not envs:
                raise InvalidInput(
                    f"`evaluate` needs data with an environment; received {self.data.name}"
                )
            return ReturnEvaluator(self._policy, envs, target_returns).table(target_returns)

    def save(self, path: str | os.PathLike) -> None:
        """Save the network as a Keras file, whose name ends in `.keras`."""
        self.network.save(path_of("path", path))

    @classmethod
    def load(
        cls, path: str | os.PathLike, data: str | OfflineData, **options: Any
    ) -> DecisionTransformerAgent:
        """Return an agent with a saved network. A new run of `learn` starts from its weights.

        Args:
            path: file that `save` has written.
            data: the data of the saved agent.
            **options: the options of the saved agent.

        Raises:
            InvalidInput: if the file cannot be read, or the options describe a different network.
        """
        agent = cls(data, **options)
        saved = load_weights(agent.network, path)
        expected = json.loads(agent.network.to_json())["config"]
        differing = {n for n in expected if saved.get(n, expected[n]) != expected[n]}
        differing -= {"name", "noise_scale"}
        if differing:
            raise InvalidInput(
                "`options` must be those of the saved agent; received other values of "
                f"{', '.join(sorted(differing))}"
            )
        if agent.network.action_distribution is not None:
            # Training has chosen the noise scale, which is not among the options.
            set_noise_scale(agent.network, saved["noise_scale"])
        return agent

    def export(self, folder: str | os.PathLike) -> Path:
        """Write the policy as a new version in `folder` for `rrl_tf.load_policy` or a server.

        `learn` also exports it, to the folder `export` of its run.

        Returns:
            The folder of the version.
        """
        results = self.run.folder.evaluation(self.run.step) if self.run else {}
        return export_trajectory_policy(folder, self.data, self._policy, results.get("last", {}))
