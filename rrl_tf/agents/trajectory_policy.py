"""Acting with a Decision Transformer: what it looks at, kept from step to step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import keras
import numpy as np
import tensorflow as tf

from rrl_tf._arguments import number_from
from rrl_tf.data.windows import LastSteps
from rrl_tf.errors import InvalidInput

if TYPE_CHECKING:
    import gymnasium

    from rrl_tf.data.scaling import Scaling


class TrajectoryPolicy:
    """Plays episodes side by side with a model that looks at the last K steps.

    It reads the whole window at every step. Keys and values of the steps before could be kept, but
    those of all blocks but the first would be of windows that held steps which have left since.

    Args:
        model: `DecisionTransformer`, or any model that is called alike.
        scaling: `Scaling` of the data it was trained on.
        exploration: standard deviation of normal noise on continuous actions, in half intervals
            between their bounds; of discrete ones the temperature at which they are drawn, where 1
            is how often they were recorded. 0 does what is most likely.

    Raises:
        InvalidInput: if the exploration is negative.

    Example:

    >>> policy = TrajectoryPolicy(model, scaling)  # doctest: +SKIP
    >>> policy.begin(target_returns=np.full(100, 0.95))  # doctest: +SKIP
    >>> actions = policy.act(observations, rewards)  # doctest: +SKIP
    """

    def __init__(self, model: keras.Model, scaling: Scaling, exploration: float = 0.0) -> None:
        self.model, self.scaling = model, scaling
        self.exploration = number_from("exploration", exploration, 0)
        self._choose = tf.function(self._action_of, reduce_retracing=True)

    def begin(
        self, target_returns: Sequence[float] | np.ndarray, seed: int | Sequence[int] = 0
    ) -> None:
        """Begins an episode for each of the returns `(E,)` that are to be reached.

        Args:
            target_returns: these.
            seed: of the exploration.
        """
        model = self.model
        self._rng = np.random.default_rng(seed)
        self._steps = LastSteps(
            target_returns, model.context_length, model.action_size, self.scaling.condition
        )

    def act(self, observations: np.ndarray, rewards: np.ndarray | None = None) -> np.ndarray:
        """The actions of the next step.

        Args:
            observations: `(E, ...)`, raw.
            rewards: `(E,)`, what the actions before earned; not looked at in a first step.

        Returns:
            `(E,)` or `(E, A)`, as the environment takes them.
        """
        self._steps.add(observations, rewards)
        action = self._choose(self._steps.window(), self._noise(len(observations))).numpy()
        self._steps.choose(action)
        return action

    def keep(self, rows: np.ndarray) -> None:
        """Goes on with some of the episodes, by mask or indices; the others have ended."""
        self._steps.keep(rows)

    def _noise(self, count):
        """What is added to the predictions: of logits the largest is then drawn by the softmax."""
        shape = (count, self.model.action_size)
        if not self.exploration:
            return np.zeros(shape, "float32")
        draw = self._rng.gumbel if self.model.discrete else self._rng.normal
        return (self.exploration * draw(size=shape)).astype("float32")

    def _action_of(self, window, noise):
        prediction = self.model(self.scaling.window(window), last_action=True)
        return self.scaling.action(prediction["action"] + noise)


def play_episodes(
    policy: TrajectoryPolicy,
    envs: Sequence[gymnasium.Env],
    target_return: float | None,
    seeds: Sequence[int],
) -> dict[str, np.ndarray]:
    """Plays one episode in each environment, all of them side by side.

    Args:
        policy: `TrajectoryPolicy`.
        envs: E environments.
        target_return: the return that is asked for; None is the scaling's, the best of its data.
        seeds: of the environments' resets, and together of the policy's exploration.

    Returns:
        Dict of arrays `(E,)`: `"return"`, `"length"`, and `"success"` where the environment reports
        it.

    Raises:
        ValueError: if there are no environments, not as many as seeds, or nothing to ask for.

    Example:

    >>> play_episodes(policy, [gym.make("Walker2d-v5")], 4000.0, [0])  # doctest: +SKIP
    """
    if not envs or len(envs) != len(seeds):
        raise InvalidInput(
            f"expected a seed for each environment; received {len(seeds)}, {len(envs)}"
        )
    observations = np.stack([env.reset(seed=seed)[0] for env, seed in zip(envs, seeds)])
    total, length = np.zeros(len(envs)), np.zeros(len(envs), int)
    success = np.full(len(envs), np.nan)
    rewards, running = np.zeros(len(envs)), np.arange(len(envs))
    target = policy.scaling.target_return if target_return is None else target_return
    if target is None:
        raise InvalidInput("a target_return must be given where the scaling has none")
    policy.begin(np.full(len(envs), float(target)), seeds)
    while len(running):
        actions = policy.act(observations, rewards)
        results = [envs[i].step(action) for i, action in zip(running.tolist(), actions)]
        observations = np.stack([result[0] for result in results])
        rewards = np.array([result[1] for result in results], "float64")
        over = np.array([result[2] or result[3] for result in results])
        total[running] += rewards
        length[running] += 1
        for i in np.flatnonzero(over):
            success[running[i]] = results[i][4].get("success", np.nan)
        if over.any():
            policy.keep(~over)
            observations, rewards, running = observations[~over], rewards[~over], running[~over]
    played = {"return": total, "length": length}
    return played if np.isnan(success).any() else {**played, "success": success}
