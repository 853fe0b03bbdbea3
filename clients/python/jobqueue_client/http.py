"""HTTP as the calls (`calls.py`) see it: a Request is sent, and a Reply is received or `words` say why the connection
failed.

`connections.py` sends requests for threads and `async_connections.py` for asyncio. Neither knows the commands or
repeats a request.
"""

from __future__ import annotations

import os
import ssl
from typing import NamedTuple

UNAUTHORIZED = 401
"""The status when the service, or a proxy, refuses the token."""


class Request(NamedTuple):
    """A request: the service's URL, the body, and for how many seconds the service may wait before it answers."""

    url: str
    data: bytes
    wait_s: float


class Reply(NamedTuple):
    """An HTTP reply; `retry_after` is the header as received."""

    status: int
    retry_after: str | None
    data: bytes


def command_url(url: str) -> str:
    """The URL at which the service at `url` accepts commands."""
    return url.rstrip("/") + "/command"


# OpenSSL's codes: the certificate, or one in its chain, is self-signed or signed by an unknown authority.
_UNTRUSTED = (2, 18, 19, 20, 21)
# OpenSSL's reasons for bytes that are not TLS.
_NOT_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST")

SPEAKS_TLS = "this port speaks TLS: use https://"


def words(error: BaseException) -> str:
    """What went wrong, such as "connection refused"."""
    inner = getattr(error, "os_error", error)  # aiohttp's errors wrap the system's
    inner = getattr(inner, "certificate_error", inner)
    if isinstance(inner, ssl.SSLCertVerificationError) and inner.verify_code in _UNTRUSTED:
        return f"the certificate is not trusted ({inner.verify_message}): ca_file names the authority to trust"
    if isinstance(inner, ssl.SSLCertVerificationError):
        return f"the certificate is not valid: {inner.verify_message}"
    if isinstance(inner, ssl.SSLError) and inner.reason in _NOT_TLS:
        return "this port does not speak TLS: use http://"
    if isinstance(inner, ssl.SSLError):
        return f"TLS failed: {inner.reason or inner}"
    if isinstance(inner, OSError) and inner.errno is not None:
        text = os.strerror(inner.errno) if inner.errno > 0 else inner.strerror or str(inner)
        return text[:1].lower() + text[1:]
    return repr(inner)
