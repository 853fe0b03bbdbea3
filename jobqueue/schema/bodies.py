"""The bodies of jobs: JSON that is passed on unread, but that every reader must be able to read."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import accumulate

import orjson
from msgspec import Raw

from jobqueue.errors import BadField, TooLarge
from jobqueue.schema.fields import DEEPEST_BODY

_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"')
_STEPS = bytes.maketrans(b"[{]}", b"\2\2\0\0")
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_DIGITS = bytes.maketrans(b"123456789E", b"000000000e")
_ENDLESS = re.compile(rb"\d[eE]\+?\d{3}")  # a number that may be too large for any reader


def check(body: bytes, max_body_bytes: int) -> None:
    """Raises TooLarge, BadField."""
    if len(body) > max_body_bytes:
        raise TooLarge(f"body has {len(body)} bytes; at most {max_body_bytes} are allowed", field="body")
    if _may_be_unreadable(body):
        try:  # a lone surrogate or 1e999: well formed, but no reader could decode the answer that hands it out
            orjson.loads(body)
        except orjson.JSONDecodeError:
            raise BadField("body has a number that is too large to be read back", field="body") from None
    if len(body) > DEEPEST_BODY and body.count(b"[") + body.count(b"{") > DEEPEST_BODY and _depth(body) > DEEPEST_BODY:
        raise BadField(f"body is nested too deeply; at most {DEEPEST_BODY} levels are allowed", field="body")


def are_clear(bodies: Sequence[Raw], max_body_bytes: int) -> bool:
    """Whether one look at many bodies finds that `check` takes each of them. False is only a doubt."""
    if max(map(len, bodies)) > min(max_body_bytes, DEEPEST_BODY):  # a shorter one cannot be too deep
        return False
    return not _may_be_unreadable(b"\n".join(bodies))


def _may_be_unreadable(json: bytes) -> bool:
    # The first test of each pair is the cheaper one, and most bodies pass it.
    return (b"\\" in json and b"\\u" in json) or (
        b"0e" in json.translate(_DIGITS) and _ENDLESS.search(json) is not None
    )


def _depth(body: bytes) -> int:
    """How many levels of arrays and objects a body has. It has no Python loop, for a body may be all brackets."""
    brackets = _STRING.sub(b"", body).translate(_STEPS, _NO_BRACKETS)
    return max(accumulate(map((-1).__add__, brackets)), default=0)
