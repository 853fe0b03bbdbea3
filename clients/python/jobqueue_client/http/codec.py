"""The codec: commands to compact JSON, HTTP replies to answers or errors."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from jobqueue_client.answers import Answer, Loads, loads
from jobqueue_client.errors import Refused, Unreachable, refusal
from jobqueue_client.http import Reply

_to_json = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def encode(value: Any) -> bytes:
    """Compact UTF-8 JSON. Raises TypeError, ValueError or RecursionError for a value that JSON cannot represent."""
    return _to_json(value).encode()


def read(reply: Reply, command: Mapping[str, Any] | None = None, loads: Loads = loads) -> Answer:
    """The answer to a command. Raises Refused, or Unreachable for a reply that no job queue sends."""
    answer = _parsed(reply, loads)
    if not _is_answer(answer):
        raise _foreign(reply)
    if not answer["success"]:
        raise refusal(answer, reply.status, _header_s(reply), command)
    return answer  # type: ignore[no-any-return]  # _is_answer checked it


def read_many(reply: Reply, commands: Sequence[Mapping[str, Any]], loads: Loads = loads) -> list[Answer | Refused]:
    """The answers to a batch. Raises as `read` does when the request was refused as a whole."""
    answers = _parsed(reply, loads)
    if not isinstance(answers, list):
        read(reply, loads=loads)
    if not isinstance(answers, list) or len(answers) != len(commands) or not all(map(_is_answer, answers)):
        raise _foreign(reply)
    return [
        answer if answer["success"] else refusal(answer, reply.status, command=command)
        for answer, command in zip(answers, commands, strict=True)
    ]


def _parsed(reply: Reply, loads: Loads) -> Any:
    try:
        return loads(reply.data)
    except (ValueError, RecursionError):
        return None


def _is_answer(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("success"), bool)


def _header_s(reply: Reply) -> float | None:
    """Retry-After in seconds; a date is ignored."""
    text = reply.retry_after
    return float(text) if text and text.isascii() and text.isdigit() else None


def _foreign(reply: Reply) -> Unreachable:
    """The error for a reply of something else: a proxy whose service is down, or a wrong URL."""
    return Unreachable(
        f"the reply is not from a job queue: HTTP status {reply.status}",
        maybe_done=not 300 <= reply.status < 500,
        for_now=reply.status in (502, 503, 504),
        retry_after=_header_s(reply),
    )
