"""Record profiles of training steps for TensorBoard."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import keras
import tensorflow as tf

Item = TypeVar("Item")


WARM_UP = 10
"""Number of steps to skip before a profile, because they trace graphs, compile and fill caches."""


class Profile(keras.callbacks.Callback):
    """Records a profile of some training steps, with step markers, for TensorBoard.

    Keras' own callback writes no step markers on a CPU, so TensorBoard shows a step time of 0.

    Args:
        folder: log directory of TensorBoard.
        starts: number of the first recorded step, or a function of the step number that returns
            whether recording starts there. Steps are counted from 0 when the callback starts.
        count: number of steps to record.

    Example:
        >>> model = keras.Sequential([keras.layers.Dense(1)])
        >>> model.compile("sgd", "mse")
        >>> data, profile = tf.ones((8, 1)), Profile("runs/first", 1, count=2)
        >>> _ = model.fit(data, data, 2, verbose=0, callbacks=[profile])  # doctest: +ELLIPSIS
        written: a profile; to view it, run tensorboard --logdir runs/first...
    """

    def __init__(
        self, folder: str | os.PathLike, starts: int | Callable[[int], bool], count: int = 20
    ) -> None:
        super().__init__()
        self._folder, self._left = str(folder), count
        self._starts = starts if callable(starts) else starts.__eq__
        self._step, self._recording = 0, False

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        if self._left and not self._recording and self._starts(self._step):
            tf.profiler.experimental.start(self._folder)
            self._recording = True
        if self._recording:
            self._marker = tf.profiler.experimental.Trace("train", step_num=self._step, _r=1)
            self._marker.__enter__()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self._step += 1
        if self._recording:
            self._marker.__exit__(None, None, None)
            self._left -= 1
            if not self._left:
                self.on_train_end()

    def on_train_end(self, logs: Any = None) -> None:
        if self._recording:
            self._recording, self._left = False, 0
            tf.profiler.experimental.stop()
            hint = "" if importlib.util.find_spec("xprof") else " after pip install '.[profile]'"
            print(f"written: a profile; to view it, run tensorboard --logdir {self._folder}{hint}")


def profiled(
    iterator: Iterable[Item],
    folder: str | os.PathLike,
    starts: int | Callable[[int], bool],
    count: int = 20,
) -> Iterator[Item]:
    """Yield the items of an iterable, such as a training loop, and profile `count` of them.

    Computing one item counts as one step of the profile.

    Args:
        iterator: any iterable.
        folder, starts, count: arguments of `Profile`.

    Example:
        >>> steps = profiled(range(5), "runs/first", 1, count=2)
        >>> for step in steps:  # doctest: +ELLIPSIS
        ...     print(step)
        0
        1
        written: a profile; to view it, run tensorboard --logdir runs/first...
        2
        3
        4
    """
    profile = Profile(folder, starts, count)
    items = iter(iterator)
    try:
        while True:
            profile.on_train_batch_begin(0)
            try:
                item = next(items)
            except StopIteration:
                return
            finally:
                profile.on_train_batch_end(0)
            yield item
    finally:  # also if the caller stops early
        profile.on_train_end()
