"""Heads of requests with odd `Authorization` values, and what those must be that open anything."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

_NAMES = (b"Authorization", b"authorization", b"AUTHORIZATION", b"aUTHORIZATION")
_OTHER_NAMES = (
    b"Authorisation",
    b"X-Authorization",
    b"Proxy-Authorization",
    b"X-Token",
    b"Authorization ",
    b" Authorization",
)
_SCHEMES = (b"Bearer", b"bearer", b"BEARER", b"BeArEr")
_OTHER_SCHEMES = (b"", b"Basic", b"Digest", b"Token", b"Bearer:", b"Bearer,", b"Bear", b"Bearerr", b"\xff")
_SPACES = (b" ", b"  ", b"       ")
_OTHER_SPACES = (b"", b"\t", b" \t", b"=", b":", b", ", b"\xa0", b"\0", b"%20", b"\x0b", b"\x85")
_TAILS = (b"", b" ", b"\t", b"   ")
_OTHER_TAILS = (
    *(b",", b";", b" x", b",x", b"\0", b"\x01", b"\x7f", b"\xff", "é".encode(), b"\r", b"\n", b"\r\n ", b"\r\n\t"),
    *(b"\r\n x", b"%00", b"=", b"==", b"#", b"\x1b[0m", b"\x85", b"\xc2\xa0", b'"', b", Bearer x"),
)
_COLONS = (b": ", b":", b":  ", b":\t", b": \t ")
_ODD = (b"\0", b"\t", b" ", b"\r", b"\n", b"\x7f", b"\xff", b"\x80", b",", b"x", "ä".encode(), b"\r\n", b":", b"")
_HUGE = (3000, 4000, 5000, 8100, 8300, 20_000)
_BEGIN = b"POST /command HTTP/1.1\r\nHost: t\r\n"


class Heads:
    """Makes heads with the tokens that are given: `live`, and others that open nothing."""

    def __init__(self, seed: int, live: str, others: Sequence[str]) -> None:
        self._chance = random.Random(seed)
        self._live = live.encode()
        self._tokens = [self._live] * 4 + [other.encode() for other in others]
        self._opens = re.compile(rb"bearer +%b" % re.escape(self._live), re.IGNORECASE)

    def make(self) -> tuple[bytes, bool]:
        """The lines of a head, and whether they may open the service."""
        chance = self._chance
        fields = [self._field() for _ in range(chance.choices((1, 2, 3), (12, 3, 1))[0])]
        lines = [name + colon + value + b"\r\n" for name, colon, value in fields]
        shown = [value for name, _, value in fields if name.strip().lower() == b"authorization"]
        opens = len(shown) == 1 and self._opens.fullmatch(shown[0].strip(b" \t")) is not None
        if chance.random() < 0.2:
            lines.insert(chance.randrange(len(lines) + 1), b"X-A: b\r\n")
        return _BEGIN + b"".join(lines), opens

    def _field(self) -> tuple[bytes, bytes, bytes]:
        chance = self._chance
        name = chance.choice(_NAMES if chance.random() < 0.9 else _OTHER_NAMES)
        return name, chance.choice(_COLONS if chance.random() < 0.3 else (b": ",)), self._value()

    def _value(self) -> bytes:
        chance = self._chance
        kind = chance.random()
        if kind < 0.05:
            return chance.choice((b"", b" ", b"\t", *_SCHEMES, *_OTHER_SCHEMES))
        if kind < 0.1:
            return b"Bearer " + self._token() + b"x" * chance.choice(_HUGE)
        if kind < 0.15:
            return bytes(chance.randrange(256) for _ in range(chance.randrange(40)))
        scheme = chance.choice(_SCHEMES if chance.random() < 0.8 else _OTHER_SCHEMES)
        space = chance.choice(_SPACES if chance.random() < 0.8 else _OTHER_SPACES)
        tail = chance.choice(_TAILS if chance.random() < 0.7 else _OTHER_TAILS)
        return scheme + space + self._token() + tail

    def _token(self) -> bytes:
        """One of the tokens, often damaged."""
        chance = self._chance
        token = bytearray(chance.choice(self._tokens))
        place = chance.randrange(len(token))
        damage = chance.randrange(6)
        if damage == 0:
            token[place : place + chance.randrange(2)] = chance.choice(_ODD)
        elif damage == 1:
            token[place : place + 1] = token[place : place + 1].swapcase()
        elif damage == 2:
            del token[place:]
        return bytes(token)
