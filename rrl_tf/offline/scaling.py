"""Define `Scaling`, which converts raw values to network inputs and outputs to actions."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from gymnasium.spaces import Box

from rrl_tf._arguments import one_of
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
            [-1, 1]. None if actions are discrete.
        preprocessor: function that maps raw observations `(B, ...)` to arrays, which are flattened
            and scaled; for example a `Preprocessor`. None if observations are vectors.
        condition: the return that the network receives at each step: `"return_to_go"`, or
            `"return"`, that of the whole episode.
        target_return: default target return, or None.

    Raises:
        InvalidInput: if `return_scale` is not positive and finite, or the condition is unknown.

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
        `preprocessor` is given. The default target return is the highest return of the data.

        Args:
            data: `OfflineData`.
            return_scale: number by which returns are divided. None means the largest absolute
                return.
            preprocessor, condition: see the attributes.

        Raises:
            InvalidInput: if states are not vectors and `preprocessor` is None.
        """
        if preprocessor is None:
            offset, factor = _standardisation(data)
        else:
            size = math.prod(preprocessor(data.episodes[0].observations[:1]).shape)
            offset, factor = np.zeros(int(size), "float32"), np.ones(int(size), "float32")
        returns = data.returns()
        scale = return_scale if return_scale is not None else np.abs(returns).max() or 1.0
        low = high = None
        if isinstance(data.action_space, Box):
            low, high = data.action_space.low, data.action_space.high
        best = float(returns.max())
        return cls(offset, factor, float(scale), low, high, preprocessor, condition, best)

    @property
    def state_size(self) -> int:
        """S, the size of a scaled state."""
        return len(self.state_offset)

    def states(self, states: Any) -> Any:
        """Scale raw states `(B, K, ...)` to `(B, K, S)`."""
        from keras import ops  # imported here, because sampling windows does not need Keras

        _, steps, *shape = ops.shape(states)
        if self.preprocessor is not None:
            states = self.preprocessor(ops.reshape(states, (-1, *shape)))
        states = ops.reshape(ops.cast(states, "float32"), (-1, steps, self.state_size))
        return (states - self.state_offset) * self.state_factor

    def window(self, window: Mapping[str, Any]) -> dict[str, Any]:
        """Return the input of the network for windows of raw values."""
        from keras import ops  # imported here, because sampling windows does not need Keras

        actions = ops.cast(window["actions"], "float32")
        if self.action_low is not None and self.action_high is not None:
            middle, half = _middle_and_half(self.action_low, self.action_high)
            actions = (actions - middle) / half
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
        middle, half = _middle_and_half(self.action_low, self.action_high)
        return ops.clip(prediction * half + middle, self.action_low, self.action_high)


def _middle_and_half(low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the middle and half the width of action bounds; 1 instead of a width of 0."""
    middle, half = high / 2 + low / 2, high / 2 - low / 2  # low + high could overflow float32
    return middle, half + (half == 0)


def _standardisation(data: OfflineData) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean and the inverse standard deviation of the states."""
    shape = data.episodes[0].observations.shape[1:]
    if len(shape) != 1:
        raise InvalidInput(
            f"`preprocessor` must be given for observations of the shape {shape}; received None "
            f"for {data.name}. In the training script, use for example `--preprocessor one_hot`."
        )
    total, squares = np.zeros(shape), np.zeros(shape)
    for episode in data.episodes:
        states = episode.observations[:-1].astype("float64")
        total += states.sum(axis=0)
        squares += (states**2).sum(axis=0)
    mean = total / data.steps
    deviation = np.sqrt(np.maximum(squares / data.steps - mean**2, 0.0))
    # A constant feature is not divided by its deviation, which would amplify rounding errors.
    factor = np.where(deviation > 1e-6, 1.0 / (deviation + 1e-6), 1.0)
    return mean.astype("float32"), factor.astype("float32")
