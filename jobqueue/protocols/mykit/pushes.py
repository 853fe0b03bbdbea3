"""The jobs that mykit-delay's clients push: JSON that its server reads with some indulgence. What cannot be read is
BadJson, the request's fault; what is not allowed is BadField."""

from __future__ import annotations

import re
from typing import NamedTuple

import msgspec
from msgspec import Raw

from jobqueue.errors import BadField, BadJson
from jobqueue.schema.fields import TEN_YEARS_S

_LONGEST_HEADER = 128
_MOST_MS = TEN_YEARS_S * 1000
_NUMBER = re.compile(r"\s*([+-]?)0*([0-9]{1,19})(\.[0-9]*)?\s*")
_NEW = (0, 5)  # the statuses of theirs that a pushed job may have: put, restored
_MEMBERS = msgspec.json.Decoder(dict[str, Raw])
_ANY = msgspec.json.Decoder()


class Push(NamedTuple):
    """A job as the client describes it; empty: not given."""

    topic: str
    id: str
    body: str
    delay_ms: int
    created_ms: int
    """The delay counts from then; 0: from now."""
    headers: dict[str, str]


def read(data: bytes) -> Push:
    """Raises BadJson, BadField."""
    members = _members(data)
    _number(members, "ttl")  # kept for nobody, as theirs
    status = _number(members, "status")
    push = Push(
        topic=_text(members, "topic"),
        id=_text(members, "id"),
        body=_text(members, "body"),
        delay_ms=max(_number(members, "delay"), 0),
        created_ms=_number(members, "createTime"),
        headers={name: text for name in ("bizKey", "subtopic") if (text := _text(members, name))},
    )
    if not push.topic:
        raise BadField("there is no topic")
    if status not in _NEW:
        raise BadField(f"the status of a new job must be 0 or 5, not {status}")
    _check(push)
    return push


def _check(push: Push) -> None:
    if push.delay_ms > _MOST_MS:
        raise BadField("the delay is longer than 10 years")
    for name, value in push.headers.items():
        if len(value) > _LONGEST_HEADER:
            raise BadField(f"{name} has {len(value)} characters; at most {_LONGEST_HEADER} are allowed")


def _members(data: bytes) -> dict[str, Raw]:
    try:
        return _MEMBERS.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise BadJson("the body is not a JSON object") from None


def _text(members: dict[str, Raw], name: str) -> str:
    """A string, or any other scalar as the text that it is; empty for null."""
    raw = bytes(members.get(name, Raw(b"null"))).strip()
    if raw[:1] in (b"{", b"["):
        raise BadJson(f"{name} must be a string")
    if raw[:1] != b'"':
        return "" if raw == b"null" else raw.decode()
    try:
        text: str = _ANY.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise BadJson(f"{name} is not a readable string") from None
    return text


def _number(members: dict[str, Raw], name: str) -> int:
    """A whole number, its fraction cut off, or a string of it; 0 for null and an empty string."""
    text = _text(members, name)
    if not text:
        return 0
    found = _NUMBER.fullmatch(text)
    if not found:
        raise BadJson(f"{name} must be a whole number")
    return int(found[1] + found[2])
