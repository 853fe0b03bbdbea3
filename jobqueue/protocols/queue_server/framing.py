"""Where an object ends in what a client sends: nothing, or blanks, stand between one and the next."""

from __future__ import annotations

import re

from jobqueue.errors import BadJson, TooLarge

_STRING = rb'"(?:[^"\\]++|\\.)*+"'
_TO_BRACE = re.compile(
    rb'(?:[^"{}]++|' + _STRING + rb'|\{(?:[^"{}]++|' + _STRING + rb")*+\})*+",
    re.DOTALL,
)
"""What changes nothing about the depth: also objects that hold no other, and have come whole."""
_TO_QUOTE = re.compile(rb'(?:[^"\\]++|\\.)*+', re.DOTALL)
"""The rest of a string that came in pieces; a lone backslash at the end stays: what it escapes is still to come."""
_BLANKS = re.compile(rb"[ \t\r\n]*+")
_QUOTE, _OPEN, _BACKSLASH = b'"{\\'
_DEEPEST = 500  # objects within each other; more are as deep as nobody means


class NoObject(BadJson):
    """a request is a JSON object."""


class Framing:
    """Cuts the bytes of a connection into objects, in a time that grows with their number only, in however many pieces
    they come."""

    def __init__(self, received: bytearray, most: int) -> None:
        """`received`: where the bytes arrive, and what is taken is removed from. `most`: bytes of an object."""
        self._bytes = received
        self._most = most
        self._at = 0  # what stands before it was looked at
        self._depth = 0
        self._in_string = False

    def take(self) -> bytes | None:
        """The next object, if all of it has come. Raises NoObject where none begins; BadJson for one that is too deep,
        TooLarge for one that is too long."""
        if not self._at and not self._begin():
            return None
        while self._step():
            if self._depth == 0:
                return self._cut()
        if len(self._bytes) > self._most:
            raise TooLarge(f"an object has at most {self._most} bytes")
        return None

    def _begin(self) -> bool:
        """Drop the blanks before an object and go behind its first brace; returns whether that has come."""
        blanks = _BLANKS.match(self._bytes)
        del self._bytes[: blanks.end() if blanks else 0]
        if not self._bytes:
            return False
        if self._bytes[0] != _OPEN:
            raise NoObject
        self._at = self._depth = 1
        return True

    def _step(self) -> bool:
        """Go behind the next quote or brace that counts; returns whether it has come."""
        found = (_TO_QUOTE if self._in_string else _TO_BRACE).match(self._bytes, self._at)
        self._at = found.end() if found else self._at
        if self._at == len(self._bytes) or (self._in_string and self._bytes[self._at] == _BACKSLASH):
            return False
        mark = self._bytes[self._at]
        self._at += 1
        if mark == _QUOTE:
            self._in_string = not self._in_string
            return True
        self._depth += 1 if mark == _OPEN else -1
        if self._depth > _DEEPEST:
            raise BadJson(f"a request holds at most {_DEEPEST} objects within each other")
        return True

    def _cut(self) -> bytes:
        end, self._at = self._at, 0
        if end > self._most:
            raise TooLarge(f"an object has at most {self._most} bytes")
        taken = bytes(self._bytes[:end])
        del self._bytes[:end]
        return taken
