"""A token: `jqt_`, 8 characters of id, 43 of secret, and 6 of checksum, in base 62.

The prefix and the checksum let scanners find a token that leaked, and clients a typing error. The secret has 256 random
bits, so a plain SHA-256 of the whole token is enough to keep.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import string
import zlib
from typing import Self

PREFIX = "jqt_"
ID_LENGTH, SECRET_LENGTH, CHECKSUM_LENGTH = 8, 43, 6
_DIGITS = string.digits + string.ascii_uppercase + string.ascii_lowercase
_FORM = re.compile(rf"{PREFIX}[0-9A-Za-z]{{{ID_LENGTH + SECRET_LENGTH + CHECKSUM_LENGTH}}}")


class Token:
    """A token in clear text, as only its bearer has it. It is not shown by accident: `text` must be asked for."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    @classmethod
    def make(cls, token_id: str = "") -> Self:
        """A new one. `token_id`: that of a token whose secret is exchanged."""
        secret = _base62(secrets.randbits(256), SECRET_LENGTH)
        body = f"{PREFIX}{token_id or new_id()}{secret}"
        return cls(body + _checksum(body))

    @classmethod
    def read(cls, text: str) -> Self | None:
        """The token with this text; None if that has not the form of one, or a wrong checksum."""
        body, checksum = text[:-CHECKSUM_LENGTH], text[-CHECKSUM_LENGTH:]
        return cls(text) if _FORM.fullmatch(text) and _checksum(body) == checksum else None

    @property
    def id(self) -> str:
        """What names it in answers, logs and records."""
        return self.text[len(PREFIX) : len(PREFIX) + ID_LENGTH]

    @property
    def digest(self) -> str:
        """What is kept of it, in hexadecimal digits."""
        return hashlib.sha256(self.text.encode("ascii")).hexdigest()

    def __repr__(self) -> str:
        return f"Token({self.id}…)"


def new_id() -> str:
    """An id for a new token."""
    return "".join(secrets.choice(_DIGITS) for _ in range(ID_LENGTH))


def _checksum(body: str) -> str:
    return _base62(zlib.crc32(body.encode("ascii", "replace")), CHECKSUM_LENGTH)


def _base62(number: int, length: int) -> str:
    """A number in digits of base 62, the highest first."""
    digits = []
    for _ in range(length):
        number, digit = divmod(number, len(_DIGITS))
        digits.append(_DIGITS[digit])
    return "".join(reversed(digits))
