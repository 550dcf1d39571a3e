"""Define `ServingError`, whose canonical codes are the same over gRPC and over REST.

A `ServingError` reports a problem with a request or a reply. Its message has the style of
tensorflow_model_server: names from the request are in quotes, and there is no full stop at the end.
Invalid arguments of a Python function raise `ValueError` or `InvalidInput` instead, with a message
of the form "`name` must be ...; received ...".
"""

from __future__ import annotations

import reprlib
from typing import Any

_short = reprlib.Repr()
_short.maxstring = _short.maxlong = _short.maxother = 128  # characters

#: Canonical code -> HTTP status. The status of all other codes is 500.
HTTP_STATUS = {
    "OK": 200,
    "INVALID_ARGUMENT": 400,
    "FAILED_PRECONDITION": 400,
    "OUT_OF_RANGE": 400,
    "UNAUTHENTICATED": 401,
    "PERMISSION_DENIED": 403,
    "NOT_FOUND": 404,
    "ALREADY_EXISTS": 409,
    "ABORTED": 409,
    "RESOURCE_EXHAUSTED": 429,
    "CANCELLED": 499,
    "UNIMPLEMENTED": 501,
    "UNAVAILABLE": 503,
    "DEADLINE_EXCEEDED": 504,
}


class ServingError(Exception):
    """An error with a canonical code such as "NOT_FOUND" or "UNAVAILABLE" in `error.code`.

    Args:
        code: The canonical code.
        message: The description of the error, with the received and the expected value.
        http_status: The HTTP status over REST; `None` for the status in `HTTP_STATUS`.
    """

    def __init__(self, code: str, message: str, http_status: int | None = None) -> None:
        super().__init__(code, message, http_status)
        self.code, self.message = code, message
        self.http_status = http_status or HTTP_STATUS.get(code, 500)

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"


def shown(value: Any) -> str:
    """Return a value from a request for an error message, shortened before it is formatted.

    Example:

    >>> shown([1] * 1_000_000)
    '[1, 1, 1, 1, 1, 1, ...]'
    """
    return _short.repr(value)


def invalid(message: str) -> ServingError:
    """Return an INVALID_ARGUMENT error, for a request that no server state would make valid."""
    return ServingError("INVALID_ARGUMENT", message)


def too_large(message: str) -> ServingError:
    """Return a RESOURCE_EXHAUSTED error (HTTP 413), for a request or reply beyond a size limit."""
    return ServingError("RESOURCE_EXHAUSTED", message, 413)
