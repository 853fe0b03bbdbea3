"""Access: the token that a client sends, and the certificates that it trusts and presents.

No message and no `repr` contains the token. Certificates are always checked.
"""

from __future__ import annotations

import os
import re
import socket
import ssl
import string
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Self, TypedDict, Unpack
from urllib.parse import urlsplit

File = str | os.PathLike[str]


@dataclass(frozen=True)
class Tls:
    """Files in PEM, read when a client is created.

    `ca_file`: the authorities to trust instead of the system's. `cert_file`: the client's certificate with its chain,
    and also its key unless `key_file` has the key. The key must be unencrypted.
    """

    ca_file: File | None = None
    cert_file: File | None = None
    key_file: File | None = None

    def context(self, urls: Sequence[str]) -> ssl.SSLContext | None:
        """Return the context for connections to these URLs, or None if none of them is https. Raises ValueError, which
        names the invalid option."""
        given = [name for name in ("ca_file", "cert_file", "key_file") if getattr(self, name) is not None]
        if not any(url.lower().startswith("https:") for url in urls):
            if given:
                raise ValueError(f"{given[0]} is for https URLs")
            return None
        if self.key_file is not None and self.cert_file is None:
            raise ValueError("key_file needs cert_file")
        return self._loaded()

    def _loaded(self) -> ssl.SSLContext:
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
        except OSError as error:
            raise ValueError(f"ca_file cannot be used: {_why(error)}: {self.ca_file}") from None
        if self.cert_file is not None:
            try:
                # Without `password`, OpenSSL would ask on the terminal for the password of an encrypted key.
                context.load_cert_chain(self.cert_file, self.key_file, password="")
            except OSError as error:
                files = " and ".join(str(file) for file in (self.cert_file, self.key_file) if file is not None)
                name = "cert_file" if self.key_file is None else "cert_file and key_file"
                raise ValueError(f"{name} cannot be used: {_why(error)}: {files}") from None
        return context


def speaks_tls(url: str, within_s: float) -> bool:
    """Return True if the server at an http URL speaks TLS; such a server closes a plain connection without a reply."""
    parts = urlsplit(url)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # safe: no data is sent
    try:
        with (
            socket.create_connection((parts.hostname or "", parts.port or 80), within_s) as plain,
            context.wrap_socket(plain, server_hostname=parts.hostname),
        ):
            return True
    except ssl.SSLError as error:
        return "ALERT" in (error.reason or "")  # such as a request for a certificate
    except (OSError, ValueError):
        return False


def _why(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return error.reason or "it is not PEM"
    return error.strerror or str(error)


VARIABLE = "JOBQUEUE_TOKEN"

_PREFIX = "jqt_"
_FORM = re.compile(r"jqt_[0-9A-Za-z]{57}")
_CHECKSUM_LENGTH = 6
_DIGITS = string.digits + string.ascii_uppercase + string.ascii_lowercase
_SENDABLE = re.compile(r"[!-~]+")


class Token:
    """The token from `token`, from the file `token_file`, or from the environment; or no token.

    `is_taken`: True if the headers already have credentials, so that the environment is ignored. Raises ValueError for
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
        """The value of the header Authorization, or None without a token."""
        return None if self._text is None else f"Bearer {self._text}"

    def is_replaced(self, authorization: str | None) -> bool:
        """Return True if the token now differs from the token in this refused header; may read the file again.

        A file that is missing, or only half written, changes nothing.
        """
        if self._file is not None and self.authorization == authorization:
            try:
                self._text = _read(self._file)
            except ValueError:
                return False
        return self.authorization != authorization


def has_authorization(headers: Mapping[str, str]) -> bool:
    """Whether these headers include credentials."""
    return any(name.lower() == "authorization" for name in headers)


def _read(file: str | os.PathLike[str]) -> str:
    try:
        text = Path(file).read_text("utf-8")
    except OSError as error:
        raise ValueError(f"token_file cannot be read: {error.strerror}: {os.fspath(file)}") from None
    except UnicodeDecodeError:  # the error itself quotes the file
        raise ValueError(f"token_file is not text: {os.fspath(file)}") from None
    return _checked(text.strip(), "the token in token_file")


def _checked(token: object, where: str) -> str:
    """Return the token. One with the prefix of the service's tokens must have their form and a valid checksum, which
    catches typing errors."""
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


class AccessFields(TypedDict, total=False):
    """Options of every client; clients/README.md describes them."""

    token: str | None
    token_file: File | None
    ca_file: File | None
    cert_file: File | None
    key_file: File | None


@dataclass(frozen=True)
class Access:
    """The token sent with each request, if any, and the TLS context of https connections, or None."""

    token: Token = field(default_factory=Token)
    tls: ssl.SSLContext | None = None

    @classmethod
    def of(cls, urls: Sequence[str], headers: Mapping[str, str] | None, **given: Unpack[AccessFields]) -> Self:
        """Build from a client's options. Raises ValueError, which names the invalid option and never shows a token."""
        options = _Options(**given)
        token = Token(options.token, options.token_file, is_taken=has_authorization(headers or {}))
        return cls(token, Tls(options.ca_file, options.cert_file, options.key_file).context(urls))


class _Options(NamedTuple):
    token: str | None = None
    token_file: File | None = None
    ca_file: File | None = None
    cert_file: File | None = None
    key_file: File | None = None
