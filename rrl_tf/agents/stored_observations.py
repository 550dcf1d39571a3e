"""How a replay keeps observations: as they are, or stacked frames each once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from rrl_tf.errors import InvalidInput

Stack: TypeAlias = tuple[np.ndarray, ...]
"""The frames of one observation, oldest first."""


class StoredArrays:
    """Keeps every observation as it is.

    Args:
        shape: of one observation.
        dtype: of an observation.
    """

    def __init__(self, shape: Sequence[int], dtype: Any) -> None:
        self.shape, self.dtype = tuple(shape), dtype

    def column(self, capacity: int) -> Any:
        """Room for so many."""
        return np.zeros((capacity, *self.shape), self.dtype)

    def of_step(self, env: int, observation_t: Any, observation_tp1: Any) -> tuple[Any, Any]:
        """What is kept of the observations before and after a step of an environment."""
        return observation_t.copy(), observation_tp1

    def begin_episode(self, env: int) -> None:
        """An environment's next observation does not follow from the one before."""

    def rows(self, column: Any, index: np.ndarray) -> np.ndarray:
        """Observations `(B, ...)` of a column."""
        return column[index]

    def to_arrays(self, columns: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """Name → what is kept, as arrays for a checkpoint."""
        return {
            name: np.asarray(column, self.dtype).reshape(-1, *self.shape)
            for name, column in columns.items()
        }

    def from_arrays(self, arrays: Mapping[str, np.ndarray], names: Sequence[str]) -> dict[str, Any]:
        """Name → what `to_arrays` made an array of.

        Raises:
            InvalidInput: if the arrays are of other observations.
        """
        for name in names:
            _check(name, arrays[name], self.shape, self.dtype)
        return {name: arrays[name] for name in names}


class StoredFrames(StoredArrays):
    """Keeps every frame of stacked observations once, as neighbours in an episode share them.

    Of four frames an observation has three in common with the one before it. Where the observations
    before and after a step are kept, each frame would be there eight times.

    Args:
        shape: of one observation; its last axis holds `frames` times as many channels as a frame.
        dtype: of an observation.
        frames: int, how many are stacked along the last axis, oldest first.
        num_envs: int, environments whose episodes are followed.

    Raises:
        InvalidInput: if the last axis holds no whole number of channels for each frame.

    Example:
        >>> stored = StoredFrames((1, 1, 2), "uint8", frames=2, num_envs=1)
        >>> first, second = np.array([[[1, 2]]], "uint8"), np.array([[[2, 3]]], "uint8")
        >>> before, after = stored.of_step(0, first, second)
        >>> before[1] is after[0]
        True
    """

    def __init__(self, shape: Sequence[int], dtype: Any, frames: int, num_envs: int) -> None:
        super().__init__(shape, np.dtype(dtype))
        if not self.shape or self.shape[-1] % frames:
            raise InvalidInput(
                f"expected a whole number of channels for each of {frames} frames in the last axis "
                f"of an observation; received shape {self.shape}"
            )
        self.frames = frames
        self.frame_shape = (*self.shape[:-1], self.shape[-1] // frames)
        self._newest: list[Stack | None] = [None] * num_envs

    def column(self, capacity: int) -> Any:
        """Room for so many."""
        return [()] * capacity

    def of_step(self, env: int, observation_t: Any, observation_tp1: Any) -> tuple[Stack, Stack]:
        """The frames before and after a step, of which one is new unless the episode is."""
        before = self._newest[env] or self._apart(observation_t)
        after = (*before[1:], self._apart(observation_tp1)[-1].copy())
        self._newest[env] = after
        return before, after

    def begin_episode(self, env: int) -> None:
        """An environment's next observation does not follow from the one before."""
        self._newest[env] = None

    def _apart(self, observation):
        # Views of a copy: the frames of an episode's first observation live about equally long.
        return tuple(np.split(np.array(observation, self.dtype), self.frames, axis=-1))

    def rows(self, column: Any, index: np.ndarray) -> np.ndarray:
        """Observations `(B, ...)` of a column."""
        return np.stack([np.concatenate(column[i], axis=-1) for i in index])

    def to_arrays(self, columns: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """Every frame once, as `frames` `(K, ...)`, and each name's `(rows, frames)` places."""
        kept: dict[int, np.ndarray] = {}
        for stacks in columns.values():
            for stack in stacks:
                kept |= {id(frame): frame for frame in stack}
        place = {key: number for number, key in enumerate(kept)}
        places = {
            name: np.array([[place[id(frame)] for frame in stack] for stack in stacks], np.int64)
            for name, stacks in columns.items()
        }
        frames = np.array([*kept.values()], self.dtype).reshape(-1, *self.frame_shape)
        return {
            "frames": frames,
            **{name: array.reshape(-1, self.frames) for name, array in places.items()},
        }

    def from_arrays(self, arrays: Mapping[str, np.ndarray], names: Sequence[str]) -> dict[str, Any]:
        """Name → what `to_arrays` made an array of; what follows shares no frame with it.

        Raises:
            InvalidInput: if the arrays are of other frames.
        """
        _check("frames", arrays["frames"], self.frame_shape, self.dtype)
        for name in names:
            _check(name, arrays[name], (self.frames,), np.int64)
        self._newest = [None] * len(self._newest)
        # Views of the whole block would keep it alive as long as any of them is.
        frames = [frame.copy() for frame in arrays["frames"]]
        return {
            name: [tuple(frames[place] for place in row) for row in arrays[name].tolist()]
            for name in names
        }


def _check(name, array, shape, dtype):
    if array.shape[1:] != tuple(shape) or array.dtype != dtype:
        raise InvalidInput(
            f"replay state {name!r} is {array.dtype}{array.shape[1:]} a row, "
            f"expected {np.dtype(dtype)}{tuple(shape)}"
        )
