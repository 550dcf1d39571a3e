"""The processes that share one server's ports, and what they tell each other.

Python runs one thread at a time, so a machine of many cores needs several processes. The kernel
deals connections out among those that listen on the same port. Some questions must not be answered
by the one that happens to be asked: a new list of models goes to all, and metrics and status are
those of all. For these each process listens on a Unix socket that only its user can reach.

Process 0 is the one that was started; it starts the others and ends them.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import grpc

from serving.errors import ServingError

_METHOD = "/rrl_tf.serving.Peer/"


class Peers:
    """This process among those that serve together; alone by default.

    Args:
        methods: name -> async function of bytes that returns bytes, the same in every process.
        directory: Folder of the sockets, None if there is one process.
        index: Which of the processes this is.
        count: How many there are.
    """

    def __init__(
        self, methods: dict[str, Any], directory: Any = None, index: int = 0, count: int = 1
    ) -> None:
        self._methods = methods
        self._directory, self._index, self._count = directory, index, count
        self._server: Any = None
        self._channels: dict[int, Any] = {}

    async def start(self) -> None:
        """Listens to the others, if there are any."""
        if self._count == 1:
            return
        self._server = grpc.aio.server(options=_NO_LIMITS)
        handlers = {name: _handler(function) for name, function in self._methods.items()}
        generic = grpc.method_handlers_generic_handler("rrl_tf.serving.Peer", handlers)
        self._server.add_generic_rpc_handlers((generic,))
        self._server.add_insecure_port(self._socket(self._index))
        await self._server.start()

    def _socket(self, index):
        return f"unix:{self._directory}/{index}.sock"

    async def ask(
        self, index: int, method: str, data: bytes = b"", absent: bytes | None = None
    ) -> bytes:
        """Returns what process `index` answers; raises its `ServingError`.

        One that has not begun to listen is waited for, or stands as `absent`.
        """
        if index == self._index:
            return await self._methods[method](data)
        if index not in self._channels:
            channel = grpc.aio.insecure_channel(self._socket(index), options=_NO_LIMITS)
            self._channels[index] = channel
        try:
            call = self._channels[index].unary_unary(_METHOD + method)
            return await call(data, wait_for_ready=absent is None)
        except grpc.RpcError as error:
            if error.code() == grpc.StatusCode.UNAVAILABLE and absent is not None:
                return absent
            raise ServingError(error.code().name, error.details()) from error

    async def ask_all(
        self, method: str, data: bytes = b"", absent: bytes | None = None
    ) -> list[bytes]:
        """Returns the answers of all processes, in their order."""
        asked = (self.ask(index, method, data, absent) for index in range(self._count))
        return await asyncio.gather(*asked)

    async def stop(self) -> None:
        """Ends listening and asking."""
        for channel in self._channels.values():
            await channel.close()
        if self._server is not None:
            await self._server.stop(None)


_NO_LIMITS = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.max_reconnect_backoff_ms", 500),
)


def _handler(function):
    async def rpc(data, context):
        try:
            return await function(data)
        except ServingError as error:
            await context.abort(grpc.StatusCode[error.code], error.message)

    return grpc.unary_unary_rpc_method_handler(rpc)


class Family:
    """Starts processes 1 to `count - 1` with this one's command line, and ends them.

    Each lives as long as the pipe to its standard input is open, so none outlives this process,
    however it ends.

    Args:
        arguments: Command line of this process.
        count: How many processes there are, this one included.
    """

    def __init__(self, arguments: Sequence[str], count: int) -> None:
        self._arguments, self._count = arguments, count
        self._directory = tempfile.TemporaryDirectory(prefix="serving-")
        self.directory = self._directory.name
        self._children: list[Any] = []

    async def start(self, port: int) -> None:
        """Starts the other processes; they serve gRPC on `port`, which may have been chosen."""
        for index in range(1, self._count):
            place = f"--process_of={self.directory}:{index}"
            command = [sys.executable, "-m", "serving.server", *self._arguments]
            command += [f"--port={port}", place]
            child = await asyncio.create_subprocess_exec(*command, stdin=asyncio.subprocess.PIPE)
            self._children.append(child)

    async def wait_until_serving(self) -> None:
        """Returns when all have opened their ports, or one of them has ended."""
        while not all(self._marker(i).exists() for i in range(1, self._count)):
            if any(child.returncode is not None for child in self._children):
                return
            await asyncio.sleep(0.05)

    def _marker(self, index):
        return Path(self.directory, f"{index}.serving")

    async def wait_for_one(self) -> None:
        """Returns when one of the other processes has ended; never, if there are none."""
        waiting = [asyncio.ensure_future(child.wait()) for child in self._children]
        if not waiting:
            await asyncio.Event().wait()
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for future in waiting:
                future.cancel()

    def end(self) -> None:
        """Tells the others to finish what they have begun."""
        for child in self._children:
            child.stdin.close()

    async def stop(self) -> None:
        """Ends the others and returns when they have ended."""
        self.end()
        for child in self._children:
            await child.wait()
        self._directory.cleanup()


def mark_serving(directory: Any, index: int) -> None:
    """Tells process 0 that this one has opened its ports."""
    Path(directory, f"{index}.serving").touch()


async def wait_for_parent_to_end() -> None:
    """Returns when the pipe from process 0 is closed."""
    reader = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(reader)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, sys.stdin)
    await reader.read()
    transport.close()


@contextlib.contextmanager
def reserved(host: str, port: int) -> Iterator[int]:
    """Holds a TCP port that several processes will share, and yields its number.

    Raises:
        OSError: If someone else listens there: a port that is shared by mistake deals out requests
            to both.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((host, port))
        port = probe.getsockname()[1]
    with socket.socket(family) as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        held.bind((host, port))
        yield port
