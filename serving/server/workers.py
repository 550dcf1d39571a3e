"""Work that grows with a request's size, done in processes beside the server.

Python runs one thread at a time, and a parser that makes a million objects does not let go in
between. So what is large is handed to a few processes that hold no models: they cost little, may
be ended in the middle of their work when its deadline is over, and take nothing along when they
fall. What goes there and back are NumPy arrays and bytes, which are not copied on the way.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import importlib.util
import os
import pickle
import signal
import socket
import struct
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

from serving.errors import ServingError
from serving.server.admission import Turns

_COUNT = struct.Struct("<Q")
_SOCKET_BUFFER = 1 << 20
_PRELOADED = ("serving.server.bodies", "serving.server.json_replies")
# The server's threads, which answer everybody else, go first where cores are few.
_NICENESS = 5
_ROOT = Path(__file__).resolve().parents[2]  # where the package is found, installed or not


class Workers:
    """A few processes that are each asked for one thing at a time, by peers that take turns.

    They are started when they are first needed, and again if they end. All methods belong to the
    event loop's thread.

    Args:
        count: How many there are at most.

    Example:

    >>> import numpy as np
    >>> from serving import json_replies
    >>> async def written(outputs):
    ...     workers = Workers(2)
    ...     text = await workers.call(json_replies.predictions, outputs, True)
    ...     workers.close()
    ...     return bytes(text)
    >>> asyncio.run(written({"action": np.array([2, 0])}))
    b'{"predictions": [2,0]}'
    """

    def __init__(self, count: int) -> None:
        self._turns = Turns(count)
        self._idle: list[_Worker] = []
        self._count, self._closed = count, False

    def start(self) -> None:
        """Starts all of them, so that the first large request does not wait for it."""
        while len(self._idle) < self._count:
            self._idle.append(_Worker())

    async def call(self, function: Callable[..., Any], *arguments: Any, peer: str = "") -> Any:
        """Returns what a function of this package returns in one of the processes.

        Whoever stops waiting ends the process: what it is at may take long.

        Raises:
            ServingError: What the function raised, or UNAVAILABLE if the process ended.
        """
        async with self._turns.place(peer):
            worker = self._idle.pop() if self._idle else _Worker()
            try:
                succeeded, result = await worker.ask((function, arguments))
            except (OSError, EOFError) as error:
                self._replace(worker)
                raise ServingError("UNAVAILABLE", "a process that reads ended") from error
            except BaseException:
                self._replace(worker)
                raise
            self._idle.append(worker)
        if succeeded:
            return result
        try:
            raise result
        finally:
            del result  # its traceback holds this frame, and with it the arguments

    def _replace(self, worker):
        worker.end()
        # It takes a while to give back much memory, and nobody has to wait for that.
        asyncio.get_running_loop().run_in_executor(None, worker.process.wait)
        if not self._closed:
            self._idle.insert(0, _Worker())  # on its way while the others are taken first

    def close(self) -> None:
        """Ends the processes."""
        self._closed = True
        while self._idle:
            worker = self._idle.pop()
            worker.end()
            worker.process.wait()


class _Worker:
    def __init__(self):
        self._socket, theirs = socket.socketpair()
        for end in (self._socket, theirs):
            for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
                end.setsockopt(socket.SOL_SOCKET, option, _SOCKET_BUFFER)
        self._socket.setblocking(False)
        with theirs:
            command = [sys.executable, "-m", "serving.server.workers"]
            self.process = subprocess.Popen(command, stdin=theirs, cwd=_ROOT)

    async def ask(self, question):
        loop = asyncio.get_running_loop()
        for part in _packed(question):
            await loop.sock_sendall(self._socket, part)

        async def receive(size):
            part = bytearray(size)
            view, filled = memoryview(part), 0
            while filled < size:
                count = await loop.sock_recv_into(self._socket, view[filled:])
                if not count:
                    raise EOFError
                filled += count
            return part

        count = _COUNT.unpack(await receive(_COUNT.size))[0]
        sizes = struct.unpack(f"<{count}Q", await receive(count * _COUNT.size))
        first, *buffers = [await receive(size) for size in sizes]
        return pickle.loads(first, buffers=buffers)

    def end(self):
        self._socket.close()
        self.process.kill()


def _packed(value):
    """Returns the parts of a message: how many, how long each is, and what they hold."""
    buffers: list[pickle.PickleBuffer] = []
    first = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    parts = [first, *(buffer.raw() for buffer in buffers)]
    sizes = [len(parts), *(len(part) for part in parts)]
    return [struct.pack(f"<{len(sizes)}Q", *sizes), *parts]


def _answer(question):
    try:
        function, arguments = question
        result = function(*arguments)
        if isinstance(result, bytes):  # arrives as a bytearray; bytes would as a view of some
            result = pickle.PickleBuffer(bytearray(result))
        return True, result
    except ServingError as error:
        return False, error
    except MemoryError:
        return False, ServingError("RESOURCE_EXHAUSTED", "there is not enough memory")
    except Exception as error:
        return False, ServingError("INTERNAL", f"{type(error).__name__}: {error}")


def _leave_out_tensorflow():
    """Makes TensorFlow a package without content, of which only messages can be imported.

    They need protobuf alone, and all of TensorFlow would be too much for a process that only reads.
    """
    spec = importlib.util.find_spec("tensorflow")
    if spec is not None and spec.submodule_search_locations:
        package = types.ModuleType("tensorflow")
        package.__path__ = list(spec.submodule_search_locations)
        sys.modules["tensorflow"] = package


def _work():
    """Answers what comes in at standard input, a socket, until it is closed."""
    _leave_out_tensorflow()
    for name in _PRELOADED:
        importlib.import_module(name)
    os.nice(_NICENESS)
    for name in (signal.SIGINT, signal.SIGTERM):  # the server says when to end
        signal.signal(name, signal.SIG_IGN)
    with socket.socket(fileno=sys.stdin.fileno()) as connection:

        def receive(size):
            part = connection.recv(size, socket.MSG_WAITALL) if size else b""
            while len(part) < size:
                more = connection.recv(size - len(part), socket.MSG_WAITALL)
                if not more:
                    raise EOFError
                part += more
            return part

        while True:
            (count,) = _COUNT.unpack(receive(_COUNT.size))
            sizes = struct.unpack(f"<{count}Q", receive(count * _COUNT.size))
            first, *buffers = [receive(size) for size in sizes]
            question = pickle.loads(first, buffers=buffers)
            del first, buffers
            for part in _packed(_answer(question)):
                connection.sendall(part)
            del question, part


if __name__ == "__main__":
    with contextlib.suppress(EOFError, OSError):
        _work()
