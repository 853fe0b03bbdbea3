"""The errors of the service, and the table that maps a code to its HTTP status."""

from __future__ import annotations

from buckets.errors import JobQueueError, TryLater


class BadRequest(JobQueueError):
    """The request is malformed."""

    code = "BAD_FIELD"

    def __init__(self, message: str = "", *, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field
        self.job_id: str | None = None  # the one that the refused command named


class BadJson(BadRequest):
    """The request is not JSON."""

    code = "BAD_JSON"


class BadField(BadRequest):
    """A field has a value that is not allowed."""

    code = "BAD_FIELD"


class UnknownField(BadRequest):
    """The command has no such field."""

    code = "UNKNOWN_FIELD"


class UnknownCommand(BadRequest):
    """Unknown command."""

    code = "UNKNOWN_COMMAND"


class TooMany(BadRequest):
    """More commands in one request than are allowed."""

    code = "TOO_MANY"


class TooLarge(BadRequest):
    """The request or a body is larger than allowed."""

    code = "TOO_LARGE"


class BadHttp(BadRequest):
    """the request is not HTTP that this server accepts."""

    code = "BAD_HTTP"


class TooSlow(BadHttp):
    """the request was not complete in time."""


class NoSuchPath(BadRequest):
    """no such path; commands go to POST /command."""

    code = "NO_SUCH_PATH"


class MethodNotAllowed(BadRequest):
    """this path does not accept the method; commands go to POST /command."""

    code = "METHOD_NOT_ALLOWED"


class Unauthorized(BadRequest):
    """the request needs another token."""

    code = "UNAUTHORIZED"

    def __init__(self, *, missing: bool) -> None:
        super().__init__("the request needs a token" if missing else "")
        self.missing = missing


class Forbidden(BadRequest):
    """this request may not be made from there."""

    code = "FORBIDDEN"


class Misdirected(BadRequest):
    """the service does not have the name in Host; the setting allowed_hosts adds one."""

    code = "MISDIRECTED"


class ShuttingDown(TryLater):
    """this instance is shutting down; retry, and another one will answer."""

    code = "SHUTTING_DOWN"


class SettingsError(Exception):
    """The settings are wrong; the message says which and what is allowed."""


NATIVE_STATUS = {
    "BAD_JSON": 400,
    "BAD_FIELD": 400,
    "UNKNOWN_FIELD": 400,
    "UNKNOWN_COMMAND": 400,
    "TOO_MANY": 400,
    "BAD_HTTP": 400,
    "FORBIDDEN": 403,
    "TOO_LARGE": 413,
    "NOT_FOUND": 404,
    "NO_SUCH_PATH": 404,
    "METHOD_NOT_ALLOWED": 405,
    "ALREADY_EXISTS": 409,
    "RESERVED": 409,
    "NOT_RESERVED": 409,
    "STALE_LEASE": 409,
    "TOO_LATE": 409,
    "WRONG_STATE": 409,
    "TOPIC_FULL": 429,
    "NO_ROOM": 503,
    "UNAVAILABLE": 503,
    "SHUTTING_DOWN": 503,
    "INTERNAL": 500,
}
"""The HTTP status of each code that the native protocol can give."""

STATUS = NATIVE_STATUS | {"UNAUTHORIZED": 401, "MISDIRECTED": 421}
"""Of all codes: those that only a dialect gives, too."""
