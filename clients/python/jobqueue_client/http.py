"""HTTP as the calls (`calls.py`) see it: a Request goes out, a Reply comes back, or words say why the connection
failed.

`connections.py` carries them for threads and `async_connections.py` for asyncio. Neither knows a command or repeats a
request.
"""

from __future__ import annotations

import os
import ssl
from typing import NamedTuple

UNAUTHORIZED = 401
"""The status of a refused token, be it the service or a proxy that refuses it."""


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
    """Where the service at this URL takes commands."""
    return url.rstrip("/") + "/command"


# By OpenSSL: the certificate, or one that it was issued by, is signed by itself or by an unknown authority.
_UNTRUSTED = (2, 18, 19, 20, 21)
# What OpenSSL says of bytes that are not TLS.
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
