"""What the server writes to its log, and how often."""

from __future__ import annotations

import collections
import logging
import time

_SIMILAR = 40  # letters in which lines of one kind agree
_LONGEST, _TAIL = 1000, 100  # letters of a message, and those of them that are its end


class RateLimit(logging.Filter):
    """Lets so many lines of one kind pass in a while, and then says how many there were.

    What goes wrong goes wrong a thousand times a second, and a log that fills the disk is a fault
    of its own.

    Args:
        most: Lines of one kind that pass in each while.
        seconds: How long a while is.
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
    """Writes a message as one line of bearable length, whatever a client put into it."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        text = record.message
        if len(text) > _LONGEST:
            cut = f"... ({len(text)} letters) ..."
            text = text[: _LONGEST - _TAIL] + cut + text[-_TAIL:]
        record.message = "".join(
            letter if letter.isprintable() else letter.encode("unicode_escape").decode()
            for letter in text
        )
        return super().formatMessage(record)


def set_up() -> None:
    """Writes the server's log to stderr."""
    logging.basicConfig(level=logging.INFO)
    for handler in logging.getLogger().handlers:
        handler.setFormatter(OneLine("%(asctime)s %(levelname)s %(message)s"))
        handler.addFilter(RateLimit())
    # aiohttp would write a traceback for each request that is no HTTP.
    logging.getLogger("aiohttp.server").setLevel(logging.CRITICAL)
