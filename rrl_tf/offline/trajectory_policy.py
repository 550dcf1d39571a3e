"""Define `TrajectoryPolicy` and `play_episodes`, which act with a Decision Transformer."""

from __future__ import annotations

import reprlib
from collections.abc import Sequence

import gymnasium
import keras
import numpy as np
import tensorflow as tf

from rrl_tf._arguments import array_of, finite, number_from, random_generator
from rrl_tf.envs.checks import ArrayCheck, CheckedEnv
from rrl_tf.errors import InvalidInput
from rrl_tf.offline.scaling import Scaling
from rrl_tf.offline.windows import LastSteps

_REWARD = ArrayCheck("the reward", (), "float64", any_shape=True)


class TrajectoryPolicy:
    """Policy that plays several episodes at the same time and reads the last K steps of each.

    The model reads the whole window at every step. It does not cache keys and values, because in
    all blocks except the first they depend on steps that have left the window.

    Args:
        model: `DecisionTransformer` or `BehaviorCloning`.
        scaling: `Scaling` of the training data.
        exploration: for continuous actions, the standard deviation of normal noise, where 1 is half
            the interval between the bounds. For discrete actions, the temperature of softmax
            sampling. 0 means the greedy action.

    Raises:
        InvalidInput: if `exploration` is negative.

    Example:
        One episode is a batch of 1:

        >>> from rrl_tf.models import DecisionTransformer
        >>> model = DecisionTransformer.from_preset("fast", state_size=3, action_size=1)
        >>> model.build()
        >>> scaling = Scaling(np.zeros(3), np.ones(3), 1000.0, np.full(1, -2.0), np.full(1, 2.0))
        >>> policy, env = TrajectoryPolicy(model, scaling), gymnasium.make("Pendulum-v1")
        >>> observation, _ = env.reset(seed=0)
        >>> policy.begin(target_returns=[-150.0])
        >>> action = policy.act(observation[None])[0]  # there is no reward yet
        >>> observation, reward, *_ = env.step(action)
        >>> policy.act(observation[None], [reward]).shape
        (1, 1)
    """

    def __init__(self, model: keras.Model, scaling: Scaling, exploration: float = 0.0) -> None:
        self.model, self.scaling = model, scaling
        self.exploration = number_from("exploration", exploration, 0)
        self._act = tf.function(self._actions, reduce_retracing=True)
        self._steps: LastSteps | None = None

    def begin(
        self, target_returns: Sequence[float] | np.ndarray, seed: int | Sequence[int] = 0
    ) -> None:
        """Begin one episode per target return.

        Args:
            target_returns: `(E,)`.
            seed: seed of the exploration.

        Raises:
            InvalidInput: if the targets are not a list of finite numbers, or the seed is invalid.
        """
        targets = finite("target_returns", array_of("target_returns", target_returns, "float64"))
        if targets.ndim != 1 or not targets.size:
            raise InvalidInput(
                "target_returns must be a list with one return per episode, such as [-150.0]; "
                f"received {reprlib.repr(target_returns)}"
            )
        model = self.model
        self._rng = random_generator(seed)
        self._steps = LastSteps(
            targets, model.context_length, model.action_size, self.scaling.condition
        )
        self._observation_check: ArrayCheck | None = None
        self._count = 0

    def act(self, observations: np.ndarray, rewards: np.ndarray | None = None) -> np.ndarray:
        """Return the actions of the next step.

        Args:
            observations: current raw observations, `(E, S)` or `(E, ...)`. Use
                `observation[None]` for a single environment.
            rewards: `(E,)`, rewards of the previous actions; ignored in the first step.

        Returns:
            `(E,)`, or `(E, A)` with the dtype of integer bounds, otherwise float32.

        Raises:
            InvalidInput: if `begin` was not called; if the number of observations or rewards is not
                the number of running episodes; or if a value is not finite, or has another shape or
                dtype than in the first step. The policy is then unchanged.
        """
        steps = self._started()
        check = self._observation_check or self._check_of(observations)
        observations = check.batch(observations, len(steps), self._place)
        if self._count and self.scaling.condition == "return_to_go":
            rewards = _REWARD.batch(rewards, len(steps), self._place)
        steps.add(observations, rewards)
        actions = self._act(steps.window(), self._noise(len(observations))).numpy()
        steps.choose(actions)
        self._observation_check, self._count = check, self._count + 1
        low = self.scaling.action_low
        if low is not None and np.asarray(low).dtype.kind in "iu":
            return actions.astype(low.dtype)
        return actions

    def keep(self, rows: np.ndarray) -> None:
        """Keep the running episodes, given as a bool mask or as indices, and drop the others."""
        self._started().keep(rows)

    def _started(self):
        if self._steps is None:
            raise InvalidInput(
                "`begin` must be called with one target return per episode before `act` or `keep`; "
                "received no call of `begin`"
            )
        return self._steps

    def _check_of(self, observations):
        """Return the check of raw observations like those of the first step."""
        numbers = array_of("observations", observations, "float64")
        dtype = np.asarray(observations).dtype
        if self.scaling.preprocessor is None:  # vectors of integers are scaled like floats
            return ArrayCheck(
                "the observation", (self.scaling.state_size,), np.result_type(dtype, "float32")
            )
        return ArrayCheck("the observation", numbers.shape[1:], dtype)

    def _place(self, i):
        return f"episode {i} of the running ones in step {self._count}"

    def _noise(self, count):
        """Return the noise to add to predictions.

        For discrete actions it is Gumbel noise: the argmax of noisy logits is a softmax sample.
        """
        shape = (count, self.model.action_size)
        if not self.exploration:
            return np.zeros(shape, "float32")
        sample = self._rng.gumbel if self.model.discrete else self._rng.normal
        return (self.exploration * sample(size=shape)).astype("float32")

    def _actions(self, window, noise):
        prediction = self.model(self.scaling.window(window), last_action=True)
        return self.scaling.action(prediction["action"] + noise)


def play_episodes(
    policy: TrajectoryPolicy,
    envs: Sequence[gymnasium.Env],
    target_return: float | None,
    seeds: Sequence[int],
) -> dict[str, np.ndarray]:
    """Play one episode in each environment, all at the same time.

    Args:
        policy: `TrajectoryPolicy`.
        envs: E environments.
        target_return: target return of every episode. None means that of the policy's scaling.
        seeds: one seed per environment. The list of seeds also seeds the exploration.

    Returns:
        Dict of arrays `(E,)`: `"return"`, `"length"`, and `"success"` if the environments have this
        entry in their last `info`.

    Raises:
        InvalidInput: if there are no environments, if the number of seeds differs, or if there is
            no target return. It is also raised if an environment returns a value that is not
            finite, or whose shape or dtype is not the declared one.

    Example:
        >>> play_episodes(policy, [gym.make("Walker2d-v5")], 4000.0, [0])  # doctest: +SKIP
    """
    if not isinstance(envs, Sequence) or not envs or np.shape(seeds) != (len(envs),):
        raise InvalidInput(
            "`envs` must be a list of environments and `seeds` one seed per environment; received "
            f"{reprlib.repr(envs)} and {reprlib.repr(seeds)}"
        )
    envs = [CheckedEnv(env) for env in envs]
    target = policy.scaling.target_return if target_return is None else target_return
    if target is None:
        raise InvalidInput(
            "`target_return` must be a number if the scaling has none; received None"
        )
    observations = np.stack([env.reset(seed=seed)[0] for env, seed in zip(envs, seeds)])
    total, length = np.zeros(len(envs)), np.zeros(len(envs), int)
    success = np.full(len(envs), np.nan)
    rewards, running = np.zeros(len(envs)), np.arange(len(envs))
    policy.begin(np.full(len(envs), float(target)), seeds)
    while len(running):
        actions = policy.act(observations, rewards)
        results = [envs[i].step(action) for i, action in zip(running.tolist(), actions)]
        observations = np.stack([result[0] for result in results])
        rewards = np.array([result[1] for result in results], "float64")
        ended = np.array([result[2] or result[3] for result in results])
        total[running] += rewards
        length[running] += 1
        for i in np.flatnonzero(ended):
            success[running[i]] = results[i][4].get("success", np.nan)
        if ended.any():
            policy.keep(~ended)
            observations, rewards, running = observations[~ended], rewards[~ended], running[~ended]
    played = {"return": total, "length": length}
    return played if np.isnan(success).any() else {**played, "success": success}
