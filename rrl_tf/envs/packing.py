"""Store observations with several parts, such as a `Dict`, in one array of bytes."""

from __future__ import annotations

import dataclasses
import keyword
import math
from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete, MultiBinary, MultiDiscrete

from rrl_tf._observations import named_parts, observation_parts
from rrl_tf.envs.checks import ArrayCheck, name_of
from rrl_tf.envs.preprocessing import Preprocessor
from rrl_tf.errors import InvalidInput

RESERVED = ("memory", "reward")
"""Inputs of recurrent policies, which a part of an observation may therefore not be called."""


class Packing:
    """Converts observations of any space to one array of bytes and back, without loss.

    Environments, replay and agents then handle one array, in which each part keeps its dtype. Parts
    of a `Dict` have its keys as names; those of a `Tuple` are `part_0`, `part_1`, ...; names of
    nested parts are joined by `_`.

    Args:
        space: `Dict`, `Tuple`, `Box`, `Discrete`, `MultiDiscrete` or `MultiBinary`.
        frames: number of observations that `StackFrames` stacks.

    Attributes:
        boxes: dict name -> `Box` of a part. Stacked parts are concatenated along the last axis; a
            number or a matrix gets a last axis for the frames.
        size: bytes of one observation.

    Raises:
        InvalidInput: if a part has another space, or a name that an exported policy cannot have.

    Example:
        >>> space = gymnasium.spaces.Dict({"image": Box(0, 255, (2, 2, 3), "uint8"),
        ...                                "speed": Box(-1, 1, (2,))})
        >>> packing = Packing(space)
        >>> packed = packing.pack(space.sample(), lambda: "the example")
        >>> packed.shape, packed.dtype  # 12 bytes of the image, 8 of the speed
        ((20,), dtype('uint8'))
        >>> tuple(packing.unpack(packed[None])["speed"].shape)
        (1, 2)
    """

    def __init__(self, space: gymnasium.Space, frames: int = 1) -> None:
        self.space, self.frames = space, frames
        self._parts = {name: as_box(name, part) for name, part in named_parts(space).items()}
        self.boxes = {name: _stacked(part, frames) for name, part in self._parts.items()}
        self._checks = {
            name: ArrayCheck(f"the observation's {name!r}", part.shape, part.dtype)
            for name, part in self._parts.items()
        }
        self.size = sum(map(_bytes, self._parts.values()))

    def pack(self, observation: Any, place: Any) -> np.ndarray:
        """Return an observation as bytes, `(size,)` uint8.

        Args:
            observation: observation of the space.
            place: function that returns where the observation comes from, for the error message.

        Raises:
            InvalidInput: if a part is missing, or does not have the declared shape and dtype.
        """
        parts = observation_parts(observation, self._parts)
        arrays = [check(parts[name], place).tobytes() for name, check in self._checks.items()]
        return np.frombuffer(b"".join(arrays), np.uint8)

    def unpack(self, packed: Any) -> dict[str, Any]:
        """Return a dict name -> part `(..., *shape)` of bytes `(..., frames * size)`."""
        from keras import ops

        leading = ops.shape(packed)[:-1]
        packed = ops.reshape(packed, (*leading, self.frames, self.size))
        parts, start = {}, 0
        for name, part in self._parts.items():
            stop = start + _bytes(part)
            value = ops.view(packed[..., start:stop], part.dtype.name)
            shape = with_channels(part).shape
            value = ops.reshape(value, (*leading, self.frames, *shape))
            value = ops.moveaxis(value, len(leading), -2)  # the frames go before the channels
            parts[name] = ops.reshape(value, (*leading, *self.boxes[name].shape))
            start = stop
        return parts


class PackObservation(gymnasium.ObservationWrapper):
    """Replaces the observations of an environment by bytes; see `Packing`.

    Example:
        >>> env = PackObservation(gymnasium.make("Blackjack-v1"))  # a tuple of three numbers
        >>> env.reset(seed=0)[0].shape
        (24,)
    """

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        self.packing = Packing(env.observation_space)
        self.observation_space = Box(0, 255, (self.packing.size,), np.uint8)

    def observation(self, observation: Any) -> np.ndarray:
        """Return the observation as bytes."""
        return self.packing.pack(observation, lambda: name_of(self.env))


def packed_preprocessor(packing: Packing, parts: Mapping[str, Preprocessor]) -> Preprocessor:
    """Return the preprocessor of packed observations.

    Its result is a dict name -> preprocessed part, or the only part if there is just one.

    Args:
        packing: how the observations are packed.
        parts: dict name -> preprocessor of a part, whose box has been changed by `with_channels`.
    """

    def encode(named):
        encoded = {}
        for name, part in parts.items():
            has_channels = packing.boxes[name].shape == with_channels(packing.boxes[name]).shape
            encoded[name] = part(named[name] if has_channels else named[name][..., None])
        return encoded if len(parts) > 1 else encoded.popitem()[1]

    whole = Preprocessor(encode, {name: part.shape for name, part in parts.items()}, parts=parts)
    if len(parts) == 1:
        whole = next(iter(parts.values()))
    return dataclasses.replace(
        whole,
        function=lambda packed: encode(packing.unpack(packed)),
        packing=packing,
        encode=encode,
    )


def as_box(name: str, space: Any) -> Box:
    """Return the `Box` with the same values as the space of a part or of an action."""
    is_name = name.isidentifier() and name.isascii() and not keyword.iskeyword(name)
    if not is_name or name.startswith("_") or name in RESERVED:
        raise InvalidInput(
            "keys of a `Dict` observation must consist of ASCII letters, digits and `_`, must "
            f"begin with a letter, and must not be a Python keyword or one of {RESERVED}, because "
            f"they become inputs of the exported policy; received {name!r}. Use "
            "gymnasium.wrappers.TransformObservation to rename it."
        )
    if isinstance(space, Box) and space.dtype.kind in "iuf":
        return space
    if isinstance(space, Box) and space.dtype.kind == "b":
        return Box(0, 1, space.shape, np.uint8)
    if isinstance(space, MultiBinary):
        return Box(0, 1, space.shape, space.dtype.type)
    if isinstance(space, Discrete):
        return Box(space.start, space.start + space.n - 1, (), space.dtype.type)
    if isinstance(space, MultiDiscrete):
        return Box(space.start, space.start + space.nvec - 1, dtype=space.dtype.type)
    raise InvalidInput(
        f"the space of {name!r} must have a fixed size and be a Box of numbers, Discrete, "
        f"MultiDiscrete or MultiBinary; received {space}. Use gymnasium.wrappers.FilterObservation "
        "to leave out a part of an observation."
    )


def with_channels(box: Box) -> Box:
    """Return the box with a last axis for channels, if it contains numbers or matrices."""
    if len(box.shape) not in (0, 2):
        return box
    return Box(box.low[..., None], box.high[..., None], dtype=box.dtype.type)


def _stacked(box, frames):
    if frames == 1:
        return box
    box = with_channels(box)
    repeats = (*(1 for _ in box.shape[1:]), frames)
    low, high = (np.tile(bound, repeats) for bound in (box.low, box.high))
    return Box(low, high, dtype=box.dtype.type)


def _bytes(box):
    return math.prod(box.shape) * box.dtype.itemsize
