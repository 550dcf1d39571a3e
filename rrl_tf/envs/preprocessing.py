"""Define preprocessors, which map raw observations to a network's input."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from gymnasium.spaces import Box

from rrl_tf._arguments import integer, number_from
from rrl_tf.errors import InvalidInput


@dataclasses.dataclass(frozen=True)
class Preprocessor:
    """A function from raw observations to a network's input, with a description of the result.

    The function uses `keras.ops` only, so it also runs in a training step and in an exported graph.

    Args:
        function: maps raw observations `(..., *raw)` to preprocessed ones `(..., *shape)` float32.
        shape: shape of one preprocessed observation: `(height, width, F)` for a grid, `(F,)` for a
            vector.
        unseen_feature: index of the feature that is 1 in grid cells that the agent does not see, or
            `None`. Networks mask these cells in attention.
        agent_cell: (row, column) of the agent's cell, or `None` if it is not constant. Networks
            compute Q values from this cell.
        agent_feature: index of the feature that is 1 in the agent's cell only, or `None`. If there
            is no `agent_cell`, networks compute Q values from the cell with this feature.
        parts: dict name → `Preprocessor` of a part, if the result is a dict name → array. `shape`
            is then a dict name → shape.
        packing: `Packing` of the raw observations, if they are packed; see `packed_preprocessor`.
        encode: function from the parts of an observation, a dict, to a network's input, if raw
            observations are packed.

    Example:
        >>> view = Box(0, 10, (7, 7, 1), "uint8")
        >>> preprocessor = one_hot(view, unseen_code=0, agent_cell=(3, 6))
        >>> preprocessor.shape, preprocessor.unseen_feature
        ((7, 7, 11), 0)
    """

    function: Callable[[Any], Any]
    shape: Any
    unseen_feature: int | None = None
    agent_cell: tuple[int, int] | None = None
    agent_feature: int | None = None
    parts: Mapping[str, Preprocessor] | None = None
    packing: Any = None
    encode: Any = None

    def __call__(self, observation: Any) -> Any:
        """Preprocess observations `(..., *raw)`."""
        return self.function(observation)

    def batch_shape(self, *leading: int | None) -> Any:
        """Return the shape of preprocessed observations with leading axes, such as `(B,)`."""
        if self.parts is None:
            return (*leading, *self.shape)
        return {name: (*leading, *shape) for name, shape in self.shape.items()}

    @property
    def grid_part(self) -> str | None:
        """Name of the first part that is a grid or an image; `None` without named parts."""
        parts = self.parts or {}
        return next((name for name, part in parts.items() if len(part.shape) == 3), None)


def one_hot(
    space: Box,
    frames: int = 1,
    unseen_code: int | None = None,
    agent_cell: tuple[int, int] | None = None,
    agent_code: int | None = None,
) -> Preprocessor:
    """Encode each code of a grid as a one-hot vector.

    Args:
        space: `Box` of integers `(height, width, frames * channels)`. A channel with the upper
            bound n has n + 1 codes; a larger code becomes a vector of zeros.
        frames: number of observations stacked along the channels, oldest first.
        unseen_code: code of the first channel that marks a cell as not visible, read in the newest
            frame; `None` if there is none.
        agent_cell: as in `Preprocessor`.
        agent_code: code of the first channel that marks the agent's cell, read in the newest frame;
            `None` if there is none.

    Returns:
        A `Preprocessor` with the shape `(height, width, F)`. The features of each frame are the
        one-hot vector of its first channel, then that of its second channel, and so on.

    Raises:
        InvalidInput: if the space is not a grid of codes, its channels cannot be divided into
            `frames`, or `unseen_code` or `agent_code` is not a code of the first channel.

    Example:
        >>> preprocessor = one_hot(Box(0, 2, (4, 4, 1), "uint8"))
        >>> tuple(preprocessor(np.zeros((4, 4, 1), "uint8")).shape)
        (4, 4, 3)
    """
    from keras import ops

    codes = codes_per_channel(space, frames)
    for name, each in (("unseen_code", unseen_code), ("agent_code", agent_code)):
        if each is not None:
            number_from(name, integer(name, each), 0, codes[0] - 1)
    # A matrix product repeats each channel once per code, and one comparison then computes all
    # one-hot vectors. On a CPU, this is faster than encoding and concatenating the channels one by
    # one.
    repeat = np.repeat(np.eye(len(codes)), codes, axis=1)
    repeat = np.kron(np.eye(frames), repeat).astype("float32")
    code = np.tile(np.concatenate([np.arange(n) for n in codes]), frames).astype("float32")

    def encode(observation):
        repeated = ops.matmul(ops.cast(observation, "float32"), repeat)
        return ops.cast(ops.equal(repeated, code), "float32")

    newest = (frames - 1) * sum(codes)  # first feature of the newest frame
    return Preprocessor(
        encode,
        (*space.shape[:2], frames * sum(codes)),
        None if unseen_code is None else newest + unseen_code,
        agent_cell,
        None if agent_code is None else newest + agent_code,
    )


def one_hot_vector(space: Box) -> Preprocessor:
    """Encode each integer of a vector as a one-hot vector, and concatenate these.

    Args:
        space: `Box` of integers `(D,)` with finite bounds. An integer with the bounds 1 and 3 has
            three codes.

    Example:
        >>> preprocessor = one_hot_vector(Box(np.array([0, 1]), np.array([1, 3]), dtype="int64"))
        >>> np.asarray(preprocessor(np.array([1, 3])))
        array([0., 1., 0., 0., 1.], dtype=float32)
    """
    from keras import ops

    codes = [np.arange(low, high + 1) for low, high in zip(space.low, space.high)]
    index = np.repeat(np.arange(len(codes)), list(map(len, codes)))
    code = np.concatenate(codes).astype(space.dtype)

    def encode(observation):
        return ops.cast(ops.equal(ops.take(observation, index, axis=-1), code), "float32")

    return Preprocessor(encode, (len(code),))


def scaled(space: Box, agent_cell: tuple[int, int] | None = None) -> Preprocessor:
    """Divide each channel by its largest absolute bound, for pixels or codes of a grid.

    A channel whose bounds are between -1 and 1 keeps its values. The result has no
    `unseen_feature`.

    Args:
        space: `Box` with finite bounds, whose last axis is the channels.
        agent_cell: as in `Preprocessor`.

    Returns:
        A `Preprocessor` with the space's shape and values from -1 to 1, or from 0 to 1 if the space
        has no negative values.

    Raises:
        InvalidInput: if a bound is infinite.

    Example:
        >>> preprocessor = scaled(Box(0, 255, (84, 84, 4), "uint8"))
        >>> float(preprocessor(np.full((84, 84, 4), 255, "uint8"))[0, 0, 0])
        1.0
    """
    from keras import ops

    largest = np.maximum(_largest(space), 1).astype("float32")

    def scale(observation):
        return ops.cast(observation, "float32") / largest

    return Preprocessor(scale, space.shape, agent_cell=agent_cell)


def frame_maximum(space: Box, agent_cell: tuple[int, int] | None = None) -> Preprocessor:
    """Divide each observation by its own largest value, as in "Deep RL in Action".

    The value of an object then depends on the other visible objects: a door is 4/5 if the key is
    visible and 4/8 if the goal is visible. Only the preset `book` uses this preprocessor.

    Args:
        space: `Box` `(height, width, C)`.
        agent_cell: as in `Preprocessor`.

    Returns:
        A `Preprocessor` with the space's shape and values from 0 to 1.

    Example:
        >>> preprocessor = frame_maximum(Box(0, 10, (7, 7, 3), "uint8"))
        >>> float(preprocessor(np.full((7, 7, 3), 2, "uint8"))[0, 0, 0])
        1.0

    Source: Zai and Brown, Deep Reinforcement Learning in Action (2020), chapter 10.
    """
    from keras import ops

    def scale(observation):
        observation = ops.cast(observation, "float32")
        largest = ops.max(observation, axis=(-3, -2, -1), keepdims=True)
        # The maximum with 1 avoids a division by zero.
        return observation / ops.maximum(largest, 1.0)

    return Preprocessor(scale, space.shape, agent_cell=agent_cell)


def as_float(space: Box) -> Preprocessor:
    """Cast observations to float32 and leave their values unchanged.

    Args:
        space: any `Box`.

    Example:
        >>> as_float(Box(-1, 1, (4,))).shape
        (4,)
    """
    from keras import ops

    return Preprocessor(lambda observation: ops.cast(observation, "float32"), space.shape)


def codes_per_channel(space: Box, frames: int = 1) -> tuple[int, ...]:
    """Return how many codes each channel of one frame has.

    Args:
        space: as in `one_hot`.
        frames: number of frames stacked along the channels.

    Raises:
        InvalidInput: if the space is not a grid of codes, or its channels cannot be divided into
            `frames`.

    Example:
        >>> codes_per_channel(Box(0, np.tile([10, 5], (7, 7, 1)), dtype="uint8"))
        (11, 6)
    """
    if len(space.shape) != 3 or space.dtype.kind not in "iu" or space.low.min() < 0:
        raise InvalidInput(
            "`space` must have non-negative integer codes (height, width, channels) for one-hot "
            f"encoding; received {space}"
        )
    if frames < 1 or space.shape[-1] % frames:
        raise InvalidInput(
            f"the last axis of `space` must have a size that {frames} frames divide evenly; "
            f"received shape {space.shape}"
        )
    codes = _largest(space).astype(int) + 1
    return tuple(map(int, codes[-(len(codes) // frames) :]))


def _largest(space):
    """Return the largest absolute bound of each channel (last axis)."""
    bounds = np.abs(np.stack([space.low, space.high]).astype("float64"))
    largest = bounds.reshape(-1, space.shape[-1]).max(axis=0)
    if not (largest <= np.finfo("float32").max).all():
        raise InvalidInput(f"`space` must have bounds that are finite in float32; received {space}")
    return largest
