"""The token that a client shows. It stands in no message, and no `repr` shows it."""

from __future__ import annotations

import os
import re
import string
import zlib
from collections.abc import Mapping
from pathlib import Path

VARIABLE = "JOBQUEUE_TOKEN"

_PREFIX = "jqt_"
_FORM = re.compile(r"jqt_[0-9A-Za-z]{57}")
_CHECKSUM_LENGTH = 6
_DIGITS = string.digits + string.ascii_uppercase + string.ascii_lowercase
_SENDABLE = re.compile(r"[!-~]+")


class Token:
    """The one given as `token`, or in the file `token_file`, or in the environment; or none.

    `is_taken`: the headers have credentials of their own, so that the environment's are not used. Raises ValueError for
    a token that cannot be valid, and for a file that cannot be read.
    """

    def __init__(
        self, token: str | None = None, token_file: str | os.PathLike[str] | None = None, *, is_taken: bool = False
    ) -> None:
        if token is not None and token_file is not None:
            raise ValueError("give token or token_file, not both")
        if is_taken and (token is not None or token_file is not None):
            raise ValueError("give a token, or the header Authorization, not both")
        self._file = token_file
        self._text: str | None = None
        if token is not None:
            self._text = _checked(token, "token")
        elif token_file is not None:
            self._text = _read(token_file)
        elif not is_taken and (text := os.environ.get(VARIABLE)):
            self._text = _checked(text, VARIABLE)

    def __repr__(self) -> str:
        return "Token(none)" if self._text is None else "Token(hidden)"

    @property
    def authorization(self) -> str | None:
        """The value of the header Authorization."""
        return None if self._text is None else f"Bearer {self._text}"

    def is_replaced(self, authorization: str | None) -> bool:
        """Whether there is another token than in this header, which was refused: the file is read again.

        A file that is missing, or only half written, changes nothing.
        """
        if self._file is not None and self.authorization == authorization:
            try:
                self._text = _read(self._file)
            except ValueError:
                return False
        return self.authorization != authorization


def has_authorization(headers: Mapping[str, str]) -> bool:
    """Whether there are credentials among these headers."""
    return any(name.lower() == "authorization" for name in headers)


def _read(file: str | os.PathLike[str]) -> str:
    try:
        text = Path(file).read_text("utf-8")
    except OSError as error:
        raise ValueError(f"token_file cannot be read: {error.strerror}: {os.fspath(file)}") from None
    except UnicodeDecodeError:  # it quotes the file
        raise ValueError(f"token_file is not text: {os.fspath(file)}") from None
    return _checked(text.strip(), "the token in token_file")


def _checked(token: object, where: str) -> str:
    """The token itself. One that begins as the service's do has their form, and a checksum against typing errors."""
    if not isinstance(token, str) or not _SENDABLE.fullmatch(token):
        raise ValueError(f"{where} must be printable ASCII without spaces")
    if token.startswith(_PREFIX) and not (_FORM.fullmatch(token) and _has_checksum(token)):
        raise ValueError(f"{where} has a typing error: its form or its checksum is wrong")
    return token


def _has_checksum(token: str) -> bool:
    body, checksum = token[:-_CHECKSUM_LENGTH], token[-_CHECKSUM_LENGTH:]
    number = zlib.crc32(body.encode("ascii"))
    digits = ""
    for _ in range(_CHECKSUM_LENGTH):
        number, digit = divmod(number, len(_DIGITS))
        digits = _DIGITS[digit] + digits
    return digits == checksum
