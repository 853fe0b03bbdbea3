"""The errors of the service, and the table that maps a code to its HTTP status."""

from __future__ import annotations

import math
import shlex
import sys
from importlib.util import find_spec

from buckets.errors import JobQueueError, TryLater

_PACKAGE = "jobqueue"


class BadRequest(JobQueueError):
    """The request is malformed."""

    code = "BAD_FIELD"

    def __init__(self, message: str = "", *, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field


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


class EncodedBody(BadHttp):
    """Content-Encoding is not supported: send the body as it is."""


class NoSuchPath(BadRequest):
    """no such path; commands go to POST /command."""

    code = "NO_SUCH_PATH"


class MethodNotAllowed(BadRequest):
    """this path does not accept the method; commands go to POST /command."""

    code = "METHOD_NOT_ALLOWED"


class Unauthorized(BadRequest):
    """the request needs a valid token."""

    code = "UNAUTHORIZED"

    def __init__(self, *, missing: bool = False) -> None:
        """`missing`: True if there was no token. Only dialects whose original systems make this distinction report
        it."""
        super().__init__()
        self.missing = missing


class Forbidden(BadRequest):
    """the token does not allow this, or a web page asked for it."""

    code = "FORBIDDEN"

    def __init__(self, message: str = "", *, right: str | None = None, topic: str | None = None) -> None:
        """`right`, `topic`: the right or the topic that the token lacks."""
        super().__init__(message)
        self.right = right
        self.topic = topic


class Misdirected(BadRequest):
    """the service is not known under the name in Host; the setting `allowed_hosts` adds names."""

    code = "MISDIRECTED"


class TooFast(TryLater):
    """the token's rate is used up."""

    code = "TOO_FAST"

    def __init__(self, message: str = "", *, retry_after: float = 1) -> None:
        """`retry_after`: seconds until a permit is available; rounded up to whole seconds in the answer."""
        super().__init__(message)
        self.retry_after = max(math.ceil(retry_after), 1)


class ShuttingDown(TryLater):
    """this instance is shutting down; retry, and another one will answer."""

    code = "SHUTTING_DOWN"
    retry_after = 0  # behind a proxy, the same address leads to another instance at once


class SettingsError(Exception):
    """The settings are wrong; the message says which and what is allowed."""


def missing_library(what: str, library: str, *extras: str) -> str:
    """The message for something that needs a missing library: the extras of the package that include it, and the
    command that installs them where this program runs.

    The command names the libraries, not the package: if the package was installed from a file, the registry may have a
    different package with the same name.
    """
    named = f"{what} needs the library {library}: install the extra [{','.join(extras)}] of {_PACKAGE}"
    libraries = [shlex.quote(each) for extra in extras for each in _libraries(extra)]
    if not libraries:  # a checkout that is not installed
        return named
    python = shlex.quote(sys.executable)
    pip = f"{python} -m pip install" if find_spec("pip") else f"uv pip install --python {python}"
    return f"{named}: {pip} {' '.join(libraries)}"


def _libraries(extra: str) -> list[str]:
    from importlib.metadata import PackageNotFoundError, requires  # noqa: PLC0415 - takes 10 ms, and is rarely needed

    try:
        required = requires(_PACKAGE) or []
    except PackageNotFoundError:
        return []
    parts = [each.partition(";") for each in required]
    return [name.strip() for name, _, marker in parts if f"extra == {extra!r}" in marker.replace('"', "'")]


STATUS = {
    "BAD_JSON": 400,
    "BAD_FIELD": 400,
    "UNKNOWN_FIELD": 400,
    "UNKNOWN_COMMAND": 400,
    "TOO_MANY": 400,
    "BAD_HTTP": 400,
    "UNAUTHORIZED": 401,
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
    "MISDIRECTED": 421,
    "TOPIC_FULL": 429,
    "TOO_FAST": 429,
    "NO_ROOM": 503,
    "UNAVAILABLE": 503,
    "SHUTTING_DOWN": 503,
    "INTERNAL": 500,
}
"""The HTTP status of each code."""

BAD_HTTP_STATUS: dict[type[Exception], int] = {TooSlow: 408, EncodedBody: 415}
"""The HTTP status of errors with the code BAD_HTTP that have a status of their own."""

_GROUPS = {
    401: "access",
    403: "access",
    404: "state",
    409: "state",
    421: "access",
    429: "limit",
    503: "unavailable",
    500: "internal",
}


def group_of(code: str) -> str:
    """The kind of refusal that a code is: request (it is malformed), access, state (of a job), limit, unavailable or
    internal."""
    return "request" if code == NoSuchPath.code else _GROUPS.get(STATUS.get(code, 400), "request")
