"""Acting with a Decision Transformer: what it looks at, kept from step to step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from rrl_tf.data.windows import LastSteps, action_vectors
from rrl_tf.errors import InvalidInput

if TYPE_CHECKING:
    import gymnasium

    from rrl_tf.data.scaling import Scaling

ACTING = ("recompute", "cached")


class TrajectoryPolicy:
    """Plays episodes side by side with a model that looks at the last K steps.

    With `acting="recompute"` the model reads the whole window at every step. With `"cached"` it
    reads the new tokens only and keeps the keys and values of the others: the same numbers while an
    episode is no longer than K steps. Afterwards what it keeps was computed when the window still
    held steps that have left it, so the actions differ.

    Args:
        model: `DecisionTransformer`, or any model that is called alike.
        scaling: `Scaling` of the data it was trained on.
        acting: `"recompute"` or `"cached"`.

    Raises:
        ValueError: for another way of acting, or a model that keeps nothing.

    Example:

    >>> policy = TrajectoryPolicy(model, scaling)  # doctest: +SKIP
    >>> policy.begin(target_returns=np.full(100, 0.95))  # doctest: +SKIP
    >>> actions = policy.act(observations, rewards)  # doctest: +SKIP
    """

    def __init__(self, model: keras.Model, scaling: Scaling, acting: str = "recompute") -> None:
        if acting not in ACTING:
            raise InvalidInput(f"acting must be one of {ACTING}; received {acting!r}")
        if acting == "cached":
            if not hasattr(model, "initial_cache"):
                raise InvalidInput(
                    "acting 'cached' needs a model that keeps keys and values; received "
                    f"{model.name}"
                )
            model.initial_cache(1)  # raises where a window is too short
        self.model, self.scaling, self.acting = model, scaling, acting
        self._from_window = tf.function(self._window_action, reduce_retracing=True)
        self._from_cache = tf.function(self._cached_action, reduce_retracing=True)
        self._choose = {"recompute": self._recompute, "cached": self._read_newest}[acting]

    def begin(self, target_returns: Sequence[float] | np.ndarray) -> None:
        """Begins an episode for each of the returns `(E,)` that are to be reached."""
        model = self.model
        self._steps = LastSteps(
            target_returns, model.context_length, model.action_size, self.scaling.condition
        )
        self._cache: Any = None
        self._action: Any = None

    def act(self, observations: np.ndarray, rewards: np.ndarray | None = None) -> np.ndarray:
        """The actions of the next step.

        Args:
            observations: `(E, ...)`, raw.
            rewards: `(E,)`, what the actions before earned; not looked at in a first step.

        Returns:
            `(E,)` or `(E, A)`, as the environment takes them.
        """
        self._steps.add(observations, rewards)
        action = self._choose()
        self._steps.choose(action)
        return action

    def keep(self, rows: np.ndarray) -> None:
        """Goes on with some of the episodes, by mask or indices; the others have ended."""
        self._steps.keep(rows)
        if self._cache is not None:
            indices = np.arange(len(rows))[rows] if np.asarray(rows).dtype == bool else rows
            self._action = self._action[rows]
            self._cache = keras.tree.map_structure(
                lambda tensor: ops.take(tensor, indices, axis=0), self._cache
            )

    def _recompute(self) -> np.ndarray:
        return self._from_window(self._steps.window()).numpy()

    def _window_action(self, window):
        prediction = self.model(self.scaling.window(window), last_action=True)
        return self.scaling.action(prediction["action"])

    def _read_newest(self) -> np.ndarray:
        window = self._steps.window(length=1)
        if self._cache is None:
            self._cache = self.model.initial_cache(len(self._steps))
        else:  # an action is read with the step after it
            window["actions"][:, 0] = self._action
        action, self._cache = self._from_cache(window, self._cache)
        self._action = action_vectors(action.numpy(), self.model.action_size)
        return action.numpy()

    def _cached_action(self, window, cache):
        prediction, cache = self.model.step(self.scaling.window(window), cache)
        return self.scaling.action(prediction), cache


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
        seeds: of the environments' resets.

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
    policy.begin(np.full(len(envs), float(target)))
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
