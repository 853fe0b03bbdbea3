"""What a client shows the service, and what it trusts: the options that its constructors share."""

from __future__ import annotations

import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Self, TypedDict, Unpack

from jobqueue_client.access.tls import File, Tls
from jobqueue_client.access.token import Token, has_authorization


class AccessFields(TypedDict, total=False):
    """Options of every client; clients/README.md describes them."""

    token: str | None
    token_file: File | None
    ca_file: File | None
    cert_file: File | None
    key_file: File | None


@dataclass(frozen=True)
class Access:
    """The token that is sent along with each request, and the context of https connections, if there are any."""

    token: Token = field(default_factory=Token)
    tls: ssl.SSLContext | None = None

    @classmethod
    def of(cls, urls: Sequence[str], headers: Mapping[str, str] | None, **given: Unpack[AccessFields]) -> Self:
        """From a client's options. Raises ValueError, which names the invalid one and shows no token."""
        options = _Options(**given)
        token = Token(options.token, options.token_file, is_taken=has_authorization(headers or {}))
        return cls(token, Tls(options.ca_file, options.cert_file, options.key_file).context(urls))


class _Options(NamedTuple):
    token: str | None = None
    token_file: File | None = None
    ca_file: File | None = None
    cert_file: File | None = None
    key_file: File | None = None
