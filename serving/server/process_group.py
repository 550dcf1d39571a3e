"""Start several server processes that share the ports, and make calls between them.

Python runs one thread at a time, so the server needs several processes to use many cores. The
kernel distributes connections among the processes that listen on a port. Some requests concern all
processes: metrics, the status of a model, and a new list of models. For these, each process listens
on a Unix socket and calls the others.

Process 0 is the one that the user started. It starts and ends the others.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any

import grpc

from serving.errors import ServingError

_METHOD = "/rrl_tf.serving.Peer/"
_OPTIONS = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.max_reconnect_backoff_ms", 500),
)


class Peers:
    """The connections of one server process to itself and to the other processes.

    Args:
        methods: name -> async function that takes and returns bytes; the names must be the same in
            every process.
        directory: The directory of the Unix sockets; `None` for a server with one process.
        index: The number of this process.
        count: The number of processes.
    """

    def __init__(
        self, methods: dict[str, Any], directory: Any = None, index: int = 0, count: int = 1
    ) -> None:
        self._methods = methods
        self._directory, self._index, self._count = directory, index, count
        self._server: Any = None
        self._channels: dict[int, Any] = {}

    async def start(self) -> None:
        """Accept calls from the other processes, if there are any."""
        if self._count == 1:
            return
        self._server = grpc.aio.server(options=_OPTIONS)
        handlers = {name: _handler(function) for name, function in self._methods.items()}
        generic = grpc.method_handlers_generic_handler("rrl_tf.serving.Peer", handlers)
        self._server.add_generic_rpc_handlers((generic,))
        self._server.add_insecure_port(self._socket(self._index))
        await self._server.start()

    def _socket(self, index):
        return f"unix:{self._directory}/{index}.sock"

    async def call(self, index: int, method: str, data: bytes = b"") -> bytes:
        """Call a method of a process and return its result, or raise its `ServingError`.

        The call waits until the process listens.

        Args:
            index: The number of the process.
            method: The name of the method.
            data: The argument of the method.
        """
        if index == self._index:
            return await self._methods[method](data)
        if index not in self._channels:
            self._channels[index] = grpc.aio.insecure_channel(self._socket(index), options=_OPTIONS)
        try:
            call = self._channels[index].unary_unary(_METHOD + method)
            return await call(data, wait_for_ready=True)
        except grpc.RpcError as error:
            raise ServingError(error.code().name, error.details()) from error

    async def call_all(self, method: str, data: bytes = b"") -> list[bytes]:
        """Call a method of all processes at once; return the results, ordered by process number."""
        calls = (self.call(index, method, data) for index in range(self._count))
        return await asyncio.gather(*calls)

    async def stop(self) -> None:
        """Close all connections."""
        for channel in self._channels.values():
            await channel.close()
        if self._server is not None:
            await self._server.stop(None)


def _handler(function):
    async def rpc(data, context):
        try:
            return await function(data)
        except ServingError as error:
            await context.abort(grpc.StatusCode[error.code], error.message)

    return grpc.unary_unary_rpc_method_handler(rpc)


class ProcessGroup:
    """The processes 1 to `count - 1`, which have the same command line as this process.

    Each of them ends when its standard input closes, so none of them outlives this process.

    Args:
        arguments: The command line of this process.
        count: The number of processes, including this one.
    """

    def __init__(self, arguments: Sequence[str], count: int) -> None:
        self._arguments, self._count = arguments, count
        self._directory = tempfile.TemporaryDirectory(prefix="serving-")
        self.directory = self._directory.name
        self._children: list[Any] = []

    async def start(self, port: int) -> None:
        """Start the processes, which listen for gRPC on `port`."""
        pipe = asyncio.subprocess.PIPE
        for index in range(1, self._count):
            command = [sys.executable, "-m", "serving.server", *self._arguments]
            command += [f"--port={port}", f"--process_of={self.directory}:{index}"]
            child = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe)
            self._children.append(child)

    async def wait_until_serving(self) -> None:
        """Wait until each process has opened its ports or has ended."""
        await asyncio.gather(*(child.stdout.readline() for child in self._children))

    async def wait_for_one(self) -> None:
        """Wait until one of the processes has ended."""
        waiting = [asyncio.ensure_future(child.wait()) for child in self._children]
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for future in waiting:
                future.cancel()

    def drain(self) -> None:
        """Tell the processes to finish their requests and end."""
        for child in self._children:
            child.stdin.close()

    async def stop(self) -> None:
        """End the processes, and wait until all have ended."""
        self.drain()
        for child in self._children:
            await child.wait()
        self._directory.cleanup()


async def wait_for_parent_to_end() -> None:
    """Wait until process 0 closes the pipe to this process, or ends."""
    reader = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(reader)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, sys.stdin)
    await reader.read()
    transport.close()


@contextlib.contextmanager
def reserved_port(host: str, port: int) -> Iterator[int]:
    """Reserve a TCP port for several processes until the `with` block ends, and yield its number.

    Args:
        host: The address to listen on.
        port: The number of the port; 0 lets the system choose.

    Raises:
        OSError: If another program listens on the port.
    """
    check_port(host, port)
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        held.bind((host, port))
        yield held.getsockname()[1]


def check_port(host: str, port: int) -> None:
    """Raise OSError, with the reason, if this process cannot listen on a TCP port."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    family, kind, protocol, _, address = found[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(address)
