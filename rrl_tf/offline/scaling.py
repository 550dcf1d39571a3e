"""How raw values become a network's input and its output an action."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium.spaces import Box
from keras import ops

from rrl_tf._arguments import one_of
from rrl_tf.errors import InvalidInput
from rrl_tf.offline.windows import CONDITIONS

if TYPE_CHECKING:
    from rrl_tf.offline.episodes import OfflineData

FLOAT32_LEAST, FLOAT32_MOST = float(np.finfo("float32").tiny), float(np.finfo("float32").max)
LARGEST_RETURN = 1e18
"""That a network may be told: it squares what it computes with, and float32 ends at 3.4e38."""


@dataclasses.dataclass(frozen=True)
class Scaling:
    """How raw values become a network's input and its output an action; `keras.ops` only.

    Attributes:
        state_offset, state_factor: `(S,)`; a state becomes `(state - offset) * factor`.
        return_scale: what returns are divided by.
        action_low, action_high: `(A,)` bounds of continuous actions, which become [-1, 1]; or None
            where actions are discrete.
        prepare: function of raw observations `(B, ...)` → arrays of any shape, before they are
            flattened and scaled, such as a `Preprocessor`; None for vectors as they are.
        condition: what a step is told, the `"return_to_go"` or its episode's whole `"return"`.
        target_return: what is asked for where nobody says it.

    Raises:
        InvalidInput: if `return_scale` is not a number greater than 0, which float32 can hold, or
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
    prepare: Callable[[Any], Any] | None = None
    condition: str = "return_to_go"
    target_return: float | None = None

    def __post_init__(self) -> None:
        one_of("condition", self.condition, CONDITIONS)
        if not FLOAT32_LEAST <= self.return_scale <= FLOAT32_MOST:
            raise InvalidInput(
                f"return_scale must be greater than 0 and within float32, {FLOAT32_LEAST:.3g} to "
                f"{FLOAT32_MOST:.3g}; received {self.return_scale}"
            )

    @classmethod
    def of(
        cls,
        data: OfflineData,
        return_scale: float | None = None,
        prepare: Callable[[Any], Any] | None = None,
        condition: str = "return_to_go",
    ) -> Scaling:
        """The scaling of a data set.

        States are standardised by their mean and standard deviation over all steps, unless
        `prepare` makes something of them. Who is not asked for a return plays for the data's best.

        Args:
            data: `OfflineData`.
            return_scale: float; None is the largest absolute return of an episode.
            prepare, condition: as the attributes.

        Raises:
            ValueError: if the states are no vectors and there is no `prepare`, or returns divided
                by `return_scale` are too large to compute with.
        """
        if prepare is None:
            offset, factor = _standardisation(data)
        else:
            example = ops.convert_to_numpy(prepare(data.episodes[0].observations[:1]))
            offset, factor = np.zeros(example.size, "float32"), np.ones(example.size, "float32")
        returns = data.returns()
        if return_scale is None:
            # Returns beyond float32 are for `Windows` to refuse: nobody asked for such a scale.
            return_scale = min(float(np.abs(returns).max()), FLOAT32_MOST) or 1.0
        low = high = None
        if isinstance(data.action_space, Box):
            low, high = data.action_space.low, data.action_space.high
        best = float(returns.max())
        scaling = cls(offset, factor, float(return_scale), low, high, prepare, condition, best)
        most = max(np.abs(episode.returns_to_go()).max() for episode in data.episodes)
        if most / scaling.return_scale > LARGEST_RETURN:
            raise InvalidInput(
                f"{data.name}: returns of {most:.3g}, divided by return_scale, must be at most "
                f"{LARGEST_RETURN:g}; received return_scale={return_scale!r}"
            )
        return scaling

    @property
    def state_size(self) -> int:
        """S."""
        return len(self.state_offset)

    def states(self, states: Any) -> Any:
        """`(B, K, S)` of raw states `(B, K, ...)`."""
        _, steps, *shape = ops.shape(states)
        if self.prepare is not None:
            states = self.prepare(ops.reshape(states, (-1, *shape)))
        states = ops.reshape(ops.cast(states, "float32"), (-1, steps, self.state_size))
        return (states - self.state_offset) * self.state_factor

    def window(self, window: Mapping[str, Any]) -> dict[str, Any]:
        """A window of raw values, as the network takes it."""
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
        """The environment's action `(B,)` or `(B, A)` for the network's prediction `(B, A)`."""
        if self.action_low is None or self.action_high is None:
            return ops.argmax(prediction, axis=-1)
        middle, half = _middle_and_half(self.action_low, self.action_high)
        return ops.clip(prediction * half + middle, self.action_low, self.action_high)


def _middle_and_half(low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of the interval of continuous actions; where it is a single value, that is scaled to 0."""
    middle, half = high / 2 + low / 2, high / 2 - low / 2  # a sum of both may be beyond float32
    return middle, half + (half == 0)


def _standardisation(data: OfflineData) -> tuple[np.ndarray, np.ndarray]:
    """Mean and inverse standard deviation of the states, in one pass over each episode."""
    shape = data.episodes[0].observations.shape[1:]
    if len(shape) != 1:
        raise InvalidInput(
            f"{data.name}: observations of the shape {shape} need a `prepare` that makes vectors "
            "of them, such as `--preprocessor one_hot` of the training script"
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
