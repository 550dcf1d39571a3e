"""Errors in the canonical codes that both transports carry."""

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

    def __init__(self, code, message):
        super().__init__(message)
        self.code = code
        self.message = message

    def __str__(self):
        return f"{self.code}: {self.message}"


def invalid(message):
    """Returns the error of a request that can never succeed as it is."""
    return ServingError("INVALID_ARGUMENT", message)
