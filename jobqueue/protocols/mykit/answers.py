"""The answers to mykit-delay's clients: one wrapper with HTTP 200, or what Spring says of a request that does not reach
mykit's own code."""

from __future__ import annotations

import time
from http import HTTPStatus

import orjson

from jobqueue.commands.answers import Answer
from jobqueue.protocols import Reply


def done(data: str | None, message: str | None = None) -> Reply:
    """It was done."""
    return Reply(200, _wrapped(data, message, success=True))


def failed(answer: Answer) -> Reply:
    """It was not, for the reason of an answer."""
    return Reply(200, _wrapped(None, answer["error"], success=False), answer.get("retry_after"))


def refused(status: int, message: str, path: str) -> Reply:
    """Spring's page for another status than 200. `path`: as the client sent it."""
    page = {
        "timestamp": time.time_ns() // 1_000_000,
        "status": status,
        "error": HTTPStatus(status).phrase,
        "message": message,
        "path": path,
    }
    return Reply(status, orjson.dumps(page))


def _wrapped(data: str | None, message: str | None, *, success: bool) -> bytes:
    wrapper = {
        "success": success,
        "data": data,
        "code": 200 if success else 500,
        "includes": None,
        "excludes": None,
        "onlyData": False,
        "callback": None,
        "message": message,
    }
    return orjson.dumps(wrapper)
