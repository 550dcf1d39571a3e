"""Acting with a Decision Transformer: what it looks at, kept from step to step."""

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from rrl_tf.errors import InvalidInput

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

    Example:

    >>> policy = TrajectoryPolicy(model, scaling)  # doctest: +SKIP
    >>> policy.begin(target_returns=np.full(100, 0.95))  # doctest: +SKIP
    >>> actions = policy.act(observations, rewards)  # doctest: +SKIP
    """

    def __init__(self, model, scaling, acting="recompute"):
        if acting not in ACTING:
            raise InvalidInput(f"acting must be one of {ACTING}; received {acting!r}")
        self._model, self._scaling, self._acting = model, scaling, acting
        self._from_window = tf.function(self._window_action, reduce_retracing=True)
        self._from_cache = tf.function(self._cached_action, reduce_retracing=True)

    def begin(self, target_returns):
        """Begins an episode for each of the returns `(E,)` that are to be reached."""
        self._returns = np.array(target_returns, "float64")
        self._steps = np.zeros(len(self._returns), "int32")
        self._window = self._action = self._cache = None

    def act(self, observations, rewards=None):
        """The actions of the next step.

        Args:
            observations: `(E, ...)`, raw.
            rewards: `(E,)`, what the actions before earned; not looked at in a first step.

        Returns:
            `(E,)` or `(E, A)`, as the environment takes them.
        """
        observations = np.asarray(observations)
        if self._action is None:
            self._action = np.zeros((len(self._steps), self._model.action_size), "float32")
        else:
            self._returns -= np.asarray(rewards)
        step = {
            "states": observations,
            "returns_to_go": self._returns[:, None].astype("float32"),
            "timesteps": self._steps,
        }
        action = (self._step_cached if self._acting == "cached" else self._step_window)(step)
        discrete = action.ndim == 1
        self._action = (
            np.eye(self._model.action_size, dtype="float32")[action] if discrete else action
        )
        self._steps = self._steps + 1
        return action

    def keep(self, rows):
        """Goes on with some of the episodes, by mask or indices; the others have ended."""
        self._returns, self._steps = self._returns[rows], self._steps[rows]
        self._action = self._action[rows]
        if self._window is not None:
            self._window = {name: values[rows] for name, values in self._window.items()}
        if self._cache is not None:
            indices = np.arange(len(rows))[rows] if np.asarray(rows).dtype == bool else rows
            self._cache = keras.tree.map_structure(
                lambda tensor: ops.take(tensor, indices, axis=0), self._cache
            )

    def _step_window(self, step):
        if self._window is None:
            shapes = {**step, "actions": self._action, "mask": np.ones(len(self._steps), "float32")}
            self._window = {
                name: np.zeros((len(v), self._model.context_length, *v.shape[1:]), v.dtype)
                for name, v in shapes.items()
            }
        else:
            self._window["actions"][:, -1] = self._action
        for name, values in self._window.items():
            values[:, :-1] = values[:, 1:]
            values[:, -1] = step.get(name, 1.0 if name == "mask" else 0.0)
        return self._from_window(self._window).numpy()

    def _window_action(self, window):
        prediction = self._model(self._scaling.window(window), last_action=True)
        return self._scaling.action(prediction["action"])

    def _step_cached(self, step):
        if self._cache is None:
            self._cache = self._model.initial_cache(len(self._steps))
        inputs = {name: values[:, None] for name, values in step.items()}
        inputs["actions"] = self._action[:, None]
        inputs["mask"] = np.ones((len(self._steps), 1), "float32")
        action, self._cache = self._from_cache(inputs, self._cache)
        return action.numpy()

    def _cached_action(self, inputs, cache):
        prediction, cache = self._model.step(self._scaling.window(inputs), cache)
        return self._scaling.action(prediction), cache


def play_episodes(policy, envs, target_return, seeds):
    """Plays one episode in each environment, all of them side by side.

    Args:
        policy: `TrajectoryPolicy`.
        envs: list of Gymnasium environments.
        target_return: float, the return that is asked for.
        seeds: list of ints, of the environments' resets.

    Returns:
        Dict of arrays `(E,)`: `"return"`, `"length"`, and `"success"` where the environment reports
        it.

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
    policy.begin(np.full(len(envs), float(target_return)))
    while len(running):
        actions = policy.act(observations, rewards)
        results = [envs[i].step(action) for i, action in zip(running, actions)]
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
