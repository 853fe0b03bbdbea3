"""The answers to lmstfy's clients."""

from __future__ import annotations

import base64
import math
from typing import Any

import orjson

from buckets import Job, Tag
from jobqueue.commands.answers import Answer
from jobqueue.errors import STATUS, TooFast, Unauthorized
from jobqueue.protocols import Reply
from jobqueue.wires import parameters

_NO_LIMIT = 65_535  # of tries: the most that a job of theirs can have
_API_NOT_FOUND = "api not found"
_NO_SUCH_API = {"NO_SUCH_PATH", "METHOD_NOT_ALLOWED"}


def json(status: int, **members: Any) -> Reply:
    """An answer with these members."""
    return Reply(status, orjson.dumps(members))


def array(jobs: list[Answer]) -> Reply:
    """Several jobs."""
    return Reply(200, orjson.dumps(jobs))


def nothing() -> Reply:
    """Done, and nothing to say."""
    return Reply(204, b"")


def failed(answer: Answer) -> Reply:
    """The reply that reports an error."""
    if answer["code"] == Unauthorized.code:  # of a wait that outlived its token, or a size that no token was shown for
        return unauthorized(missing=False)
    status, error = STATUS[answer["code"]], answer["error"]
    if answer["code"] in _NO_SUCH_API:
        status, error = 404, _API_NOT_FOUND
    elif status not in (400, 403, 413) and answer["code"] != TooFast.code:  # their server has 429 for its rate, too
        status = 500
    return Reply(status, orjson.dumps({"error": error}), answer.get("retry_after"))


def unauthorized(missing: bool) -> Reply:
    """The reply without a token, or with a wrong one."""
    return json(401, error="token not found" if missing else "invalid token")


def job(each: Job, prefix: str, namespace: str, now_ms: int) -> Answer:
    """A job's members, as they all have them."""
    return {
        "namespace": namespace,
        "queue": each.topic.removeprefix(f"{prefix}{namespace}/"),
        "job_id": parameters.tilde(each.id),
        "data": base64.b64encode(parameters.given_bytes(each)).decode(),
        "ttl": 0 if each.ttl is None else max(math.ceil((each.due + each.ttl - now_ms) / 1000), 1),
        "elapsed_ms": max(now_ms - each.created, 0),
        "remain_tries": max(each.tries - each.attempts, 0) if each.tries else _NO_LIMIT,
        "attributes": _attributes(each),
    }


def _attributes(each: Job) -> dict[str, str] | None:
    raw = each.optional.get(Tag.HEADERS)
    headers: dict[str, str] = orjson.loads(raw) if raw else {}
    if headers.get(parameters.ENCODING) == parameters.BASE64:  # ours, for `data`
        del headers[parameters.ENCODING]
    return headers or None
