"""The log: one line for each message, and a limit for similar lines."""

from __future__ import annotations

import collections
import logging
import time

_SIMILAR = 40  # first characters in which lines of one kind agree
_LONGEST, _TAIL = 1000, 100  # characters of a message, and of its end where it is cut


class RateLimit(logging.Filter):
    """Lets a number of lines of one kind pass in an interval, and counts the others.

    Args:
        most: Lines of one kind that pass in an interval.
        seconds: Length of the interval.
    """

    def __init__(self, most: int = 10, seconds: float = 60.0) -> None:
        super().__init__()
        self._most, self._seconds = most, seconds
        self._began = time.monotonic()
        self._counts: collections.Counter[tuple] = collections.Counter()

    def filter(self, record: logging.LogRecord) -> bool:
        now = time.monotonic()
        kind = (record.name, record.levelno, record.getMessage()[:_SIMILAR])
        if now - self._began >= self._seconds:
            held_back = self._counts[kind] - self._most
            self._began = now
            self._counts.clear()
            if held_back > 0:
                record.msg = f"{record.getMessage()} (and {held_back} lines like it)"
                record.args = ()
        self._counts[kind] += 1
        if self._counts[kind] == self._most:
            record.msg = f"{record.getMessage()} (more lines like it are left out for a while)"
            record.args = ()
        return self._counts[kind] <= self._most


class OneLine(logging.Formatter):
    """Writes a message as one line of limited length, whatever text of a client it has."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        text = record.message
        if len(text) > _LONGEST:
            cut = f"... ({len(text)} characters) ..."
            text = text[: _LONGEST - _TAIL] + cut + text[-_TAIL:]
        record.message = "".join(
            letter if letter.isprintable() else letter.encode("unicode_escape").decode()
            for letter in text
        )
        return super().formatMessage(record)


def set_up() -> None:
    """Write the log to stderr."""
    logging.basicConfig(level=logging.INFO)
    for handler in logging.getLogger().handlers:
        handler.setFormatter(OneLine("%(asctime)s %(levelname)s %(message)s"))
        handler.addFilter(RateLimit())
    # aiohttp logs a traceback for each request that is not HTTP.
    logging.getLogger("aiohttp.server").setLevel(logging.CRITICAL)
