"""The bodies of jobs, as they came: JSON that is not read, but must be what every reader can read."""

from __future__ import annotations

import re
from itertools import accumulate

import orjson
from msgspec import Raw

from jobqueue.errors import BadField, TooLarge

# PHP reads 512 levels by default, Python somewhat less than 1,000; and an answer has some around the body.
_DEEPEST = 500
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"')
_STEPS = bytes.maketrans(b"[{]}", b"\2\2\0\0")
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_DIGITS = bytes.maketrans(b"123456789E", b"000000000e")
_ENDLESS = re.compile(rb"\d[eE]\+?\d{3}")  # a number that may be beyond all that a reader can hold


def check(body: bytes, max_body_bytes: int) -> None:
    """Raises TooLarge, BadField."""
    if len(body) > max_body_bytes:
        raise TooLarge(f"body has {len(body)} bytes; at most {max_body_bytes} are allowed", field="body")
    if _may_be_unreadable(body):
        try:  # a lone surrogate or 1e999: well formed, but no reader could decode the answer that hands it out
            orjson.loads(body)
        except orjson.JSONDecodeError:
            raise BadField("body has a character or a number that cannot be read back", field="body") from None
    if len(body) > _DEEPEST and body.count(b"[") + body.count(b"{") > _DEEPEST and _depth(body) > _DEEPEST:
        raise BadField(f"body is nested too deeply; at most {_DEEPEST} levels are allowed", field="body")


def are_sound(bodies: list[Raw], max_body_bytes: int) -> bool:
    """Whether `check` takes all of them, by looks at them together. False is a doubt, no refusal."""
    if max(map(len, bodies)) > min(max_body_bytes, _DEEPEST):
        return False
    return not _may_be_unreadable(b"\n".join(bodies))


def _may_be_unreadable(json: bytes) -> bool:
    # A backslash is sooner found than one before a u, and a digit before an e than a number with an exponent; most
    # bodies have neither.
    return (b"\\" in json and b"\\u" in json) or (
        b"0e" in json.translate(_DIGITS) and _ENDLESS.search(json) is not None
    )


def _depth(body: bytes) -> int:
    """How many levels of arrays and objects a body has. Without a loop of Python: a body may be all brackets."""
    brackets = _STRING.sub(b"", body).translate(_STEPS, _NO_BRACKETS)
    return max(accumulate(map((-1).__add__, brackets)), default=0)
