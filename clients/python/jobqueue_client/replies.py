"""Bytes on the wire: commands as JSON, and what an HTTP reply says."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from jobqueue_client.answers import Answer
from jobqueue_client.errors import Refused, Unreachable, refusal

_to_json = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


class Reply(NamedTuple):
    """An HTTP reply; `retry_after` is its header as it came."""

    status: int
    retry_after: str | None
    data: bytes


def encode(value: Any) -> bytes:
    """Compact UTF-8 JSON. TypeError, ValueError or RecursionError for what cannot be JSON."""
    return _to_json(value).encode()


def read(reply: Reply) -> Answer:
    """The answer to one command. Raises Refused, or Unreachable for what no job queue says."""
    answer = _parsed(reply)
    if not _is_answer(answer):
        raise _stranger(reply)
    if not answer["success"]:
        raise refusal(answer, reply.status, _header_s(reply))
    return answer  # type: ignore[no-any-return]  # _is_answer looked


def read_many(reply: Reply, count: int) -> list[Answer | Refused]:
    """The answers to `count` commands. Raises as `read` when all of them were refused as a whole."""
    answers = _parsed(reply)
    if not isinstance(answers, list):
        read(reply)
    if not isinstance(answers, list) or len(answers) != count or not all(map(_is_answer, answers)):
        raise _stranger(reply)
    return [answer if answer["success"] else refusal(answer, reply.status) for answer in answers]


def _parsed(reply: Reply) -> Any:
    try:
        return json.loads(reply.data, parse_int=_integer)
    except (ValueError, RecursionError):
        return None


def _integer(text: str) -> float:
    try:
        return int(text)
    except ValueError:  # Python reads no more than 4,300 digits; one such body must not hide the jobs beside it
        return float(text)


def _is_answer(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("success"), bool)


def _header_s(reply: Reply) -> float | None:
    """Retry-After in seconds; a date counts as none."""
    text = reply.retry_after
    return float(text) if text and text.isascii() and text.isdigit() else None


def _stranger(reply: Reply) -> Unreachable:
    """A reply of something else: a proxy whose service is gone, or a wrong URL."""
    return Unreachable(
        f"what answers is no job queue: HTTP status {reply.status}",
        maybe_done=not 300 <= reply.status < 500,
        for_now=reply.status in (502, 503, 504),
        retry_after=_header_s(reply),
    )
