"""Define `Scaling`, which converts raw values to network inputs and outputs to actions."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from gymnasium.spaces import Box

from rrl_tf._arguments import finite, one_of
from rrl_tf.errors import InvalidInput
from rrl_tf.offline.episodes import OfflineData

CONDITIONS = ("return_to_go", "return")
"""Kinds of returns that a network can receive at each step."""


@dataclasses.dataclass(frozen=True)
class Scaling:
    """Conversion of raw values to network inputs, and of network outputs to actions.

    The methods use `keras.ops` only.

    Attributes:
        state_offset, state_factor: `(S,)`. The input for a state is `(state - offset) * factor`.
        return_scale: number by which returns are divided.
        action_low, action_high: `(A,)`, the bounds of continuous actions, which are scaled to
            [-1, 1]. If they are integers, `action` returns whole numbers. None if actions are
            discrete.
        preprocessor: function that maps raw observations `(B, ...)` to arrays, which are flattened
            and scaled; for example a `Preprocessor`. None if observations are vectors.
        condition: the return that the network receives at each step: `"return_to_go"`, or
            `"return"`, that of the whole episode.
        target_return: default target return, or None.

    Raises:
        InvalidInput: if `return_scale` is not positive and finite, another number is not finite, or
            the condition is unknown.

    Example:
        >>> scaling = Scaling.of(load_episodes("minari:doorkey/mixed-v0"))  # doctest: +SKIP
        >>> inputs = scaling.window(windows.batch(64, seed=0))  # doctest: +SKIP
    """

    state_offset: np.ndarray
    state_factor: np.ndarray
    return_scale: float
    action_low: np.ndarray | None = None
    action_high: np.ndarray | None = None
    preprocessor: Callable[[Any], Any] | None = None
    condition: str = "return_to_go"
    target_return: float | None = None

    def __post_init__(self) -> None:
        one_of("condition", self.condition, CONDITIONS)
        if not 0 < self.return_scale < np.inf:
            raise InvalidInput(
                f"`return_scale` must be positive and finite; received {self.return_scale}"
            )
        for name in ("state_offset", "state_factor", "action_low", "action_high", "target_return"):
            if (value := getattr(self, name)) is not None:
                finite(f"`{name}`", np.asarray(value))

    @classmethod
    def of(
        cls,
        data: OfflineData,
        return_scale: float | None = None,
        preprocessor: Callable[[Any], Any] | None = None,
        condition: str = "return_to_go",
    ) -> Scaling:
        """Return the scaling of a dataset.

        States are standardised by their mean and standard deviation over all steps, unless
        `preprocessor` is given. A feature whose deviation is within the rounding of float32 counts
        as constant and is not divided. The default target return is the highest return of the data.

        Args:
            data: `OfflineData`.
            return_scale: number by which returns are divided. None means the `largest_return` of
                the data, so that the network receives returns from -1 to 1.
            preprocessor, condition: see the attributes.

        Raises:
            InvalidInput: if states are not vectors and `preprocessor` is None.
        """
        if preprocessor is None:
            offset, factor = _standardisation(data)
        else:
            size = math.prod(preprocessor(data.episodes[0].observations[:1]).shape)
            offset, factor = np.zeros(int(size), "float32"), np.ones(int(size), "float32")
        scale = largest_return(data, condition) if return_scale is None else float(return_scale)
        low = high = None
        if isinstance(data.action_space, Box):
            low, high = data.action_space.low, data.action_space.high
        best = float(data.returns().max())
        return cls(offset, factor, scale, low, high, preprocessor, condition, best)

    @property
    def state_size(self) -> int:
        """S, the size of a scaled state."""
        return len(self.state_offset)

    def states(self, states: Any) -> Any:
        """Scale raw states `(B, K, ...)` to `(B, K, S)`."""
        from keras import backend, ops  # imported here, because sampling windows does not need it

        _, steps, *shape = ops.shape(states)
        if self.preprocessor is not None:
            states = self.preprocessor(ops.reshape(states, (-1, *shape)))
        states = ops.reshape(states, (-1, steps, self.state_size))
        is_double = backend.standardize_dtype(states.dtype) == "float64"
        # Use float64 only where float32 is too coarse, because TFLite cannot compute in float64.
        dtype = "float64" if is_double and self._is_far_from_zero() else "float32"
        states = ops.cast(states, dtype) - ops.cast(self.state_offset, dtype)
        return ops.cast(states, "float32") * self.state_factor

    def _is_far_from_zero(self) -> bool:
        """Return whether float32 rounds a state by over a thousandth of a standard deviation."""
        offset, factor = np.asarray(self.state_offset), np.asarray(self.state_factor)
        return bool((np.spacing(np.abs(offset.astype("float32"))) * factor > 1e-3).any())

    def window(self, window: Mapping[str, Any]) -> dict[str, Any]:
        """Return the input of the network for windows of raw values."""
        from keras import ops  # imported here, because sampling windows does not need Keras

        actions = ops.cast(window["actions"], "float32")
        if self.action_low is not None and self.action_high is not None:
            actions = _scaled_actions(actions, _floats(self.action_low), _floats(self.action_high))
        return {
            "states": self.states(window["states"]),
            "actions": actions,
            "returns_to_go": ops.cast(window["returns_to_go"], "float32") / self.return_scale,
            "timesteps": window["timesteps"],
            "mask": window["mask"],
        }

    def action(self, prediction: Any) -> Any:
        """Convert predictions `(B, A)` to actions of the environment, `(B,)` or `(B, A)`."""
        from keras import ops  # imported here, because sampling windows does not need Keras

        if self.action_low is None or self.action_high is None:
            return ops.argmax(prediction, axis=-1)
        low, high = _floats(self.action_low), _floats(self.action_high)
        middle, half = _middle_and_half(low, high)
        action = ops.clip(prediction * half + middle, low, high)
        return ops.round(action) if np.asarray(self.action_low).dtype.kind in "iu" else action


def _floats(bounds: np.ndarray) -> np.ndarray:
    return bounds if np.asarray(bounds).dtype.kind == "f" else np.asarray(bounds, "float32")


def _scaled_actions(actions: Any, low: np.ndarray, high: np.ndarray) -> Any:
    """Scale actions to [-1, 1]. The bounds become exactly -1 and 1, or 0 if they are equal.

    The loss of clipped actions must recognise the bounds, and rounding would move them if they are
    far from 0.
    """
    from keras import ops  # imported here, because sampling windows does not need Keras

    middle, half = _middle_and_half(low, high)
    below, above = ops.less_equal(actions, low), ops.greater_equal(actions, high)
    ends = ops.cast(above, "float32") - ops.cast(below, "float32")
    return ops.where(ops.logical_or(below, above), ends, (actions - middle) / half)


def _middle_and_half(low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the middle and half the width of action bounds; 1 instead of a width of 0."""
    middle, half = high / 2 + low / 2, high / 2 - low / 2  # low + high could overflow float32
    return middle, half + (half == 0)


def largest_return(data: OfflineData, condition: str = "return_to_go") -> float:
    """Return the largest absolute value of the returns that a network receives, or 1 if all are 0.

    Args:
        data: `OfflineData`.
        condition: with `"return_to_go"`, the returns-to-go of all steps count; they can be much
            larger than the returns if rewards have different signs. With `"return"`, only the
            returns count. Rounding errors of the sums count as 0.

    Example:
        >>> from gymnasium.spaces import Discrete
        >>> from rrl_tf.offline import Episode
        >>> episode = Episode(np.zeros((4, 1)), [0] * 3, [-100.0, 90.0, 20.0], True, False)
        >>> data = OfflineData("mine", (episode,), Discrete(2), "none")
        >>> largest_return(data), largest_return(data, "return")
        (110.0, 10.0)
    """
    largest = np.abs(data.returns()).max()
    if one_of("condition", condition, CONDITIONS) == "return_to_go":
        # Subtracting past rewards from the return results in exactly the largest return if all
        # rewards have the same sign. The sums of `returns_to_go` could be rounded differently.
        later = (each.total - np.cumsum(each.rewards, dtype="float64") for each in data.episodes)
        largest = max(largest, *(np.abs(returns).max() for returns in later))
    return 1.0 if within_rounding(largest, largest_reward_sum(data)) else float(largest)


def largest_reward_sum(data: OfflineData) -> float:
    """Return the largest sum of absolute rewards of an episode, which bounds rounding errors."""
    return max(float(np.abs(each.rewards).sum(dtype="float64")) for each in data.episodes)


def within_rounding(difference: Any, largest: Any) -> Any:
    """Return whether a difference between float32 numbers may be due to their rounding.

    Args:
        difference: non-negative number or array, such as a standard deviation.
        largest: largest absolute value of the numbers, with the same shape.

    Example:
        >>> bool(within_rounding(1.0, largest=1e7)), bool(within_rounding(1.0, largest=1e8))
        (False, True)
    """
    error = np.spacing(np.asarray(largest, "float32")) / 2
    return difference <= np.maximum(error, np.finfo("float32").tiny)


def _standardisation(data: OfflineData) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean and the inverse standard deviation of the states."""
    shape = data.episodes[0].observations.shape[1:]
    if len(shape) != 1:
        raise InvalidInput(
            f"`preprocessor` must be given for observations of the shape {shape}; received None "
            f"for {data.name}. In the training script, use for example `--preprocessor one_hot`."
        )
    total, squares, largest = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    for episode in data.episodes:
        total += episode.observations[:-1].sum(axis=0, dtype="float64")
    mean = total / data.steps
    # A second pass, because mean(x²) - mean(x)² loses all digits if the mean is large.
    for episode in data.episodes:
        states = episode.observations[:-1].astype("float64")
        squares += ((states - mean) ** 2).sum(axis=0)
        largest = np.maximum(largest, np.abs(states).max(axis=0))
    deviation = np.sqrt(squares / data.steps)
    # Dividing a constant feature by its deviation would amplify rounding errors.
    factor = 1.0 / np.where(within_rounding(deviation, largest), 1.0, deviation)
    return mean.astype("float32"), factor.astype("float32")
