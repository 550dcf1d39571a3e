"""Run requests in threads outside of the event loop, and merge concurrent ones into batches."""

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
from serving.server.telemetry import RequestRecord, current_request

_log = logging.getLogger("serving")
_LARGE = 1 << 14  # a request with more bytes of inputs counts as large
# A batch stops waiting if no request arrives for this fraction of the timeout. gRPC delivers
# concurrent requests one after another, so a shorter wait would often end with a half-full batch.
_QUIET_FRACTION = 0.2
# After a small request, the next one is likely to arrive within this time.
_SMALL_SECONDS = 0.05
# A batch that takes no longer runs in the event loop's thread, because a switch to another thread
# and back takes about as long and costs more CPU time than a small model.
_INLINE_SECONDS = 0.0005
_MAX_INLINE = 1000  # kinds of batches whose time is remembered for each version


@dataclasses.dataclass(frozen=True)
class BatchingParameters:
    """The parameters of batching, with the names and defaults of TensorFlow Serving.

    One default differs: `batch_timeout_micros` is 0 in tensorflow_model_server, where every request
    waits that long. In this server, a request waits only if others are likely to arrive, and at
    most that long.

    Attributes:
        max_batch_size: The maximum number of rows in a merged batch.
        batch_timeout_micros: The maximum wait for other requests, in microseconds. The wait ends
            after a fifth of that time if no request arrives.
        max_enqueued_batches: The maximum number of waiting batches; further requests fail with
            UNAVAILABLE.
        num_batch_threads: The number of batches that run at once, of all models together.
        allowed_batch_sizes: The sizes to which batches are padded, in ascending order; the last one
            must be `max_batch_size`. Empty for no padding.
        pad_variable_length_inputs: Whether requests whose rows differ in shape are merged. Each
            input is padded at the end of its axes to the largest size, with its own first value. If
            false, only requests with rows of the same shape are merged.
        enable_large_batch_splitting: Whether a request with more than `max_batch_size` rows runs in
            several parts. If false, it is rejected.
        max_execution_batch_size: The maximum number of rows in such a part; 0 for `max_batch_size`.
        thread_pool_name: The name of the threads.
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
                "`allowed_batch_sizes` must be in ascending order and end with `max_batch_size`, "
                f"which is {self.max_batch_size}; received {list(sizes)}."
            )

    def padded(self, rows: int) -> int:
        """Return the size to which a batch of `rows` rows is padded."""
        return next((size for size in self.allowed_batch_sizes if size >= rows), rows)


@dataclasses.dataclass
class ConcurrencyEstimate:
    """An estimate of how many concurrent requests a signature has.

    Attributes:
        current: The number of requests in progress now.
        usual: The number that is usually in progress; a batch waits until it has as many requests.
    """

    current: int = 0
    usual: int = 1


@dataclasses.dataclass(eq=False, slots=True)
class _Request:
    inputs: dict[str, np.ndarray]
    rows: int
    arrival: float
    future: asyncio.Future
    record: RequestRecord | None


@dataclasses.dataclass(eq=False, slots=True)
class _Group:
    """Waiting requests that can be merged.

    They have the same version, signature and outputs, and their rows have the same shape.
    """

    servable: Any
    signature: Any
    outputs: Any
    concurrency: ConcurrencyEstimate
    is_large: bool
    requests: collections.deque = dataclasses.field(default_factory=collections.deque)
    rows: int = 0


class Scheduler:
    """A queue of requests, which runs them in a few threads, batch by batch.

    While all threads are busy, arriving requests wait and are then merged into one batch. If a
    thread is free, a request waits until as many requests are waiting as were usually in progress
    before, but no longer than `batch_timeout_micros`. As a result, a single client never waits, and
    the requests of many clients are merged instead of each waking up a thread.

    A batch runs in the event loop's thread if the last batch with the same signature, outputs and
    size took at most half a millisecond.

    Large and small requests take turns and never share a batch. While small requests keep arriving,
    large ones leave one thread free, so that a small request does not have to wait for a large one,
    which may take a hundred times as long.

    All methods must be called in the event loop's thread.

    Args:
        num_threads: The number of batches that run at once.
        thread_name: The name of the threads.
        metrics: The `Metrics` that record batches; `None` to record nothing.
    """

    def __init__(
        self, num_threads: int, thread_name: str = "inference", metrics: Any = None
    ) -> None:
        self._num_threads, self._thread_name, self._metrics = num_threads, thread_name, metrics
        self._executor = concurrent.futures.ThreadPoolExecutor(num_threads, thread_name)
        self._groups: collections.OrderedDict[Any, _Group] = collections.OrderedDict()
        self._concurrency: weakref.WeakKeyDictionary[Any, dict[str, ConcurrencyEstimate]]
        self._concurrency = weakref.WeakKeyDictionary()
        # The (signature, outputs, bytes of inputs) of batches that are fast enough for the loop.
        self._fast: weakref.WeakKeyDictionary[Any, set] = weakref.WeakKeyDictionary()
        self._running = {"large": 0, "small": 0}
        self._last_was_large = True
        self._last_small_arrival = -math.inf
        self._timer: asyncio.TimerHandle | None = None
        if metrics is not None:
            metrics.queue_depth.set_function(
                lambda: sum(len(group.requests) for group in self._groups.values())
            )

    async def run(
        self, servable: Any, signature: Any, inputs: dict[str, Any], outputs: Any
    ) -> dict[str, np.ndarray]:
        """Run a request, possibly merged with others, and return output name -> array.

        Args:
            servable: The version to run; the caller keeps it loaded. If its `batching` is None,
                each request runs on its own.
            signature: The `Signature` of the servable to run.
            inputs: name -> array, from `signature.check`.
            outputs: The output names, from `signature.choose_outputs`.

        Raises:
            ServingError: UNAVAILABLE if the queue is full, INVALID_ARGUMENT if the request cannot
                be batched, or the error of the model.
        """
        loop = asyncio.get_running_loop()
        request = _Request(inputs, 1, loop.time(), loop.create_future(), current_request.get())
        is_large = sum(array.nbytes for array in inputs.values()) > _LARGE
        if not is_large:
            self._last_small_arrival = request.arrival
        key: Any = request  # the request gets its own group, unless it can be merged
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
        # Dispatch in the next iteration of the event loop, so that requests that arrive in the same
        # iteration are merged.
        self._dispatch_after(0.0)
        return await request.future

    def _dispatch_after(self, delay):
        """Schedule the next dispatch after `delay` seconds, unless an earlier one is scheduled."""
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
        # Large and small requests take turns: if a large batch ran last, small groups come first.
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
        """Return for how many more seconds a group waits for other requests; 0 or less for none."""
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
        """Return for how many more seconds a large group leaves the last free thread unused."""
        free = self._num_threads - sum(self._running.values())
        if not group.is_large or self._num_threads == 1 or free > 1 or self._running["small"]:
            return 0.0
        return self._last_small_arrival + _SMALL_SECONDS - now

    def _take(self, group):
        """Remove and return the oldest requests that fit into one batch; drop cancelled ones."""
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
        # Keeps the version loaded while the batch runs, even if all clients disconnect.
        group.servable.users += 1
        start = loop.time()

        def execute():
            current_request.set(batch[0].record)  # what this thread logs has the ID of the first
            times = [start, loop.time()]
            results = _run_batch(group, batch)
            times.append(loop.time())
            return results, times

        kind = _kind(group, batch)
        if kind in self._fast.get(group.servable, ()):
            self._finish(group, batch, kind, *execute())
            return
        self._executor.submit(
            lambda: loop.call_soon_threadsafe(self._finish, group, batch, kind, *execute())
        )

    def _count(self, parameters, batch, now):
        metrics = self._metrics
        rows = sum(request.rows for request in batch)
        queuing_latency = metrics.labeled(metrics.queuing_latency, self._thread_name)
        for request in batch:
            queuing_latency.observe((now - request.arrival) * 1e6)
            metrics.input_batch_size.observe(request.rows)
        metrics.wrapped_run_count.inc()
        metrics.processed_batch_size.observe(parameters.padded(rows))
        metrics.padding_size.observe(parameters.padded(rows) - rows)

    def _finish(self, group, batch, kind, results, times):
        fast = self._fast.setdefault(group.servable, set())
        if times[2] - times[1] > _INLINE_SECONDS or any(
            isinstance(result, ServingError) for result in results
        ):
            fast.discard(kind)
        elif kind is not None and len(fast) < _MAX_INLINE:
            fast.add(kind)
        if any(request.record is not None for request in batch):
            _note_parts(group, batch, *times, asyncio.get_running_loop().time())
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
        """End the threads; each one finishes its current batch first."""
        self._executor.shutdown(wait=False)


def _kind(group, batch):
    """Return a key of batches that take the same time, or None if their values may matter."""
    if (
        group.is_large
        or group.servable.has_loops
        or not all(spec.row_bytes for spec in group.signature.inputs.values())
        or not group.signature.can_merge(batch[0].inputs)
    ):
        return None
    size = sum(array.nbytes for request in batch for array in request.inputs.values())
    return group.signature.name, group.outputs, size


def _note_parts(group, batch, start, run_start, run_end, end):
    """Note the times of a batch in the records of its requests, for telemetry."""
    traced = [request for request in batch if request.record is not None]
    linked = [request.record for request in traced]
    attributes = {
        "model.name": group.servable.name,
        "model.version": group.servable.version,
        "model.signature": group.signature.name,
        "batch.requests": len(batch),
        "batch.rows": sum(request.rows for request in batch),
    }
    for request in traced:
        request.record.parts += [
            ("queue", request.arrival, start, {}, ()),
            ("batch", start, end, attributes, ()),
            ("model", run_start, run_end, attributes, linked),
        ]


def _run_batch(group, batch):
    """Return for each request of a batch its outputs (name -> array) or a ServingError."""
    try:
        return _run_merged(group, batch)
    except ServingError as error:
        if len(batch) == 1:
            return [error]
        # One request can fail the whole batch, so each one runs again on its own.
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
    """Run a batch, padded to an allowed size; run it in parts if it exceeds `max_batch_size`."""
    parameters = group.servable.batching
    limit = parameters.max_batch_size
    if rows > limit:
        limit = parameters.max_execution_batch_size or limit
    parts = []
    for start in range(0, max(rows, 1), limit):
        size = min(limit, rows - start)
        padded = parameters.padded(size) if size else 0
        # Rows of padding are copies of the last row.
        chosen = np.minimum(np.arange(start, start + padded), rows - 1)
        part = inputs
        if not size == padded == rows:
            part = {name: array[chosen] for name, array in inputs.items()}
        outputs = group.servable.run(group.signature, part, group.outputs)
        if any(array.ndim == 0 or len(array) != padded for array in outputs.values()):
            shapes = {name: array.shape for name, array in outputs.items()}
            raise ServingError(
                "FAILED_PRECONDITION",
                f"the outputs of a batch of {padded} rows must have {padded} rows; "
                f"received the shapes {shapes}",
            )
        parts.append({name: array[:size] for name, array in outputs.items()})
    if len(parts) == 1:
        return parts[0]
    return {name: np.concatenate([part[name] for part in parts]) for name in group.outputs}


def _check_rows(inputs, parameters):
    """Return the number of rows in a request; raise INVALID_ARGUMENT if it cannot be batched."""
    sizes = {name: len(array) for name, array in inputs.items()}
    rows = next(iter(sizes.values()))
    if set(sizes.values()) != {rows}:
        raise invalid(f"all inputs must have the same number of rows; received {sizes}")
    if rows > parameters.max_batch_size and not parameters.enable_large_batch_splitting:
        raise invalid(
            f"request of {rows} rows is larger than the maximum batch size "
            f"{parameters.max_batch_size}"
        )
    return rows


def _concatenate(arrays):
    """Concatenate arrays along the batch axis, after padding their rows to one shape."""
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
