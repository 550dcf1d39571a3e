"""Runs requests off the event loop, merging those that wait at the same time."""

from __future__ import annotations

import asyncio
import collections
import concurrent.futures
import dataclasses
import logging
import math
import os
import time
import weakref
from typing import Any

import numpy as np

from serving.errors import ServingError, invalid

_log = logging.getLogger("serving")
# Bytes of inputs from which on a request is a large one.
_LARGE = 1 << 14
# After this share of the timeout without anyone coming nobody is waited for any more. gRPC brings
# requests one by one: a timeout short enough for a pause would end many a batch half full.
_QUIET_SHARE = 0.2
# For so long after a small request another is expected.
_COURTESY_SECONDS = 0.05


@dataclasses.dataclass(frozen=True)
class BatchingParameters:
    """How requests merge; names and defaults of TensorFlow Serving's BatchingParameters.

    One default is another: the stock server's `batch_timeout_micros` is 0, because there every
    request waits for it. Here it bounds how long one waits for company that is likely to come.

    Attributes:
        max_batch_size: Rows of a merged batch.
        batch_timeout_micros: Longest that a request waits for company, microseconds; a fifth of it
            if meanwhile nobody comes.
        max_enqueued_batches: Batches that may wait; past them requests are UNAVAILABLE.
        num_batch_threads: Batches that run at once, all models together.
        allowed_batch_sizes: Ascending; a batch is padded up to the next, the last is
            `max_batch_size`. Empty: no padding.
        pad_variable_length_inputs: Whether requests of other inner sizes merge too, each padded
            behind with its first value to the largest; else they run apart.
        enable_large_batch_splitting: Whether a request of more than `max_batch_size` rows runs in
            parts, instead of being refused.
        max_execution_batch_size: Rows of such a part, 0 for `max_batch_size`.
        thread_pool_name: Name of the threads.
    """

    max_batch_size: int = 1000
    batch_timeout_micros: int = 10_000
    max_enqueued_batches: int = 10
    num_batch_threads: int = dataclasses.field(default_factory=lambda: os.cpu_count() or 1)
    allowed_batch_sizes: tuple = ()
    pad_variable_length_inputs: bool = False
    enable_large_batch_splitting: bool = False
    max_execution_batch_size: int = 0
    thread_pool_name: str = "batch_threads"

    def __post_init__(self):
        for name in ("max_batch_size", "max_enqueued_batches", "num_batch_threads"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1; received {getattr(self, name)}")
        for name in ("batch_timeout_micros", "max_execution_batch_size"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must not be negative; received {getattr(self, name)}")
        sizes = self.allowed_batch_sizes
        if sizes and (list(sizes) != sorted(set(sizes)) or sizes[-1] != self.max_batch_size):
            raise ValueError(
                f"allowed_batch_sizes must ascend to max_batch_size {self.max_batch_size}; "
                f"received {list(sizes)}"
            )

    def padded(self, rows: int) -> int:
        """Returns the size to which a batch of so many rows is padded."""
        return next((size for size in self.allowed_batch_sizes if size >= rows), rows)


class _Group:
    """Waiting requests that may run together: one version, signature, outputs and inner shape."""

    __slots__ = ("crowd", "items", "large", "outputs", "rows", "servable", "signature")

    def __init__(self, servable, signature, outputs, crowd, large):
        self.large = large
        self.servable, self.signature, self.outputs = servable, signature, outputs
        self.crowd = crowd
        self.items = collections.deque()
        self.rows = 0


class _Crowd:
    """How many requests of a signature are usually open at once: whom a batch may wait for."""

    __slots__ = ("open", "usual")

    def __init__(self):
        self.open, self.usual = 0, 1

    def joined(self):
        """One more is open."""
        self.open += 1
        self.usual = max(self.usual, self.open)

    def left(self, count):
        """So many are answered, or gone."""
        self.open -= count


class _Item:
    __slots__ = ("arrival", "future", "inputs", "rows")

    def __init__(self, inputs, rows, future):
        self.inputs, self.rows, self.future = inputs, rows, future
        self.arrival = time.monotonic()


class Scheduler:
    """Hands requests to a few threads, batch by batch.

    The batch adapts. Requests that arrive while all threads are busy run together next. While a
    thread is free, a request waits, for `batch_timeout_micros` at most, until as many are there as
    have lately been open at the same time; so a lone client never waits, and a crowd is not served
    one by one at the price of a thread's wake-up each.

    Large requests and small ones take turns: they never share a batch, and while small ones come,
    the large leave them a thread, so that none waits for one that takes a hundred times as long.

    All methods belong to the event loop's thread; the threads only execute.

    Args:
        num_threads: Batches that run at once.
        thread_name: What their threads are called.
        metrics: `Metrics` that count batches, if any do.
    """

    def __init__(
        self, num_threads: int, thread_name: str = "inference", metrics: Any = None
    ) -> None:
        self._metrics = metrics
        self._threads, self._thread_name = num_threads, thread_name
        self._executor = concurrent.futures.ThreadPoolExecutor(num_threads, thread_name)
        self._groups: collections.OrderedDict[Any, Any] = collections.OrderedDict()
        self._crowds: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
        self._running = {True: 0, False: 0}  # of large ones, of small ones
        self._last_was_large = True
        self._small_came = -math.inf
        self._wake = None

    async def run(
        self, servable: Any, signature: Any, inputs: dict[str, Any], outputs: Any
    ) -> dict[str, np.ndarray]:
        """Returns name -> array; raises ServingError.

        Args:
            servable: The version to run, with a lease held by the caller; its `batching` are the
                `BatchingParameters` of its requests, or None to run each by itself.
            signature: One of its signatures.
            inputs: Arrays that `signature.check` returned.
            outputs: Names that `signature.choose_outputs` returned.
        """
        loop = asyncio.get_running_loop()
        item = _Item(inputs, 1, loop.create_future())
        large = sum(array.nbytes for array in inputs.values()) > _LARGE
        if not large:
            self._small_came = item.arrival
        key: Any = item  # its own group, unless it may merge
        parameters = servable.batching
        if parameters is not None and signature.in_rows:
            item.rows = _check_rows(inputs, parameters)
            if item.rows <= parameters.max_batch_size:
                pads = parameters.pad_variable_length_inputs
                inner = tuple(a.ndim if pads else a.shape[1:] for a in inputs.values())
                key = (servable, signature.name, outputs, inner, large)
        group = self._groups.get(key)
        if group is None:
            crowds = self._crowds.setdefault(servable, {})
            crowd = crowds.setdefault(signature.name, _Crowd())
            group = self._groups[key] = _Group(servable, signature, outputs, crowd, large)
        elif group.rows + item.rows > parameters.max_enqueued_batches * parameters.max_batch_size:
            raise ServingError("UNAVAILABLE", "The batching queue is full")
        group.items.append(item)
        group.rows += item.rows
        group.crowd.joined()
        # Later in this turn of the loop: what arrived in the same turn goes along.
        self._dispatch_at(loop, 0.0)
        return await item.future

    def _dispatch_at(self, loop, delay):
        when = loop.time() + delay
        if self._wake is not None:
            if self._wake[0] <= when:
                return
            self._wake[1].cancel()
        handle = loop.call_later(delay, self._dispatch) if delay else loop.call_soon(self._dispatch)
        self._wake = (when, handle)

    def _dispatch(self):
        self._wake = None
        now = time.monotonic()
        soonest = None
        for key in self._in_turn():
            if sum(self._running.values()) >= self._threads:
                return
            group = self._groups[key]
            patience = max(self._patience(group, now), self._courtesy(group, now))
            if patience > 0:
                soonest = min(patience, soonest or patience)
                continue
            batch = self._take(group)
            if group.items:
                self._groups.move_to_end(key)
            else:
                del self._groups[key]
            if batch:
                self._start(group, batch)
        if soonest:
            self._dispatch_at(asyncio.get_running_loop(), soonest)
        elif self._groups and sum(self._running.values()) < self._threads:
            self._dispatch_at(asyncio.get_running_loop(), 0.0)

    def _in_turn(self):
        """Returns the keys of the groups, first those of the size that did not run last."""
        return sorted(self._groups, key=lambda k: self._groups[k].large == self._last_was_large)

    def _courtesy(self, group, now):
        """Returns how many seconds a large group still leaves the last thread to small ones."""
        free = self._threads - sum(self._running.values())
        if not group.large or self._threads == 1 or free > 1 or self._running[False]:
            return 0.0
        return self._small_came + _COURTESY_SECONDS - now

    def _patience(self, group, now):
        """Returns how many seconds a group still waits for company."""
        parameters = group.servable.batching
        if parameters is None or not parameters.batch_timeout_micros:
            return 0.0
        if group.rows >= parameters.max_batch_size:
            return 0.0
        if len(group.items) >= group.crowd.usual:
            return 0.0
        timeout = parameters.batch_timeout_micros / 1e6
        first, last = group.items[0].arrival, group.items[-1].arrival
        patience = min(first + timeout, last + _QUIET_SHARE * timeout) - now
        if patience <= 0:
            group.crowd.usual = len(group.items)  # no more than these came in time
        return patience

    def _take(self, group):
        """Removes and returns the oldest requests that fit one batch, dropping cancelled ones."""
        batch, rows = [], 0
        while group.items:
            item = group.items[0]
            if batch and rows + item.rows > group.servable.batching.max_batch_size:
                break
            group.items.popleft()
            group.rows -= item.rows
            if item.future.done():
                group.crowd.left(1)
                continue
            batch.append(item)
            rows += item.rows
        return batch

    def _start(self, group, batch):
        if self._metrics is not None and group.servable.batching is not None:
            self._count(group.servable.batching, batch)
        self._running[group.large] += 1
        self._last_was_large = group.large
        # The version stays loaded while it runs, even if every client of the batch hangs up.
        group.servable.acquire()
        loop = asyncio.get_running_loop()
        self._executor.submit(self._execute, loop, group, batch)

    def _count(self, parameters, batch):
        metrics, now = self._metrics, time.monotonic()
        rows = sum(item.rows for item in batch)
        queuing_latency = metrics.queuing_latency.labels(self._thread_name)
        for item in batch:
            queuing_latency.observe((now - item.arrival) * 1e6)
            metrics.input_batch_size.observe(item.rows)
        metrics.wrapped_run_count.inc()
        metrics.processed_batch_size.observe(parameters.padded(rows))
        metrics.padding_size.observe(parameters.padded(rows) - rows)

    def _execute(self, loop, group, batch):
        results = self._results(group, batch)
        loop.call_soon_threadsafe(self._finish, group, batch, results)

    def _results(self, group, batch):
        """Returns a dict of outputs or an error for each request; runs in a thread."""
        try:
            return self._run_merged(group, batch)
        except ServingError as error:
            if len(batch) == 1:
                return [error]
            # One of them spoilt the batch: each gets its own answer.
            return [self._results(group, [item])[0] for item in batch]
        except Exception as error:
            _log.exception("unexpected error in %s", group.servable.name)
            return [ServingError("INTERNAL", f"{type(error).__name__}: {error}")] * len(batch)

    def _run_merged(self, group, batch):
        rows = sum(item.rows for item in batch)
        if group.servable.batching is None or not group.signature.in_rows:
            return [group.servable.run(group.signature, batch[0].inputs, group.outputs)]
        inputs = {
            name: _merged([item.inputs[name] for item in batch]) for name in group.signature.inputs
        }
        outputs = self._run_parts(group, inputs, rows)
        if len(batch) == 1:
            return [outputs]
        ends = np.cumsum([item.rows for item in batch])
        return [
            {name: array[end - item.rows : end] for name, array in outputs.items()}
            for item, end in zip(batch, ends)
        ]

    def _run_parts(self, group, inputs, rows):
        """Runs a batch, or a request too large for one in parts, padded to an allowed size."""
        parameters = group.servable.batching
        limit = parameters.max_batch_size
        if rows > limit:
            limit = parameters.max_execution_batch_size or limit
        parts = []
        for start in range(0, max(rows, 1), limit):
            part = {name: array[start : start + limit] for name, array in inputs.items()}
            size = min(limit, rows - start)
            extra = parameters.padded(size) - size if size else 0
            if extra:
                part = {
                    name: np.concatenate([array, np.repeat(array[-1:], extra, axis=0)])
                    for name, array in part.items()
                }
            outputs = group.servable.run(group.signature, part, group.outputs)
            if any(array.ndim == 0 or len(array) != size + extra for array in outputs.values()):
                shapes = {name: array.shape for name, array in outputs.items()}
                raise ServingError(
                    "FAILED_PRECONDITION",
                    f"a batch of {size + extra} rows was answered with shapes {shapes}",
                )
            parts.append({name: array[:size] for name, array in outputs.items()})
        if len(parts) == 1:
            return parts[0]
        return {name: np.concatenate([part[name] for part in parts]) for name in group.outputs}

    def _finish(self, group, batch, results):
        self._running[group.large] -= 1
        group.servable.release()
        group.crowd.left(len(batch))
        for item, result in zip(batch, results):
            if item.future.done():
                continue
            if isinstance(result, ServingError):
                item.future.set_exception(result)
            else:
                item.future.set_result(result)
        if self._groups:
            self._dispatch_at(asyncio.get_running_loop(), 0.0)

    def close(self) -> None:
        """Ends the threads, each when its batch has finished."""
        self._executor.shutdown(wait=False)


def _check_rows(inputs, parameters):
    """Returns how many rows a request holds; raises INVALID_ARGUMENT if it cannot be batched."""
    sizes = {name: len(array) for name, array in inputs.items()}
    rows = next(iter(sizes.values()))
    if set(sizes.values()) != {rows}:
        raise invalid(f"batching needs inputs of one size along axis 0; received {sizes}")
    if rows > parameters.max_batch_size and not parameters.enable_large_batch_splitting:
        raise invalid(
            f"request of {rows} rows is larger than the maximum batch size "
            f"{parameters.max_batch_size}"
        )
    return rows


def _merged(arrays):
    """Returns arrays of one rank behind one another, padded to one inner shape."""
    if len(arrays) == 1:
        return arrays[0]
    inner = {array.shape[1:] for array in arrays}
    if len(inner) > 1:
        largest = np.max(list(inner), axis=0)
        arrays = [_padded_behind(array, largest) for array in arrays]
    return np.concatenate(arrays)


def _padded_behind(array, inner_shape):
    fill = array.flat[0] if array.size else np.zeros((), array.dtype)[()]
    whole = np.full((len(array), *inner_shape), fill, array.dtype)
    whole[tuple(slice(size) for size in array.shape)] = array
    return whole
