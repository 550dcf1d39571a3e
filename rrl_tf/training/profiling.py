"""A TensorBoard profile of a custom loop, with step markers."""

import contextlib
import itertools

import tensorflow as tf


def profiled(iterator, folder, first=None, count=20):
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
    running = False
    try:
        for position, item in enumerate(_marked(iterator, lambda: running)):
            yield item
            if first is not None and position + 1 == first:
                tf.profiler.experimental.start(str(folder))
                running = True
            elif running and position + 1 == first + count:
                tf.profiler.experimental.stop()
                running = False
    finally:
        if running:
            tf.profiler.experimental.stop()


def _marked(iterator, running):
    iterator = iter(iterator)
    for position in itertools.count():
        trace = tf.profiler.experimental.Trace("step", step_num=position, _r=1)
        try:
            with trace if running() else contextlib.nullcontext():
                item = next(iterator)
        except StopIteration:
            return
        yield item
