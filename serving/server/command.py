"""Run the command line: start the server, stop it on SIGTERM or SIGINT, return the exit code."""

from __future__ import annotations

import asyncio
import datetime
import json
import logging
import os
import sys
from collections.abc import Sequence

from rrl_tf._tf_logging import load_tensorflow
from serving.server import flags as flags_module
from serving.server.telemetry import current_request

_log = logging.getLogger("serving")
# Python's switch interval: after this time, the event loop's thread yields to a thread that waits.
_SWITCH_SECONDS = 0.001
_LONGEST = 1000  # characters of a log message; a longer one is shortened in the middle
_TAIL = 100  # characters that are kept at the end of a shortened message


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the server until SIGTERM or SIGINT; return the exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    flags, warnings = flags_module.parse(arguments)  # shows `--help` without TensorFlow
    load_tensorflow()
    import tensorflow as tf

    from serving.server.config_files import StartError
    from serving.server.service import serve

    _set_up_logging(flags.log_format)
    sys.setswitchinterval(_SWITCH_SECONDS)
    tf.get_logger().setLevel("ERROR")
    for warning in warnings:
        _log.warning("%s", warning)
    try:
        code, has_ended = asyncio.run(serve(flags, arguments))
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
