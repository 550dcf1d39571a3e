"""Run the server in one process or several, until a signal arrives or a process ends."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import gc
import logging
import signal
from collections.abc import Sequence
from typing import Any

from serving.playground.page import ROOT
from serving.server.config_files import StartError
from serving.server.flags import Flags
from serving.server.process_group import ProcessGroup, reserved_port, wait_for_parent_to_end
from serving.server.server import Server, format_address

_log = logging.getLogger("serving")


async def serve(flags: Flags, arguments: Sequence[str]) -> tuple[int, bool]:
    """Serve until a signal arrives or, with several processes, until one of them ends.

    Args:
        flags: the parsed command line.
        arguments: the command line, for further processes.

    Returns:
        (exit code, whether all threads have ended).
    """
    stop = asyncio.Event()
    for kind in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(kind, stop.set)
    if flags.process_of:
        directory, _, index = flags.process_of.rpartition(":")
        place = (directory, int(index), flags.num_processes)
        return 0, await _serve_one(flags, place, (stop.wait, wait_for_parent_to_end))
    if flags.num_processes == 1:
        return 0, await _serve_one(flags, (None, 0, 1), (stop.wait,))
    with contextlib.ExitStack() as ports:
        chosen: dict[str, Any] = {}
        for name in ("port", "rest_api_port"):
            number = getattr(flags, name)
            if number or (name == "port" and not flags.grpc_socket_path):
                try:
                    chosen[name] = ports.enter_context(reserved_port(flags.host, number))
                except OSError as error:
                    address = format_address(flags.host, number)
                    raise StartError(f"cannot listen on {address}: {error.strerror}") from error
        flags = dataclasses.replace(flags, **chosen)
        group = ProcessGroup(arguments, flags.num_processes)
        try:
            await group.start(flags.port)
            place = (group.directory, 0, flags.num_processes)
            has_ended = await _serve_one(flags, place, (stop.wait, group.wait_for_one), group)
        finally:
            await group.stop()
    if not stop.is_set():
        _log.error("one of the server processes has ended; the others were stopped")
    return int(not stop.is_set()), has_ended


async def _serve_one(flags, place, ends, group=None):
    """Serve in this process until one of the functions `ends` returns.

    Returns:
        Whether all threads have ended.
    """
    server = Server(flags, place)
    start = asyncio.create_task(server.start())
    ending = [asyncio.ensure_future(end()) for end in ends]
    try:
        await asyncio.wait((start, *ending), return_when=asyncio.FIRST_COMPLETED)
        if start.done():
            start.result()
            # TensorFlow's modules contain a million objects. They are frozen, because a garbage
            # collection that visits them would stop all requests for a third of a second. There is
            # a collection whenever a version is unloaded.
            gc.collect()
            gc.freeze()
            if group is not None:
                await group.wait_until_serving()
            if flags.process_of:
                print("serving", flush=True)
            else:
                ports = (server.grpc_port or flags.grpc_socket_path, server.rest_port)
                _log.info("serving gRPC on %s, REST on %s", *ports)
            if flags.playground and not flags.process_of:
                _log.info("playground at http://localhost:%s%s", server.rest_port, ROOT)
            await asyncio.wait(ending, return_when=asyncio.FIRST_COMPLETED)
            _log.info("stopping")
    finally:
        for task in (start, *ending):
            task.cancel()
        if group is not None:
            group.drain()
        has_ended = await server.stop()
    return has_ended
