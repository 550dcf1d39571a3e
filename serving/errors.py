"""Errors in the canonical codes that both transports carry.

A `ServingError` describes a request or a reply, as tensorflow_model_server does: names of the
request in quotes, no full stop. Wrong arguments of a Python function raise `ValueError` or
`InvalidInput` instead: "`name` must be ...; received ...".
"""

from __future__ import annotations

#: Canonical code -> HTTP status; a code that is not listed is a 500.
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
    """A failure with its canonical code, as `error.code`: "NOT_FOUND", "UNAVAILABLE", ...

    Args:
        code: The canonical code.
        message: The received and the expected value.
        http_status: The status over REST, if it is not that of the code.
    """

    def __init__(self, code: str, message: str, http_status: int | None = None) -> None:
        super().__init__(code, message, http_status)
        self.code, self.message = code, message
        self.http_status = http_status or HTTP_STATUS.get(code, 500)

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"


def invalid(message: str) -> ServingError:
    """Return the error of a request that is wrong in itself."""
    return ServingError("INVALID_ARGUMENT", message)


def too_large(message: str) -> ServingError:
    """Return the error of a request or reply that exceeds a limit."""
    return ServingError("RESOURCE_EXHAUSTED", message, 413)
