"""Acting with a Decision Transformer: what it looks at, kept from step to step."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

import keras
import numpy as np
import tensorflow as tf

from rrl_tf._arguments import array_of, finite, number_from, random_generator
from rrl_tf.errors import InvalidInput
from rrl_tf.offline.windows import LastSteps

if TYPE_CHECKING:
    import gymnasium

    from rrl_tf.offline.scaling import Scaling


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

    One episode, so that everything is a batch of 1:

    >>> import gymnasium
    >>> from rrl_tf.offline import Scaling
    >>> from rrl_tf.models import DecisionTransformer
    >>> model = DecisionTransformer.from_preset("fast", state_size=3, action_size=1)
    >>> model.build()
    >>> scaling = Scaling(np.zeros(3), np.ones(3), 1000.0, np.full(1, -2.0), np.full(1, 2.0))
    >>> policy, env = TrajectoryPolicy(model, scaling), gymnasium.make("Pendulum-v1")
    >>> observation, _ = env.reset(seed=0)
    >>> policy.begin(target_returns=[-150.0])
    >>> action = policy.act(observation[None])[0]  # nothing has been earned yet
    >>> observation, reward, *_ = env.step(action)
    >>> policy.act(observation[None], [reward]).shape
    (1, 1)
    """

    def __init__(self, model: keras.Model, scaling: Scaling, exploration: float = 0.0) -> None:
        self.model, self.scaling = model, scaling
        self.exploration = number_from("exploration", exploration, 0)
        self._choose = tf.function(self._action_of, reduce_retracing=True)
        self._steps: LastSteps | None = None

    def begin(
        self, target_returns: Sequence[float] | np.ndarray, seed: int | Sequence[int] = 0
    ) -> None:
        """Begins an episode for each of the returns `(E,)` that are to be reached.

        Args:
            target_returns: these; of a single episode, a list of one number.
            seed: of the exploration.

        Raises:
            InvalidInput: if they are not so many numbers, or the seed is none.
        """
        targets = finite("target_returns", array_of("target_returns", target_returns, "float64"))
        if targets.ndim != 1 or not targets.size:
            raise InvalidInput(
                "target_returns must be a list of a return for each episode, as [-150.0]; "
                f"received {reprlib.repr(target_returns)}"
            )
        model = self.model
        self._rng = random_generator(seed)
        self._steps = LastSteps(
            targets, model.context_length, model.action_size, self.scaling.condition
        )
        self._shape: tuple[int, ...] | None = None  # of an observation, known from the first step

    def act(self, observations: np.ndarray, rewards: np.ndarray | None = None) -> np.ndarray:
        """The actions of the next step.

        Args:
            observations: what the environments show now, raw: `(E, S)` of vectors, `(E, ...)` of
                what the scaling prepares. A single environment's is `observation[None]`.
            rewards: `(E,)`, what the actions before earned; in the first step after `begin`, there
                are none, and whatever is given is not looked at.

        Returns:
            `(E,)` or `(E, A)`, as the environments take them.

        Raises:
            InvalidInput: if nothing has begun, or there is not an observation and a reward for each
                of the episodes that go on. The window stays as it was.
        """
        steps, observations = self._under_way(), np.asarray(observations)
        self._check_shapes(len(steps), observations, rewards)
        steps.add(observations, rewards)
        action = self._choose(steps.window(), self._noise(len(observations))).numpy()
        steps.choose(action)
        self._shape = observations.shape[1:]
        return action

    def keep(self, rows: np.ndarray) -> None:
        """Goes on with some of the episodes, by mask or indices; the others have ended."""
        self._under_way().keep(rows)

    def _under_way(self):
        if self._steps is None:
            raise InvalidInput(
                "episodes must begin before they are played: call begin with a return for each of "
                "them; received none"
            )
        return self._steps

    def _check_shapes(self, count, observations, rewards):
        """Compares sizes and nothing else: acting takes half a millisecond."""
        shape, scaling = observations.shape, self.scaling
        if self._shape is not None:
            expected, fits = (count, *self._shape), shape[1:] == self._shape
        elif scaling.prepare is None:
            size = scaling.state_size
            expected, fits = (count, size), math.prod(shape[1:]) == size
        else:  # which tells no shape
            expected, fits = (count, ...), True
        if not shape or shape[0] != count or not fits:
            expected = str(expected).replace("Ellipsis", "...")
            raise InvalidInput(
                f"observations must be {expected}, one for each episode that goes on; received "
                f"the shape {shape}"
            )
        is_first, looks = self._shape is None, scaling.condition == "return_to_go"
        if not is_first and looks and np.shape(rewards) != (count,):
            raise InvalidInput(
                f"rewards must be ({count},), what each episode's last action earned; received "
                f"{reprlib.repr(rewards)}"
            )

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
    _check_seeds(envs, seeds)
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


def _check_seeds(envs, seeds):
    """Raises `InvalidInput` unless there are environments, and as many seeds."""
    try:
        counts = len(envs), len(seeds)
    except TypeError:  # one of them, in place of a list
        received = f"{reprlib.repr(envs)} and {reprlib.repr(seeds)}"
    else:
        if counts[0] and counts[0] == counts[1]:
            return
        received = f"{counts[0]} environments and {counts[1]} seeds"
    raise InvalidInput(
        "play takes a list of environments and a seed for each environment, as [env] and [0]; "
        f"received {received}"
    )
