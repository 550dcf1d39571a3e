"""A TensorBoard profile of a custom loop, with step markers."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterable, Iterator
from typing import TypeVar

import tensorflow as tf

T = TypeVar("T")


def profiled(
    iterator: Iterable[T], folder: str | os.PathLike, first: int | None = None, count: int = 20
) -> Iterator[T]:
    """Passes an iterator on, recording `count` of its items for TensorBoard's profiler.

    Each item's making is one step in the profile, so the step-time graph shows something; a
    custom loop without markers gets "no step markers observed".

    Args:
        iterator: any iterator, such as `Loop.run(...)`.
        folder: path the profile is written to, as TensorBoard's log directory.
        first: int or None, the item at which to begin; `None` records nothing.
        count: int, items to record.

    Example:
        >>> for record in profiled(loop.run(30_000), folder.path, first=500):
        ...     ...
    """
    iterator = iter(iterator)
    for position in itertools.count():
        if position == first:
            tf.profiler.experimental.start(str(folder))
        elif first is not None and position == first + count:
            tf.profiler.experimental.stop()
        recording = first is not None and first <= position < first + count
        step = tf.profiler.experimental.Trace("step", step_num=position, _r=1)
        try:
            with step if recording else contextlib.nullcontext():
                item = next(iterator)
        except StopIteration:
            if recording:
                tf.profiler.experimental.stop()
            return
        yield item
