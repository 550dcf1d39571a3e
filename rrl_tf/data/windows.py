"""Windows of episodes: drawn, prepared for a network, and passed on by tf.data."""

import dataclasses
from collections.abc import Callable

import numpy as np
import tensorflow as tf
from keras import ops

from rrl_tf.errors import InvalidInput

SAMPLING = ("steps", "returns", "episodes")


class Windows:
    """Draws windows of K steps, padded in front where an episode has only just begun.

    With `sampling="steps"` every step of the data is equally often the last of a window, so that
    longer episodes are drawn more often and the network meets the beginnings of episodes as it will
    when it acts. With `"returns"` a step counts for more the higher its episode's return, from
    nothing in the data's worst episode to most in its best: the network sees low returns, yet
    learns most from what it will be asked for (trajectory weighting, Hong et al., 2023). With
    `"episodes"` all episodes are equally likely, and windows are full wherever
    the episode is long enough (min-decision-transformer).

    What is drawn depends on the seed and on the batch's number alone, so that a run which resumes
    goes on with the batches it would have had.

    Args:
        data: `OfflineData`; its arrays are not copied.
        context_length: K.
        sampling: `"steps"`, `"returns"` or `"episodes"`.
        starts: share of the windows that end within the first 2 K steps of their episode. Every
            episode that is played begins there, with nothing but the return to go by, and few
            steps of the data show how.

    References:
        - [Hong et al., 2023](https://arxiv.org/abs/2306.13085), for `"returns"`

    Example:

    >>> windows = Windows(load_episodes("minari:doorkey/mixed-v0"), 20)  # doctest: +SKIP
    >>> batch = windows.batch(64, seed=0)  # doctest: +SKIP
    """

    def __init__(self, data, context_length, sampling="steps", starts=0.0):
        if sampling not in SAMPLING:
            raise InvalidInput(f"sampling must be one of {SAMPLING}; received {sampling!r}")
        if context_length < 1:
            raise InvalidInput(f"context_length must be positive; received {context_length!r}")
        if not 0 <= starts <= 1:
            raise InvalidInput(f"starts must be a share from 0 to 1; received {starts!r}")
        self._data, self._length, self._sampling = data, int(context_length), sampling
        self._starts = starts
        self._returns = [episode.returns_to_go().astype("float32") for episode in data.episodes]
        self._lengths = np.array([len(episode) for episode in data.episodes])
        weights = self._lengths.astype("float64")
        if sampling == "returns":
            weights *= _shares(data.returns())
        self._ends = np.cumsum(weights)

    def batch(self, size, seed):
        """`size` windows, as a dict of arrays.

        Args:
            size: B.
            seed: int, or a sequence of them.

        Returns:
            Dict of raw values: `"states"` `(B, K, ...)`, `"actions"` `(B, K, A)` (one-hot where
            they are discrete), `"returns_to_go"` `(B, K, 1)`, `"timesteps"` `(B, K)` int32 and
            `"mask"` `(B, K)` float32, 1 for real steps.
        """
        rng = np.random.default_rng(seed)
        if self._sampling == "episodes":
            episode = rng.integers(len(self._lengths), size=size)
        else:
            place = rng.random(size) * self._ends[-1]
            episode = np.searchsorted(self._ends, place, side="right")
        lengths = self._lengths[episode]
        # With "episodes", from the first step that a full window ends at.
        first = np.minimum(lengths, self._length) - 1 if self._sampling == "episodes" else 0
        last = rng.integers(first, lengths)
        early = rng.integers(first, np.minimum(lengths, 2 * self._length))
        last = np.where(rng.random(size) < self._starts, early, last)
        return self.windows(episode, last)

    def windows(self, episodes, last):
        """The windows of given episodes that end with given steps, as `batch` returns them."""
        first = self._data.episodes[0]
        length, size = self._length, len(episodes)
        states = first.observations
        window = {
            "states": np.zeros((size, length, *states.shape[1:]), states.dtype),
            "actions": np.zeros((size, length, self._data.action_size), "float32"),
            "returns_to_go": np.zeros((size, length, 1), "float32"),
            "timesteps": np.zeros((size, length), "int32"),
            "mask": np.zeros((size, length), "float32"),
        }
        one_hot = np.eye(self._data.action_size, dtype="float32") if self._data.discrete else None
        for row, (i, end) in enumerate(zip(episodes, last)):
            episode, begin = self._data.episodes[i], max(0, end + 1 - length)
            steps, place = slice(begin, end + 1), slice(length - (end + 1 - begin), length)
            actions = episode.actions[steps]
            window["states"][row, place] = episode.observations[steps]
            window["actions"][row, place] = actions if one_hot is None else one_hot[actions]
            window["returns_to_go"][row, place, 0] = self._returns[i][steps]
            window["timesteps"][row, place] = np.arange(begin, end + 1)
            window["mask"][row, place] = 1.0
        return window

    def dataset(self, size, scaling, seed=0, first=0):
        """An endless `tf.data.Dataset` of `(inputs, targets, weights)` for `fit`.

        Args:
            size: B.
            scaling: `Scaling` that prepares the windows.
            seed: int.
            first: number of the first batch: the updates that were made before.
        """
        example = self.batch(1, 0)
        signature = {
            name: tf.TensorSpec((size, *values.shape[1:]), values.dtype)
            for name, values in example.items()
        }

        def batches():
            number = first
            while True:
                yield self.batch(size, (seed, number))
                number += 1

        def prepare(window):
            inputs = scaling.window(window)
            return inputs, {"action": inputs["actions"]}, {"action": inputs["mask"]}

        dataset = tf.data.Dataset.from_generator(batches, output_signature=signature)
        return dataset.map(prepare, num_parallel_calls=1).prefetch(4)


def _shares(returns):
    """Where between the worst and the best every return lies, 0 to 1; all 1 if none is better."""
    low, high = returns.min(), returns.max()
    return (returns - low) / (high - low) if high > low else np.ones_like(returns)


@dataclasses.dataclass(frozen=True)
class Scaling:
    """How raw values become a network's input and its output an action; `keras.ops` only.

    Attributes:
        state_offset, state_factor: `(S,)`; a state becomes `(state - offset) * factor`.
        return_scale: what returns-to-go are divided by.
        action_low, action_high: `(A,)` bounds of continuous actions, which become [-1, 1]; or None
            where actions are discrete.
        prepare: function of raw observations `(B, ...)` → arrays of any shape, before they are
            flattened and scaled; None for vectors as they are.
    """

    state_offset: np.ndarray
    state_factor: np.ndarray
    return_scale: float
    action_low: np.ndarray | None = None
    action_high: np.ndarray | None = None
    prepare: Callable | None = None

    @classmethod
    def of(cls, data, return_scale=None, prepare=None):
        """The scaling of a data set.

        States are standardised by their mean and standard deviation over all steps, unless
        `prepare` makes something of them.

        Args:
            data: `OfflineData`.
            return_scale: float; None is the largest absolute return of an episode.
            prepare: as the attribute.

        Raises:
            ValueError: if the states are no vectors and there is no `prepare`.
        """
        if prepare is None:
            offset, factor = _standardisation(data)
        else:
            example = ops.convert_to_numpy(prepare(data.episodes[0].observations[:1]))
            offset, factor = np.zeros(example.size, "float32"), np.ones(example.size, "float32")
        if return_scale is None:
            return_scale = float(np.abs(data.returns()).max()) or 1.0
        low = high = None
        if not data.discrete:
            low, high = data.action_space.low, data.action_space.high
        return cls(offset, factor, float(return_scale), low, high, prepare)

    @property
    def state_size(self):
        """S."""
        return len(self.state_offset)

    def states(self, states):
        """`(B, K, S)` of raw states `(B, K, ...)`."""
        _, steps, *shape = ops.shape(states)
        if self.prepare is not None:
            states = self.prepare(ops.reshape(states, (-1, *shape)))
        states = ops.reshape(ops.cast(states, "float32"), (-1, steps, self.state_size))
        return (states - self.state_offset) * self.state_factor

    def window(self, window):
        """A window of raw values, as the network takes it."""
        actions = ops.cast(window["actions"], "float32")
        if self.action_low is not None:
            middle, half = self._action_range()
            actions = (actions - middle) / half
        return {
            "states": self.states(window["states"]),
            "actions": actions,
            "returns_to_go": ops.cast(window["returns_to_go"], "float32") / self.return_scale,
            "timesteps": window["timesteps"],
            "mask": window["mask"],
        }

    def action(self, prediction):
        """The environment's action `(B,)` or `(B, A)` for the network's prediction `(B, A)`."""
        if self.action_low is None:
            return ops.argmax(prediction, axis=-1)
        middle, half = self._action_range()
        return ops.clip(prediction * half + middle, self.action_low, self.action_high)

    def _action_range(self):
        return (self.action_high + self.action_low) / 2, (self.action_high - self.action_low) / 2


def _standardisation(data):
    """Mean and inverse standard deviation of the states, in one pass over each episode."""
    shape = data.episodes[0].observations.shape[1:]
    if len(shape) != 1:
        raise InvalidInput(
            f"{data.name}: observations of the shape {shape} need a `prepare` that makes vectors "
            "of them"
        )
    total, squares = np.zeros(shape), np.zeros(shape)
    for episode in data.episodes:
        states = episode.observations[:-1].astype("float64")
        total += states.sum(axis=0)
        squares += (states**2).sum(axis=0)
    mean = total / data.steps
    deviation = np.sqrt(np.maximum(squares / data.steps - mean**2, 0.0))
    # A feature that never varies tells nothing; dividing by its noise would.
    factor = np.where(deviation > 1e-6, 1.0 / (deviation + 1e-6), 1.0)
    return mean.astype("float32"), factor.astype("float32")
