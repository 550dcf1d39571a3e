"""Define `Windows`, which samples windows of recorded steps, and `LastSteps`, for acting.

A window contains K steps of raw values, the newest last. If an episode has had fewer than K steps,
the window starts with zeros, where `mask` is 0; elsewhere, `mask` is 1. While an agent acts, the
action of the newest step is not known yet and is zero. This has no effect, because the prediction
of an action does not depend on the action of the same step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from rrl_tf._arguments import number_from, one_of, positive_int
from rrl_tf.errors import InvalidInput
from rrl_tf.offline.episodes import OfflineData
from rrl_tf.offline.scaling import CONDITIONS, Scaling, largest_reward_sum, within_rounding

if TYPE_CHECKING:
    import tensorflow as tf

SAMPLING = ("steps", "returns", "episodes")

Window = dict[str, np.ndarray]
"""`"states"` `(B, K, ...)`, `"actions"` `(B, K, A)`, `"returns_to_go"` `(B, K, 1)`, `"timesteps"`
`(B, K)` int32 and `"mask"` `(B, K)` float32, which is 0 for padding and otherwise 1."""


class Windows:
    """Sampler of windows of recorded episodes.

    A batch depends only on the seed and the batch number, so a resumed run gets the same batches as
    a run that was not interrupted.

    Args:
        data: `OfflineData`; its steps are copied.
        context_length: K, number of steps in a window.
        sampling: how the last step of a window is sampled.

            - `"steps"`: all steps are equally likely, so long episodes are sampled more often.
            - `"returns"`: the probability of a step increases linearly with the return of its
              episode, from 0 for the worst episode (trajectory weighting).
            - `"episodes"`: all episodes are equally likely. Windows have no padding if the episode
              has at least K steps (min-decision-transformer).
        start_fraction: fraction of the windows that end within the first `start_steps` steps of
            their episode. Use it because every episode starts there, but few recorded steps are
            there.
        start_steps: see `start_fraction`. None means 2 K.
        condition: value of `"returns_to_go"`: the `"return_to_go"` of the step, or the `"return"`
            of its episode.
        return_power: exponent of the probabilities with `sampling="returns"`.

    Raises:
        InvalidInput: for an argument out of range.

    Example:
        >>> from gymnasium.spaces import Discrete
        >>> from rrl_tf.offline import Episode
        >>> episode = Episode(np.zeros((8, 4)), [0] * 7, [1.0] * 7, True, truncated=False)
        >>> windows = Windows(OfflineData("mine", (episode,), Discrete(2), "none"), 5)
        >>> batch = windows.batch(64, seed=0)
        >>> batch["states"].shape, batch["actions"].shape
        ((64, 5, 4), (64, 5, 2))
        >>> windows.reweight(np.eye(7)[2])  # all windows end with the third step from now on
        >>> windows.batch(1, seed=0)["mask"].tolist()
        [[0.0, 0.0, 1.0, 1.0, 1.0]]

    References:
        - [Hong et al., 2023](https://arxiv.org/abs/2306.13085), trajectory weighting
    """

    def __init__(
        self,
        data: OfflineData,
        context_length: int,
        sampling: str = "steps",
        start_fraction: float = 0.0,
        start_steps: int | None = None,
        condition: str = "return_to_go",
        return_power: float = 1.0,
    ) -> None:
        self.data, self.context_length = data, positive_int("context_length", context_length)
        one_of("sampling", sampling, SAMPLING)
        self._start_fraction = number_from("start_fraction", start_fraction, 0, 1)
        start_steps = 2 * context_length if start_steps is None else start_steps
        self._start_steps = positive_int("start_steps", start_steps)
        self._steps = _all_steps(data, one_of("condition", condition, CONDITIONS))
        self._lengths = np.array([len(episode) for episode in data.episodes])
        self._first_steps = np.cumsum(self._lengths) - self._lengths
        power = number_from("return_power", return_power, 0)
        self._set_weights(self._step_weights(sampling, power))

    def _step_weights(self, sampling: str, return_power: float) -> np.ndarray:
        """Return the relative probability that a window ends with each step, `(steps,)`."""
        if sampling == "steps":
            return np.ones(self.data.steps)
        if sampling == "returns":
            returns = self.data.returns()
            low, high = returns.min(), returns.max()
            is_equal = within_rounding(high - low, largest_reward_sum(self.data))
            scaled = np.ones_like(returns) if is_equal else (returns - low) / (high - low)
            return np.repeat(scaled**return_power, self._lengths)
        skipped = np.minimum(self._lengths, self.context_length) - 1  # these windows have padding
        weights = np.repeat(1 / (self._lengths - skipped), self._lengths)
        return np.where(self._timesteps() < np.repeat(skipped, self._lengths), 0.0, weights)

    def _timesteps(self) -> np.ndarray:
        """Return the time step of each step in its episode, `(steps,)`."""
        return np.arange(self.data.steps) - np.repeat(self._first_steps, self._lengths)

    def reweight(self, factors: np.ndarray) -> None:
        """Multiply each step's relative probability of ending a window by its own factor.

        Args:
            factors: `(steps,)` non-negative numbers, such as those of
                `rrl_tf.offline.advantages.advantage_weights`.

        Raises:
            InvalidInput: if the number of factors is wrong, if a factor is negative or not finite,
                or if the sum of the new weights is 0 or overflows.
        """
        factors = np.asarray(factors, "float64")
        if factors.shape != (self.data.steps,):
            raise InvalidInput(
                f"`factors` must have one number per step, {(self.data.steps,)}; received the "
                f"shape {factors.shape}"
            )
        with np.errstate(over="ignore", invalid="ignore"):
            weights = self._weights * factors
            total = weights.sum()
        if not (factors >= 0).all() or not 0 < total < np.inf:
            raise InvalidInput(
                "`factors` must be at least 0, and the sum of their products with the current "
                "weights must be positive and finite; received factors from "
                f"{np.min(factors):.3g} to {np.max(factors):.3g}"
            )
        self._set_weights(weights)

    def _set_weights(self, weights: np.ndarray) -> None:
        self._weights, self._ends = weights, np.cumsum(weights)
        self._start_ends = np.cumsum(self._start_weights(weights))

    def _start_weights(self, weights: np.ndarray) -> np.ndarray:
        """Return weights where the total weight of each episode is moved to its first steps."""
        is_start = self._timesteps() < self._start_steps
        starts = np.where(is_start, weights, 0.0)
        if not starts.any():  # with sampling="episodes", all windows may end after these steps
            return weights
        of_episode, of_start = (np.add.reduceat(w, self._first_steps) for w in (weights, starts))
        scale = np.divide(of_episode, of_start, out=np.zeros_like(of_start), where=of_start > 0)
        return starts * np.repeat(scale, self._lengths)

    def batch(self, size: int, seed: int | Sequence[int]) -> Window:
        """Sample `size` windows of raw values; discrete actions are one-hot."""
        rng = np.random.default_rng(seed)
        place, is_start = rng.random(size), rng.random(size) < self._start_fraction
        start, end = (
            np.searchsorted(ends, place * ends[-1], side="right")
            for ends in (self._start_ends, self._ends)
        )
        step = np.where(is_start, start, end)
        episode = np.searchsorted(self._first_steps, step, side="right") - 1
        return self.windows(episode, step - self._first_steps[episode])

    def windows(
        self, episodes: Sequence[int] | np.ndarray, last: Sequence[int] | np.ndarray
    ) -> Window:
        """Return the windows that end with the time steps `last` of the given episodes."""
        begins = self._first_steps[np.asarray(episodes)]
        timesteps = np.asarray(last)[:, None] + np.arange(1 - self.context_length, 1)
        is_real = timesteps >= 0
        timesteps = np.maximum(timesteps, 0)
        window = {name: steps[begins[:, None] + timesteps] for name, steps in self._steps.items()}
        for values in window.values():
            values[~is_real] = 0
        return {
            **window,
            "timesteps": timesteps.astype("int32"),
            "mask": is_real.astype("float32"),
        }

    def dataset(
        self, size: int, scaling: Scaling, seed: int = 0, first: int = 0, output: str = "action"
    ) -> tf.data.Dataset:
        """Return an endless `tf.data.Dataset` of `(inputs, targets, weights)` for `fit`.

        Args:
            size: B, number of windows in a batch.
            scaling: scaling of the windows.
            seed: seed of the sampling.
            first: number of the first batch. Set it to the number of completed updates to resume.
            output: name of the network output that predicts actions.
        """
        return windows_dataset(lambda: (self, first), size, scaling, seed, output)


def windows_dataset(
    current: Callable[[], tuple[Windows, int]],
    size: int,
    scaling: Scaling,
    seed: int = 0,
    output: str = "action",
) -> tf.data.Dataset:
    """Return a dataset like `Windows.dataset`, whose windows may change between iterators.

    A run that repeatedly creates new windows must use a single dataset, because TensorFlow never
    frees the generator of a dataset.

    Args:
        current: function that returns a `Windows` object and the number of the first batch. It is
            called once for each iterator.
        size, scaling, seed, output: see `Windows.dataset`.
    """
    import tensorflow as tf  # sampling windows does not need TensorFlow

    signature = {
        name: tf.TensorSpec((size, *values.shape[1:]), values.dtype)
        for name, values in current()[0].batch(1, 0).items()
    }

    def batches():
        windows, number = current()
        while True:
            yield windows.batch(size, (seed, number))
            number += 1

    def fit_arguments(window):
        inputs = scaling.window(window)
        return inputs, {output: inputs["actions"]}, {output: inputs["mask"]}

    dataset = tf.data.Dataset.from_generator(batches, output_signature=signature)
    return dataset.map(fit_arguments, num_parallel_calls=1).prefetch(4)


class LastSteps:
    """The last K steps of E episodes that an agent plays at the same time.

    Args:
        target_returns: `(E,)`, one target return per episode.
        context_length: K, number of steps in a window.
        action_size: A, number of discrete actions or size of a continuous action.
        condition: `"return_to_go"` subtracts each reward from the target return; `"return"` does
            not.

    Example:
        >>> steps = LastSteps([10.0, 20.0], context_length=3, action_size=2)
        >>> for rewards in (None, [1.0, 2.0]):
        ...     steps.add(np.zeros((2, 4), "float32"), rewards)
        ...     steps.choose(np.array([1, 0]))
        >>> steps.window()["returns_to_go"][..., 0].tolist()
        [[0.0, 10.0, 9.0], [0.0, 20.0, 18.0]]
    """

    def __init__(
        self,
        target_returns: Sequence[float] | np.ndarray,
        context_length: int,
        action_size: int,
        condition: str = "return_to_go",
    ) -> None:
        self.context_length, self.action_size = context_length, action_size
        self.condition = condition
        self._returns = np.array(target_returns, "float64")
        self._count = 0
        self._window: Window = {}

    def __len__(self) -> int:
        return len(self._returns)

    def add(self, observations: np.ndarray, rewards: np.ndarray | None = None) -> None:
        """Add a step, whose actions `choose` sets later.

        Args:
            observations: `(E, ...)`, raw.
            rewards: `(E,)` rewards of the previous actions; ignored in the first step.
        """
        if self._count and self.condition == "return_to_go":
            self._returns = self._returns - np.asarray(rewards)
        size = len(self)
        step = {
            "states": np.asarray(observations),
            "actions": np.zeros((size, self.action_size), "float32"),
            "returns_to_go": self._returns.astype("float32")[:, None],
            "timesteps": np.full(size, self._count, "int32"),
            "mask": np.ones(size, "float32"),
        }
        for name, values in step.items():
            if not self._count:
                shape = (size, self.context_length, *values.shape[1:])
                self._window[name] = np.zeros(shape, values.dtype)
            earlier = self._window[name][:, 1:]
            self._window[name] = np.concatenate([earlier, values[:, None]], axis=1)
        self._count += 1

    def choose(self, actions: np.ndarray) -> None:
        """Set the actions of the newest step, `(E,)` integers or `(E, A)` floats."""
        self._window["actions"][:, -1] = action_vectors(actions, self.action_size)

    def window(self) -> Window:
        """Return the windows that end with the newest step."""
        return dict(self._window)

    def keep(self, rows: np.ndarray) -> None:
        """Keep the running episodes, given as a bool mask or as indices, and drop the others."""
        self._returns = self._returns[rows]
        self._window = {name: values[rows] for name, values in self._window.items()}


def action_vectors(actions: np.ndarray, action_size: int) -> np.ndarray:
    """Return actions as vectors: integers become one-hot vectors, floats are unchanged.

    Args:
        actions: `(...)` integers below A, or `(..., A)` floats.
        action_size: A.

    Returns:
        `(..., A)`.

    Example:
        >>> action_vectors(np.array([2, 0]), 3).tolist()
        [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]
    """
    if actions.dtype.kind not in "iu":
        return actions
    vectors = np.zeros((*actions.shape, action_size), "float32")
    np.put_along_axis(vectors, actions[..., None].astype("int64"), 1.0, axis=-1)
    return vectors


def _all_steps(data: OfflineData, condition: str) -> dict[str, np.ndarray]:
    """Return a dict name in a window -> values of all recorded steps, `(steps, ...)`."""
    actions = np.concatenate([episode.actions for episode in data.episodes])
    returns = np.concatenate(
        [
            np.full(len(episode), episode.total)
            if condition == "return"
            else episode.returns_to_go()
            for episode in data.episodes
        ]
    )
    return {
        "states": np.concatenate([episode.observations[:-1] for episode in data.episodes]),
        "actions": action_vectors(actions, data.action_size).astype("float32"),
        "returns_to_go": returns.astype("float32")[:, None],
    }
