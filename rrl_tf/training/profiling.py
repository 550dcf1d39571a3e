"""Profiles for TensorBoard: some steps of a run, each with its marker."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

import keras
import tensorflow as tf

Item = TypeVar("Item")


def first_profiled(steps: int, warm_up: int = 0) -> int:
    """Where to begin in a run of so many steps: half way, or earlier, past what only begins.

    Args:
        steps: of this process.
        warm_up: steps before all parts of a step take part. Ten more make graphs, and fill caches.

    Example:
        >>> first_profiled(1000), first_profiled(8)
        (10, 4)
    """
    return min(warm_up + 10, steps // 2)


def profiled(
    iterator: Iterable[Item], folder: str | os.PathLike, first: int | None = None, count: int = 20
) -> Iterator[Item]:
    """Passes an iterator on, recording `count` of its items for TensorBoard's profiler.

    Each item's making is one step in the profile, so the step-time graph shows something; a
    custom loop without markers gets "no step markers observed".

    Args:
        iterator: any iterator, such as `Loop.run(...)`.
        folder: path the profile is written to, as TensorBoard's log directory.
        first: the item at which to begin; `None` records nothing.
        count: items to record.

    Example:
        >>> for record in profiled(loop.run(30_000), folder.path, first=500):
        ...     ...
    """
    recorder = _Recorder(folder, range(0) if first is None else range(first, first + count))
    iterator = iter(iterator)
    try:
        while True:
            recorder.begin()
            try:
                item = next(iterator)
            except StopIteration:
                return
            finally:
                recorder.end()
            yield item
    finally:  # also where whoever iterates has had enough
        recorder.stop()


class Profile(keras.callbacks.Callback):
    """Records some training steps for TensorBoard's profiler, each with its step marker.

    Keras' own callback marks none on a CPU, whose step time then is 0.

    Args:
        folder: path, TensorBoard's log directory.
        first: the step of this `fit` at which to begin.
        count: steps to record.

    Example:
        >>> model.fit(data, callbacks=[Profile("runs/first", first=50)])
    """

    def __init__(self, folder: str | os.PathLike, first: int, count: int = 20) -> None:
        super().__init__()
        self._recorder = _Recorder(folder, range(first, first + count))

    def on_train_batch_begin(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        self._recorder.begin()

    def on_train_batch_end(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        self._recorder.end()

    def on_train_end(self, logs: Mapping[str, Any] | None = None) -> None:
        self._recorder.stop()


class _Recorder:
    """Counts steps, and records those within a window."""

    def __init__(self, folder, window):
        self._folder, self._window = str(folder), window
        self._step = 0
        self._marker = None
        self._recording = False

    def begin(self):
        if self._step in self._window:
            if not self._recording:
                tf.profiler.experimental.start(self._folder)
                self._recording = True
            self._marker = tf.profiler.experimental.Trace("train", step_num=self._step, _r=1)
            self._marker.__enter__()

    def end(self):
        if self._marker is not None:
            self._marker.__exit__(None, None, None)
            self._marker = None
        self._step += 1
        if self._step == self._window.stop:
            self.stop()

    def stop(self):
        if self._recording:
            self._recording = False
            tf.profiler.experimental.stop()
            print(f"written: a profile; tensorboard --logdir {self._folder} shows it{_missing()}")


def _missing():
    """What the reader of a profile lacks; to record one, TensorFlow is enough."""
    if importlib.util.find_spec("xprof"):
        return ""
    return ', once its page is installed: pip install "rrl_tf[profile]"'
