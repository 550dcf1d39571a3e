"""The command line: starts the server, stops it on SIGTERM or SIGINT, and returns the exit code."""

from __future__ import annotations

from collections.abc import Sequence

from rrl_tf._tf_logging import load_tensorflow

load_tensorflow()  # quietly, before another import does

import asyncio
import contextlib
import dataclasses
import gc
import logging
import os
import signal
import sys

import tensorflow as tf

from serving.page import ROOT
from serving.server import config_files, logs
from serving.server import flags as flags_module
from serving.server.addresses import written
from serving.server.options import StartError
from serving.server.process_group import Family, mark_serving, reserved, wait_for_parent_to_end
from serving.server.server import Server

_log = logging.getLogger("serving")
_SWITCH_SECONDS = 0.001


async def _serve(flags, arguments):
    """Serves until SIGTERM or SIGINT, or until one of the processes has ended.

    Returns:
        (exit code, whether all threads have ended).
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, stop.set)
    if flags.process_of:
        directory, _, index = flags.process_of.rpartition(":")
        place = (directory, int(index), flags.num_processes)
        return 0, await _serve_one(flags, place, (stop.wait, wait_for_parent_to_end))
    if flags.num_processes == 1:
        return 0, await _serve_one(flags, (None, 0, 1), (stop.wait,))
    return await _serve_together(flags, arguments, stop)


async def _serve_together(flags, arguments, stop):
    """Starts the other processes, and is one of them."""
    with contextlib.ExitStack() as ports:
        chosen = {}
        for name in ("port", "rest_api_port"):
            number = getattr(flags, name)
            if number or (name == "port" and not flags.grpc_socket_path):
                chosen[name] = _reserve(ports, flags.host, number)
        flags = dataclasses.replace(flags, **chosen)
        family = Family(arguments, flags.num_processes)
        try:
            await family.start(flags.port)
            place = (family.directory, 0, flags.num_processes)
            ended = await _serve_one(flags, place, (stop.wait, family.wait_for_one), family)
        finally:
            await family.stop()
    if not stop.is_set():
        _log.error("one of the processes has ended, and so do the others")
        return 1, ended
    return 0, ended


def _reserve(ports, host, port):
    """Enters `peers.reserved`; a failure is one that is told to a user."""
    try:
        return ports.enter_context(reserved(host, port))
    except OSError as error:
        raise StartError(f"cannot listen on {written(host, port)}: {error.strerror}") from error


async def _serve_one(flags, place, ends, family=None):
    """Serves in this process until one of `ends()` is done; returns whether all has ended."""
    server = Server(flags, place)
    start = asyncio.create_task(server.start())
    ending = [asyncio.ensure_future(end()) for end in ends]
    try:
        await asyncio.wait((start, *ending), return_when=asyncio.FIRST_COMPLETED)
        if start.done():
            start.result()
            # TensorFlow's modules are a million objects; to look through them again, as each swap
            # of versions makes the collector do, would stop every request for a third of a second.
            gc.collect()
            gc.freeze()
            if family is not None:
                await family.wait_until_serving()
            if flags.process_of:
                mark_serving(*place[:2])
            else:
                ports = (server.grpc_port or flags.grpc_socket_path, server.rest_port)
                _log.info("serving gRPC on %s, REST on %s", *ports)
                if flags.playground:
                    _log.info("playground at http://localhost:%s%s", server.rest_port, ROOT)
            await asyncio.wait(ending, return_when=asyncio.FIRST_COMPLETED)
            _log.info("stopping")
    finally:
        for task in (start, *ending):
            task.cancel()
        if family is not None:
            family.end()
        ended = await server.stop()
    return ended


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the server until SIGTERM or SIGINT; returns the exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    flags, ignored = flags_module.parse(arguments)
    logs.set_up()
    # A thread that comes back with an answer waits for the event loop at most so long.
    sys.setswitchinterval(_SWITCH_SECONDS)
    tf.get_logger().setLevel("ERROR")
    for name in ignored:
        _log.warning("--%s has no effect here", name)
    try:
        code, ended = asyncio.run(_serve(flags, arguments))
    except (StartError, config_files.ConfigError) as error:
        print(f"serving.server: {error}", file=sys.stderr)
        return 1
    if not ended:  # Python would wait for its threads
        logging.shutdown()
        os._exit(code)
    return code
