"""Profiles for TensorBoard: some steps of a run, each with its marker."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

import keras
import tensorflow as tf

Item = TypeVar("Item")


WARM_UP = 10
"""Steps that make graphs, compile and fill caches."""


def profiled(
    iterator: Iterable[Item],
    folder: str | os.PathLike,
    begins: Callable[[int], bool] | None = None,
    count: int = 20,
) -> Iterator[Item]:
    """Passes an iterator on, recording `count` of its items for TensorBoard's profiler.

    Each item's making is one step in the profile, so the step-time graph shows something; a
    custom loop without markers gets "no step markers observed".

    Args:
        iterator: any iterator, such as `Loop.run(...)`.
        folder: path the profile is written to, as TensorBoard's log directory.
        begins: function of an item's number → whether to record from it on; by default never.
        count: items to record.

    Example:
        >>> steps = profiled(range(5), "runs/first", lambda number: number == 1, count=2)
        >>> for step in steps:  # doctest: +ELLIPSIS
        ...     print(step)
        0
        1
        written: a profile; tensorboard --logdir runs/first shows it...
        2
        3
        4
    """
    recorder = _Recorder(folder, begins or (lambda number: False), count)
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
        >>> model = keras.Sequential([keras.layers.Dense(1)])
        >>> model.compile("sgd", "mse")
        >>> data, profile = tf.ones((8, 1)), Profile("runs/first", first=1, count=2)
        >>> _ = model.fit(data, data, 2, verbose=0, callbacks=[profile])  # doctest: +ELLIPSIS
        written: a profile; tensorboard --logdir runs/first shows it...
    """

    def __init__(self, folder: str | os.PathLike, first: int, count: int = 20) -> None:
        super().__init__()
        self._recorder = _Recorder(folder, lambda number: number == first, count)

    def on_train_batch_begin(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        self._recorder.begin()

    def on_train_batch_end(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        self._recorder.end()

    def on_train_end(self, logs: Mapping[str, Any] | None = None) -> None:
        self._recorder.stop()


class _Recorder:
    """Counts steps, and records some, once."""

    def __init__(self, folder, begins, count):
        self._folder, self._begins, self._left = str(folder), begins, count
        self._step = 0
        self._marker = None
        self._recording = False

    def begin(self):
        if self._left and not self._recording and self._begins(self._step):
            tf.profiler.experimental.start(self._folder)
            self._recording = True
        if self._recording:
            self._marker = tf.profiler.experimental.Trace("train", step_num=self._step, _r=1)
            self._marker.__enter__()

    def end(self):
        self._step += 1
        if self._marker is not None:
            self._marker.__exit__(None, None, None)
            self._marker = None
            self._left -= 1
            if not self._left:
                self.stop()

    def stop(self):
        if self._recording:
            self._recording, self._left = False, 0
            tf.profiler.experimental.stop()
            print(f"written: a profile; tensorboard --logdir {self._folder} shows it{_missing()}")


def _missing():
    """What the reader of a profile lacks; to record one, TensorFlow is enough."""
    if importlib.util.find_spec("xprof"):
        return ""
    return ", once its page is installed: pip install '.[profile]'"
