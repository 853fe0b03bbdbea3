"""The errors of Spring's web framework, which answers for the systems built on it where a request does not reach their
own code."""

from __future__ import annotations

import time
from http import HTTPStatus

import orjson


def error(status: int, message: str, path: str) -> bytes:
    """The body of an answer with this status. `path`: as the client sent it."""
    return orjson.dumps(
        {
            "timestamp": time.time_ns() // 1_000_000,
            "status": status,
            "error": HTTPStatus(status).phrase,
            "path": path.encode("utf-8", "surrogateescape").decode("utf-8", "replace"),
            "message": message,
        }
    )
