"""How raw observations become a network's input: one value a way of doing it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium.spaces import Box

from rrl_tf.errors import InvalidInput


@dataclasses.dataclass(frozen=True)
class Preprocessor:
    """A function from raw observations to a network's input, and what the result means.

    Calling it prepares observations; it is `keras.ops` only, so it runs in a training step and in
    an exported graph alike.

    Args:
        function: raw observations `(..., *raw)` → preprocessed ones `(..., *shape)` float32.
        shape: of one preprocessed observation; `(height, width, F)` of a grid, `(F,)` of a vector.
        unseen_feature: index of the feature that is 1 where a cell of the grid is out of sight, or
            `None` where no feature tells. Networks let nothing attend to such cells.
        agent_cell: (row, column) of the cell the agent stands in, or `None` where it is not always
            the same. Networks read the decision there.
        agent_feature: index of the feature that is 1 where the agent stands and 0 elsewhere, or
            `None` where no feature tells. Without an `agent_cell` networks read there.

    Example:
        >>> view = Box(0, 10, (7, 7, 1), "uint8")
        >>> prepare = one_hot(view, unseen_code=0, agent_cell=(3, 6))
        >>> prepare.shape, prepare.unseen_feature
        ((7, 7, 11), 0)
    """

    function: Callable[[Any], Any]
    shape: tuple[int, ...]
    unseen_feature: int | None = None
    agent_cell: tuple[int, int] | None = None
    agent_feature: int | None = None

    def __call__(self, observation: Any) -> Any:
        """Prepares observations `(..., *raw)`."""
        return self.function(observation)


def one_hot(
    space: Box,
    frames: int = 1,
    unseen_code: int | None = None,
    agent_cell: tuple[int, int] | None = None,
    agent_code: int | None = None,
) -> Preprocessor:
    """Writes every code of a grid as a one-hot vector.

    Args:
        space: `Box` of integers `(height, width, frames * channels)`; its upper bounds tell how
            many codes a channel has. A code beyond them becomes a vector of zeros.
        frames: how many observations are stacked along the channels, oldest first.
        unseen_code: code of the first channel that marks a cell out of sight; the newest frame's
            counts.
        agent_cell: as in `Preprocessor`.
        agent_code: code of the first channel that marks the agent's cell, as `unseen_code`.

    Returns:
        A `Preprocessor` to `(height, width, frames * sum of the numbers of codes)`: for each frame
        the codes of its first channel, then those of its second, and so on.

    Raises:
        InvalidInput: if the space is no grid of codes, or holds no whole number of frames.

    Example:
        >>> prepare = one_hot(Box(0, 2, (4, 4, 1), "uint8"))
        >>> tuple(prepare(np.zeros((4, 4, 1), "uint8")).shape)
        (4, 4, 3)
    """
    from keras import ops

    codes = codes_per_channel(space, frames)
    # A product with zeros and ones repeats every channel once per code, and one comparison is left:
    # on a CPU sooner than as many one-hots and a concatenation, and the more so with more frames.
    repeat = np.repeat(np.eye(len(codes)), codes, axis=1)
    repeat = np.kron(np.eye(frames), repeat).astype("float32")
    code = np.tile(np.concatenate([np.arange(n) for n in codes]), frames).astype("float32")

    def prepare(observation):
        repeated = ops.matmul(ops.cast(observation, "float32"), repeat)
        return ops.cast(ops.equal(repeated, code), "float32")

    unseen, agent = (
        None if marked is None else (frames - 1) * sum(codes) + marked
        for marked in (unseen_code, agent_code)
    )
    return Preprocessor(prepare, (*space.shape[:2], frames * sum(codes)), unseen, agent_cell, agent)


def scaled(space: Box, agent_cell: tuple[int, int] | None = None) -> Preprocessor:
    """Divides every channel by the larger of its bounds: codes of a grid, or pixels.

    No feature of the result says that a cell is out of sight: a code's number is a magnitude here.
    What is never larger than 1 stays as it is.

    Args:
        space: `Box` whose last axis holds the channels, with finite bounds.
        agent_cell: as in `Preprocessor`.

    Returns:
        A `Preprocessor` to the shape of the space, from 0 to 1, or from -1 where there are negative
        numbers.

    Raises:
        InvalidInput: if a bound is missing.

    Example:
        >>> prepare = scaled(Box(0, 255, (84, 84, 4), "uint8"))
        >>> float(prepare(np.full((84, 84, 4), 255, "uint8"))[0, 0, 0])
        1.0
    """
    from keras import ops

    largest = np.maximum(_largest(space), 1).astype("float32")

    def prepare(observation):
        return ops.cast(observation, "float32") / largest

    return Preprocessor(prepare, space.shape, agent_cell=agent_cell)


def frame_maximum(space: Box, agent_cell: tuple[int, int] | None = None) -> Preprocessor:
    """Divides an observation by its own largest number, as the book does.

    The number an object becomes depends on what else is in view: a door is 4/5 beside the key and
    4/8 beside the goal. Only the `book` preset wants this.

    Args:
        space: `Box` `(height, width, C)`.
        agent_cell: as in `Preprocessor`.

    Returns:
        A `Preprocessor` to the shape of the space, from 0 to 1.

    Example:
        >>> prepare = frame_maximum(Box(0, 10, (7, 7, 3), "uint8"))
        >>> float(prepare(np.full((7, 7, 3), 2, "uint8"))[0, 0, 0])
        1.0

    Source: Zai and Brown, Deep Reinforcement Learning in Action (2020), chapter 10.
    """
    from keras import ops

    def prepare(observation):
        observation = ops.cast(observation, "float32")
        largest = ops.max(observation, axis=(-3, -2, -1), keepdims=True)
        # An all-zero observation stays finite.
        return observation / ops.maximum(largest, 1.0)

    return Preprocessor(prepare, space.shape, agent_cell=agent_cell)


def as_float(space: Box) -> Preprocessor:
    """Takes numbers as they are, in float32.

    Args:
        space: any `Box`.

    Example:
        >>> as_float(Box(-1, 1, (4,))).shape
        (4,)
    """
    from keras import ops

    def prepare(observation):
        return ops.cast(observation, "float32")

    return Preprocessor(prepare, space.shape)


def codes_per_channel(space: Box, frames: int = 1) -> tuple[int, ...]:
    """How many codes each channel of one frame has.

    Raises:
        InvalidInput: as `one_hot`.

    Example:
        >>> codes_per_channel(Box(0, np.tile([10, 5], (7, 7, 1)), dtype="uint8"))
        (11, 6)
    """
    if len(space.shape) != 3 or space.dtype.kind not in "iu" or space.low.min() < 0:
        raise InvalidInput(
            "one-hot cells need an observation space of integer codes (height, width, channels) "
            f"from 0 up; received {space}"
        )
    if frames < 1 or space.shape[-1] % frames:
        raise InvalidInput(
            f"expected a whole number of channels for each of {frames} frames in the last axis of "
            f"an observation; received shape {space.shape}"
        )
    codes = _largest(space).astype(int) + 1
    return tuple(map(int, codes[-(len(codes) // frames) :]))


def _largest(space):
    """The largest size of a number in each channel of the last axis."""
    bounds = np.abs(np.stack([space.low, space.high]).astype("float64"))
    largest = bounds.reshape(-1, space.shape[-1]).max(axis=0)
    if not np.isfinite(largest).all():
        raise InvalidInput(f"the observation space needs finite bounds; received {space}")
    return largest
