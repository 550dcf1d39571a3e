"""Runs requests off the event loop, and merges those that wait at the same time."""

from __future__ import annotations

import asyncio
import collections
import concurrent.futures
import dataclasses
import logging
import math
import os
import weakref
from typing import Any

import numpy as np

from serving.errors import ServingError, invalid

_log = logging.getLogger("serving")
_LARGE = 1 << 14  # bytes of inputs of a large request
# A batch stops waiting when no request arrives for this fraction of the timeout. gRPC delivers
# requests one by one: a timeout as short as a pause would end many a batch half full.
_QUIET_FRACTION = 0.2
# For so long after a small request another one is likely.
_SMALL_SECONDS = 0.05


@dataclasses.dataclass(frozen=True)
class BatchingParameters:
    """How requests merge; names and defaults of TensorFlow Serving's BatchingParameters.

    One default differs: the `batch_timeout_micros` of tensorflow_model_server is 0, because there
    every request waits for it. Here it limits how long a request waits for others that are likely.

    Attributes:
        max_batch_size: Rows of a merged batch.
        batch_timeout_micros: Longest wait for other requests, in microseconds; a fifth of it if
            none arrives.
        max_enqueued_batches: Batches that may wait; further requests are UNAVAILABLE.
        num_batch_threads: Batches that run at once, of all models.
        allowed_batch_sizes: Ascending sizes to which batches are padded; the last one is
            `max_batch_size`. Empty for no padding.
        pad_variable_length_inputs: Whether requests with other inner sizes merge, each padded
            behind with its first value to the largest size; otherwise they run apart.
        enable_large_batch_splitting: Whether a request of more than `max_batch_size` rows runs in
            parts; otherwise it is refused.
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
                raise ValueError(f"`{name}` must be at least 1; received {getattr(self, name)}.")
        for name in ("batch_timeout_micros", "max_execution_batch_size"):
            if getattr(self, name) < 0:
                raise ValueError(f"`{name}` must not be negative; received {getattr(self, name)}.")
        sizes = self.allowed_batch_sizes
        if sizes and (list(sizes) != sorted(set(sizes)) or sizes[-1] != self.max_batch_size):
            raise ValueError(
                f"`allowed_batch_sizes` must ascend to `max_batch_size` {self.max_batch_size}; "
                f"received {list(sizes)}."
            )

    def padded(self, rows: int) -> int:
        """Return the size to which a batch of so many rows is padded."""
        return next((size for size in self.allowed_batch_sizes if size >= rows), rows)


@dataclasses.dataclass
class ConcurrencyEstimate:
    """How many requests of a signature are in progress, and usually are: a batch waits for them."""

    current: int = 0
    usual: int = 1


@dataclasses.dataclass(eq=False, slots=True)
class _Request:
    inputs: dict[str, np.ndarray]
    rows: int
    arrival: float
    future: asyncio.Future


@dataclasses.dataclass(eq=False, slots=True)
class _Group:
    """Waiting requests that may run together: one version, signature, outputs and inner shape."""

    servable: Any
    signature: Any
    outputs: Any
    concurrency: ConcurrencyEstimate
    is_large: bool
    requests: collections.deque = dataclasses.field(default_factory=collections.deque)
    rows: int = 0


class Scheduler:
    """Runs requests in a few threads, batch by batch.

    Requests that arrive while all threads are busy run together next. While a thread is free, a
    request waits, for `batch_timeout_micros` at most, until as many others are waiting as were in
    progress at the same time before. So a lone client never waits, and many clients do not run one
    by one, which would cost a thread's wake-up each.

    Large and small requests take turns and never share a batch. While small requests arrive, the
    large ones leave a thread free, so that no small one waits for a run of a hundred times its own.

    All methods belong to the event loop's thread.

    Args:
        num_threads: Batches that run at once.
        thread_name: Name of the threads.
        metrics: `Metrics` that count batches; None for none.
    """

    def __init__(
        self, num_threads: int, thread_name: str = "inference", metrics: Any = None
    ) -> None:
        self._num_threads, self._thread_name, self._metrics = num_threads, thread_name, metrics
        self._executor = concurrent.futures.ThreadPoolExecutor(num_threads, thread_name)
        self._groups: collections.OrderedDict[Any, _Group] = collections.OrderedDict()
        self._concurrency: weakref.WeakKeyDictionary[Any, dict[str, ConcurrencyEstimate]]
        self._concurrency = weakref.WeakKeyDictionary()
        self._running = {"large": 0, "small": 0}
        self._last_was_large = True
        self._last_small_arrival = -math.inf
        self._timer: asyncio.TimerHandle | None = None

    async def run(
        self, servable: Any, signature: Any, inputs: dict[str, Any], outputs: Any
    ) -> dict[str, np.ndarray]:
        """Return array by output; raise ServingError.

        Args:
            servable: The version to run, which the caller keeps loaded. Its `batching` are the
                `BatchingParameters` of its requests; None to run each by itself.
            signature: One of its signatures.
            inputs: Arrays that `signature.check` returned.
            outputs: Names that `signature.choose_outputs` returned.
        """
        loop = asyncio.get_running_loop()
        request = _Request(inputs, 1, loop.time(), loop.create_future())
        is_large = sum(array.nbytes for array in inputs.values()) > _LARGE
        if not is_large:
            self._last_small_arrival = request.arrival
        key: Any = request  # a group of its own, unless it may merge
        parameters = servable.batching
        if parameters is not None and signature.can_merge(inputs):
            request.rows = _check_rows(inputs, parameters)
            if request.rows <= parameters.max_batch_size:
                pads = parameters.pad_variable_length_inputs
                inner = tuple(a.ndim if pads else a.shape[1:] for a in inputs.values())
                key = (servable, signature.name, outputs, inner, is_large)
        group = self._groups.get(key)
        if group is None:
            estimates = self._concurrency.setdefault(servable, {})
            concurrency = estimates.setdefault(signature.name, ConcurrencyEstimate())
            group = _Group(servable, signature, outputs, concurrency, is_large)
            self._groups[key] = group
        elif (
            group.rows + request.rows > parameters.max_enqueued_batches * parameters.max_batch_size
        ):
            raise ServingError("UNAVAILABLE", "The batching queue is full")
        group.requests.append(request)
        group.rows += request.rows
        concurrency = group.concurrency
        concurrency.current += 1
        concurrency.usual = max(concurrency.usual, concurrency.current)
        # In the loop's next iteration, so that requests of the same iteration run together.
        self._dispatch_after(0.0)
        return await request.future

    def _dispatch_after(self, delay):
        """Dispatch after a delay, if that is earlier than planned."""
        loop = asyncio.get_running_loop()
        when = loop.time() + delay
        if self._timer is not None:
            if self._timer.when() <= when:
                return
            self._timer.cancel()
        self._timer = loop.call_at(when, self._dispatch)

    def _dispatch(self):
        self._timer = None
        now, delays = asyncio.get_running_loop().time(), []
        # Groups of the size that did not run last come first.
        for key in sorted(
            self._groups, key=lambda key: self._groups[key].is_large == self._last_was_large
        ):
            if sum(self._running.values()) >= self._num_threads:
                return
            group = self._groups[key]
            delay = max(self._batch_delay(group, now), self._large_delay(group, now))
            if delay > 0:
                delays.append(delay)
                continue
            batch = self._take(group)
            if group.requests:
                self._groups.move_to_end(key)
                delays.append(0.0)
            else:
                del self._groups[key]
            if batch:
                self._start(group, batch)
        if delays:
            self._dispatch_after(min(delays))

    def _batch_delay(self, group, now):
        """Return how many seconds a group still waits for other requests."""
        parameters, concurrency = group.servable.batching, group.concurrency
        if (
            parameters is None
            or not parameters.batch_timeout_micros
            or group.rows >= parameters.max_batch_size
            or len(group.requests) >= concurrency.usual
        ):
            return 0.0
        timeout = parameters.batch_timeout_micros / 1e6
        first, last = group.requests[0].arrival, group.requests[-1].arrival
        delay = min(first + timeout, last + _QUIET_FRACTION * timeout) - now
        if delay <= 0:
            concurrency.usual = len(group.requests)
        return delay

    def _large_delay(self, group, now):
        """Return how many seconds a large group still leaves the last thread to small ones."""
        free = self._num_threads - sum(self._running.values())
        if not group.is_large or self._num_threads == 1 or free > 1 or self._running["small"]:
            return 0.0
        return self._last_small_arrival + _SMALL_SECONDS - now

    def _take(self, group):
        """Remove and return the oldest requests that fit one batch; drop cancelled ones."""
        batch, rows = [], 0
        while group.requests:
            request = group.requests[0]
            if batch and rows + request.rows > group.servable.batching.max_batch_size:
                break
            group.requests.popleft()
            group.rows -= request.rows
            if request.future.done():
                group.concurrency.current -= 1
                continue
            batch.append(request)
            rows += request.rows
        return batch

    def _start(self, group, batch):
        loop = asyncio.get_running_loop()
        if self._metrics is not None and group.servable.batching is not None:
            self._count(group.servable.batching, batch, loop.time())
        self._running["large" if group.is_large else "small"] += 1
        self._last_was_large = group.is_large
        # The version stays loaded while it runs, even if every client of the batch disconnects.
        group.servable.users += 1

        def execute():
            results = _run_batch(group, batch)
            loop.call_soon_threadsafe(self._finish, group, batch, results)

        self._executor.submit(execute)

    def _count(self, parameters, batch, now):
        metrics = self._metrics
        rows = sum(request.rows for request in batch)
        queuing_latency = metrics.queuing_latency.labels(self._thread_name)
        for request in batch:
            queuing_latency.observe((now - request.arrival) * 1e6)
            metrics.input_batch_size.observe(request.rows)
        metrics.wrapped_run_count.inc()
        metrics.processed_batch_size.observe(parameters.padded(rows))
        metrics.padding_size.observe(parameters.padded(rows) - rows)

    def _finish(self, group, batch, results):
        self._running["large" if group.is_large else "small"] -= 1
        group.servable.users -= 1
        group.concurrency.current -= len(batch)
        for request, result in zip(batch, results):
            if request.future.done():
                continue
            if isinstance(result, ServingError):
                request.future.set_exception(result)
            else:
                request.future.set_result(result)
        if self._groups:
            self._dispatch_after(0.0)

    def close(self) -> None:
        """End the threads, each after its batch."""
        self._executor.shutdown(wait=False)


def _run_batch(group, batch):
    """Return array by output, or an error, for each request of a batch."""
    try:
        return _run_merged(group, batch)
    except ServingError as error:
        if len(batch) == 1:
            return [error]
        # One request fails the batch: each of them runs alone.
        return [_run_batch(group, [request])[0] for request in batch]
    except Exception as error:
        _log.exception("unexpected error in %s", group.servable.name)
        return [ServingError("INTERNAL", f"{type(error).__name__}: {error}")] * len(batch)


def _run_merged(group, batch):
    if group.servable.batching is None or not group.signature.can_merge(batch[0].inputs):
        return [group.servable.run(group.signature, batch[0].inputs, group.outputs)]
    rows = [request.rows for request in batch]
    inputs = {
        name: _concatenate([request.inputs[name] for request in batch])
        for name in group.signature.inputs
    }
    outputs = _run_parts(group, inputs, sum(rows))
    if len(batch) == 1:
        return [outputs]
    ends = np.cumsum(rows)
    return [
        {name: array[end - size : end] for name, array in outputs.items()}
        for size, end in zip(rows, ends)
    ]


def _run_parts(group, inputs, rows):
    """Run a batch padded to an allowed size, or in parts if it is larger than a batch."""
    parameters = group.servable.batching
    limit = parameters.max_batch_size
    if rows > limit:
        limit = parameters.max_execution_batch_size or limit
    parts = []
    for start in range(0, max(rows, 1), limit):
        size = min(limit, rows - start)
        padded = parameters.padded(size) if size else 0
        # A padded row is a copy of the last one.
        chosen = np.minimum(np.arange(start, start + padded), rows - 1)
        part = inputs
        if not size == padded == rows:
            part = {name: array[chosen] for name, array in inputs.items()}
        outputs = group.servable.run(group.signature, part, group.outputs)
        if any(array.ndim == 0 or len(array) != padded for array in outputs.values()):
            shapes = {name: array.shape for name, array in outputs.items()}
            raise ServingError(
                "FAILED_PRECONDITION",
                f"a batch of {padded} rows was answered with shapes {shapes}",
            )
        parts.append({name: array[:size] for name, array in outputs.items()})
    if len(parts) == 1:
        return parts[0]
    return {name: np.concatenate([part[name] for part in parts]) for name in group.outputs}


def _check_rows(inputs, parameters):
    """Return the rows of a request; raise INVALID_ARGUMENT if it cannot be batched."""
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


def _concatenate(arrays):
    """Return the rows of several arrays, padded to one inner shape."""
    if len(arrays) == 1:
        return arrays[0]
    inner = {array.shape[1:] for array in arrays}
    if len(inner) > 1:
        largest = np.max(list(inner), axis=0)
        arrays = [_pad_inner(array, largest) for array in arrays]
    return np.concatenate(arrays)


def _pad_inner(array, inner_shape):
    fill = array.flat[0] if array.size else np.zeros((), array.dtype)[()]
    whole = np.full((len(array), *inner_shape), fill, array.dtype)
    whole[tuple(slice(size) for size in array.shape)] = array
    return whole
