"""Run large tasks outside the event loop: in threads, or JSON bodies in worker processes.

Python runs one thread at a time, and a parser that creates a million objects blocks all others. A
worker process contains no model, so it needs little memory. It is killed if the deadline of its
request passes. The pools of the standard library cannot be used, because they cannot stop a running
call.
"""

from __future__ import annotations

import asyncio
import collections
import concurrent.futures
import contextlib
import importlib.util
import multiprocessing
import os
import signal
import subprocess
import sys
import types
import weakref
from collections.abc import AsyncIterator, Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from serving.errors import ServingError

#: For more bytes than this, reading or writing takes longer than the switch to another thread.
LARGE = 1 << 16
_NICENESS = 5  # gives the server's own threads priority over the workers
_ROOT = Path(__file__).resolve().parents[2]


async def in_thread(size: int, function: Callable[..., Any], *arguments: Any) -> Any:
    """Return the result of a function, which runs in another thread if `size` is over `LARGE`."""
    is_large = size > LARGE
    return await asyncio.to_thread(function, *arguments) if is_large else function(*arguments)


class FairQueue:
    """A semaphore for which peers wait in turns; the requests of one peer keep their order.

    Args:
        count: The number of slots, which is how many requests may run at once.
    """

    def __init__(self, count: int) -> None:
        self._slots = asyncio.Semaphore(count)
        # Only the first waiting request of each peer queues for a slot, so that peers alternate.
        self._first: weakref.WeakValueDictionary[str, asyncio.Lock]
        self._first = weakref.WeakValueDictionary()

    @contextlib.asynccontextmanager
    async def slot(self, peer: str) -> AsyncIterator[None]:
        """Wait for a slot and hold it until the `with` block ends."""
        first = self._first.setdefault(peer, asyncio.Lock())
        async with first:
            await self._slots.acquire()
        try:
            yield
        finally:
            self._slots.release()


class Workers:
    """A pool of worker processes; a process that ends is replaced by a new one.

    All methods must be called in the event loop's thread.

    Args:
        count: The number of processes.

    Example:

    >>> import numpy as np
    >>> from serving.server import json_codec
    >>> async def reply(outputs):
    ...     workers = Workers(2)
    ...     text = await workers.call(json_codec.predict_reply, outputs, True)
    ...     workers.close()
    ...     return text
    >>> asyncio.run(reply({"action": np.array([2, 0])}))
    b'{"predictions":[2,0]}'
    """

    def __init__(self, count: int) -> None:
        self._queue, self._closed = FairQueue(count), False
        self._threads = concurrent.futures.ThreadPoolExecutor(count, "worker")
        self._idle = collections.deque(_Worker() for _ in range(count))

    async def call(self, function: Callable[..., Any], *arguments: Any, peer: str = "") -> Any:
        """Call a function in one of the processes and return its result.

        Args:
            function: A function of this package.
            arguments: The arguments of the call, which must support pickle.
            peer: The address of the client; waiting peers take turns.

        Raises:
            ServingError: The error of the function, or UNAVAILABLE if the process ended.
        """
        loop = asyncio.get_running_loop()
        async with self._queue.slot(peer):
            worker = self._idle.popleft()
            try:
                succeeded, result = await loop.run_in_executor(
                    self._threads, worker.call, function, arguments
                )
            except BaseException as error:  # includes the cancellation at the caller's deadline
                worker.process.kill()
                # In a thread, because the process may take a while to free its memory.
                loop.run_in_executor(None, worker.process.wait)
                if not self._closed:
                    worker = _Worker()
                if isinstance(error, EOFError | OSError):
                    raise ServingError("UNAVAILABLE", "a worker process ended") from error
                raise
            finally:
                self._idle.append(worker)
        if succeeded:
            return result
        try:
            raise result
        finally:
            del result  # breaks a reference cycle: its traceback refers to this frame

    def close(self) -> None:
        """End the processes."""
        self._closed = True
        for worker in self._idle:
            worker.process.kill()
            worker.process.wait()
        self._threads.shutdown(wait=False)


class _Worker:
    def __init__(self):
        self._connection, theirs = multiprocessing.Pipe()
        with theirs:
            command = [sys.executable, "-m", "serving.server.workers"]
            self.process = subprocess.Popen(command, stdin=theirs, cwd=_ROOT)

    def call(self, function, arguments):
        self._connection.send((function, arguments))
        return self._connection.recv()


def _result(function, arguments):
    try:
        return True, function(*arguments)
    except ServingError as error:
        return False, error
    except MemoryError:
        return False, ServingError("RESOURCE_EXHAUSTED", "the worker process is out of memory")
    except Exception as error:
        return False, ServingError("INTERNAL", f"{type(error).__name__}: {error}")


def _replace_tensorflow():
    """Replace the module `tensorflow` by an empty package, so that a worker does not load it.

    The protobuf messages in its subpackages can still be imported.
    """
    spec = importlib.util.find_spec("tensorflow")
    if spec is not None and spec.submodule_search_locations:
        package = types.ModuleType("tensorflow")
        package.__path__ = list(spec.submodule_search_locations)
        sys.modules["tensorflow"] = package


def _work(connection):
    """Execute calls from the server until the connection closes."""
    _replace_tensorflow()
    importlib.import_module("serving.server.json_codec")
    os.nice(_NICENESS)
    for name in (signal.SIGINT, signal.SIGTERM):  # ignored, because the server ends its workers
        signal.signal(name, signal.SIG_IGN)
    while True:
        connection.send(_result(*connection.recv()))


if __name__ == "__main__":
    with contextlib.suppress(EOFError, OSError):
        _work(Connection(sys.stdin.fileno()))
