"""Run the command line: start the server, stop it on SIGTERM or SIGINT, return the exit code."""

from __future__ import annotations

from collections.abc import Sequence

from rrl_tf._tf_logging import load_tensorflow

load_tensorflow()  # first, because it suppresses TensorFlow's output during the import

import asyncio
import contextlib
import dataclasses
import datetime
import gc
import json
import logging
import os
import signal
import sys

import tensorflow as tf

from serving.playground.page import ROOT
from serving.server import flags as flags_module
from serving.server.config_files import StartError
from serving.server.process_group import ProcessGroup, reserved_port, wait_for_parent_to_end
from serving.server.server import Server, format_address
from serving.server.telemetry import current_request

_log = logging.getLogger("serving")
# Python's switch interval: after this time, the event loop's thread yields to a thread that waits.
_SWITCH_SECONDS = 0.001
_LONGEST = 1000  # characters of a log message; a longer one is shortened in the middle
_TAIL = 100  # characters that are kept at the end of a shortened message


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the server until SIGTERM or SIGINT; return the exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    flags, warnings = flags_module.parse(arguments)
    _set_up_logging(flags.log_format)
    sys.setswitchinterval(_SWITCH_SECONDS)
    tf.get_logger().setLevel("ERROR")
    for warning in warnings:
        _log.warning("%s", warning)
    try:
        code, has_ended = asyncio.run(_serve(flags, arguments))
    except StartError as error:
        print(f"serving.server: {error}", file=sys.stderr)
        return 1
    if not has_ended:  # leave without waiting for threads that still run
        logging.shutdown()
        os._exit(code)
    return code


class OneLine(logging.Formatter):
    """A formatter that writes each message as one line of limited length.

    It escapes control characters, because a message may contain text from a client.
    """

    def formatMessage(self, record: logging.LogRecord) -> str:
        record.message = "".join(
            letter if letter.isprintable() else letter.encode("unicode_escape").decode()
            for letter in _shortened(record.message)
        )
        return super().formatMessage(record)


class JsonLines(logging.Formatter):
    """A formatter that writes each message as a JSON object, with the ID of its request."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.datetime.fromtimestamp(record.created, datetime.UTC).isoformat(),
            "level": record.levelname,
            "message": _shortened(record.getMessage()),
        }
        if request := current_request.get():
            line["request_id"] = request.id
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line | getattr(record, "fields", {}))


def _shortened(text):
    if len(text) <= _LONGEST:
        return text
    return text[: _LONGEST - _TAIL] + f"... ({len(text)} characters) ..." + text[-_TAIL:]


def _set_up_logging(log_format):
    """Write the log to stderr, with one line for each message."""
    line = OneLine("%(asctime)s %(levelname)s %(message)s")
    logging.basicConfig(level=logging.INFO)
    for handler in logging.getLogger().handlers:
        handler.setFormatter(JsonLines() if log_format == "json" else line)
    # aiohttp logs a traceback for each request that is not HTTP.
    logging.getLogger("aiohttp.server").setLevel(logging.CRITICAL)


async def _serve(flags, arguments):
    """Serve until a signal arrives or, with several processes, until one of them ends.

    Returns:
        (exit code, whether all threads have ended).
    """
    stop = asyncio.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(name, stop.set)
    if flags.process_of:
        directory, _, index = flags.process_of.rpartition(":")
        place = (directory, int(index), flags.num_processes)
        return 0, await _serve_one(flags, place, (stop.wait, wait_for_parent_to_end))
    if flags.num_processes == 1:
        return 0, await _serve_one(flags, (None, 0, 1), (stop.wait,))
    with contextlib.ExitStack() as ports:
        chosen = {}
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
