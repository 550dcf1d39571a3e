"""Errors in the canonical codes that both transports carry."""

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
    """A failure with its canonical code, as `error.code`: "NOT_FOUND", "UNAVAILABLE", ..."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message

    @property
    def http_status(self) -> int:
        """What REST answers with."""
        return HTTP_STATUS.get(self.code, 500)

    def __reduce__(self):
        return type(self), (self.code, self.message)

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"


class TooLarge(ServingError):
    """A request or a reply beyond what one may be, RESOURCE_EXHAUSTED."""

    http_status = 413

    def __init__(self, message: str) -> None:
        super().__init__("RESOURCE_EXHAUSTED", message)

    def __reduce__(self):
        return type(self), (self.message,)


class TooSlow(ServingError):
    """A request that does not come in time, DEADLINE_EXCEEDED."""

    http_status = 408

    def __init__(self, seconds: float) -> None:
        super().__init__(
            "DEADLINE_EXCEEDED", f"the body comes too slowly: nearly nothing in {seconds:g} seconds"
        )
        self.seconds = seconds

    def __reduce__(self):
        return type(self), (self.seconds,)


def invalid(message: str) -> ServingError:
    """Returns the error of a request that can never succeed as it is."""
    return ServingError("INVALID_ARGUMENT", message)
