"""The replies to camellia's clients.

Whatever the queue says is HTTP 200 with one of four codes and a sentence: the Java SDK makes an exception without text
of any other status. Requests that cannot be read are answered as Spring does.
"""

from __future__ import annotations

from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any

import orjson

from jobqueue.commands.answers import Answer
from jobqueue.protocols import Reply

SUCCESS, BAD, NOT_FOUND, FAILED = 200, 400, 404, 500
_CODES = {"BAD_FIELD": BAD, "TOO_LARGE": BAD, "NOT_FOUND": NOT_FOUND}
_TEXT = "text/plain;charset=UTF-8"


def json(code: int, **parts: Any) -> Reply:
    """HTTP 200 with one of their codes."""
    return Reply(200, orjson.dumps({"code": code, **parts}))


def text(**parts: Any) -> Reply:
    """JSON as plain text."""
    return Reply(200, orjson.dumps(parts), content_type=_TEXT)


def failed(answer: Answer, **parts: Any) -> Reply:
    """A command that failed. `parts`: the members that a success would fill."""
    return json(_CODES.get(answer["code"], FAILED), msg=answer["error"], **parts)


def spring(status: HTTPStatus, path: str, message: str) -> Reply:
    """A request that is not read, or cannot be."""
    timestamp = datetime.now(UTC).isoformat(timespec="milliseconds")
    page = {"timestamp": timestamp, "status": status, "error": status.phrase, "path": path, "message": message}
    return Reply(status, orjson.dumps(page))


def health(*, is_up: bool) -> Reply:
    """The answer of a health path."""
    return Reply(200, b'{"code":200}') if is_up else Reply(500, b'{"code":500}')
