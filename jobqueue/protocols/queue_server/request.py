"""A request, and the answer that is made of it.

What is echoed stays as it came: a member is read only where an action needs it, and a number that no reader here could
hold comes back digit by digit.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

import msgspec
import orjson

from jobqueue.errors import BadField, BadJson

Plus = dict[str, Any]
"""What an answer has that its request had not."""

FIELD_ERROR, TIME_ERROR, SYSTEM_ERROR = "field error", "time error", "system error"
INVALID_ACTION, NOT_SUPPORTED = "invalid action", "not support"
TOO_LARGE, FORBIDDEN = "too large", "forbidden"

_NEVER_ECHOED = ("token", "code", "reason", "detail")
_FOR_KNOWING = ("action", "queue", "seq")
_SHORT = 2_000  # bytes
_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_TEXT = msgspec.json.Decoder(str)
_INTEGER = re.compile(r"-?[0-9]{1,18}")
_NUMBER = re.compile(r"-?[0-9]{1,18}(?:\.[0-9]+)?(?:[eE][-+]?[0-9]{1,3})?")


class Refused(BadField):
    """A request that cannot be carried out, with the word of queue_server for it."""

    def __init__(self, reason: str, detail: str, field: str | None = None) -> None:
        super().__init__(detail, field=field)
        self.reason = reason


def refusal(reason: str, detail: str) -> Plus:
    """What the answer to a refused request has."""
    return {"code": -1, "reason": reason, "detail": detail}


class Request:
    """The members of a request. Of two with one name the last one counts."""

    def __init__(self, raw: bytes) -> None:
        """Raises BadJson for what is no object."""
        self._members = _read(raw)

    def text(self, name: str) -> str | None:
        """A string; None where there is none. Raises Refused for anything else, and for half a character."""
        raw = self._given(name)
        if raw is None:
            return None
        try:
            return _TEXT.decode(raw)
        except msgspec.DecodeError:
            raise Refused(FIELD_ERROR, f"{name} is a string of whole characters", name) from None

    def needed(self, name: str) -> str:
        """A string that must be there. Raises Refused."""
        text = self.text(name)
        if text is None:
            raise Refused(FIELD_ERROR, f"{name} is missing", name)
        return text

    def integer(self, name: str) -> int | None:
        """An integer, also as an integral number or as a string of digits. Raises Refused for anything else."""
        raw = self._given(name)
        if raw is None:
            return None
        word = raw.removeprefix(b'"').removesuffix(b'"').decode()
        if _INTEGER.fullmatch(word):
            return int(word)
        number = float(word) if not raw.startswith(b'"') and _NUMBER.fullmatch(word) else 0.5
        if not number.is_integer() or abs(number) >= 1e18:
            raise Refused(FIELD_ERROR, f"{name} is an integer", name)
        return int(number)

    def seconds(self, name: str, most: int) -> float:
        """A number of seconds up to `most`; 0 where there is none. Raises Refused for anything else."""
        word = (self._given(name) or b"0").decode()
        seconds = float(word) if _NUMBER.fullmatch(word) else -1.0
        if not 0 <= seconds <= most:
            raise Refused(FIELD_ERROR, f"{name} is a number of seconds from 0 to {most}", name)
        return seconds

    def answer(self, less: Iterable[str], plus: Plus) -> bytes:
        """The answer: the request with members less and plus."""
        gone = {*_NEVER_ECHOED, *less, *plus}
        parts = [b"%b:%b" % (_echo_name(name), _echo(raw)) for name, raw in self._members.items() if name not in gone]
        return b"{" + b",".join([*parts, orjson.dumps(plus)[1:-1]]) + b"}"

    def short_answer(self, plus: Plus) -> bytes:
        """An answer that repeats no more than a client needs to know it for its own."""
        gone = [name for name, raw in self._members.items() if name not in _FOR_KNOWING or len(raw) > _SHORT]
        return self.answer(gone, plus)

    def _given(self, name: str) -> bytes | None:
        """A member as it came; a null is as good as none."""
        raw = self._members.get(name)
        return None if raw == b"null" else raw


def _read(raw: bytes) -> dict[str, bytes]:
    try:
        text = raw.decode()
        return {name: bytes(value).strip() for name, value in _MEMBERS.decode(raw).items()}
    except UnicodeDecodeError:
        raise BadJson("a request is UTF-8") from None
    except RecursionError:
        raise BadJson("a request is nested too deeply") from None
    except msgspec.DecodeError:
        return _read_halves(text)


def _read_halves(text: str) -> dict[str, bytes]:
    """The members of an object whose strings may hold halves of characters (`\\ud83d` alone)."""
    try:
        members = json.loads(text)
        if isinstance(members, dict):
            return {name: json.dumps(value, allow_nan=False).encode() for name, value in members.items()}
    except (ValueError, RecursionError):
        pass
    raise BadJson("a request is a JSON object")


def _echo_name(name: str) -> bytes:
    try:
        return orjson.dumps(name)
    except orjson.JSONEncodeError:  # half a character
        return json.dumps(name).encode()


def _echo(raw: bytes) -> bytes:
    """A member as answers have it: a string without the escapes that it needs not have."""
    if raw.startswith(b'"') and b"\\" in raw:
        try:
            return orjson.dumps(_TEXT.decode(raw))
        except msgspec.DecodeError:
            pass  # half a character
    return raw
