"""Failures: what a request that got no answer means for the job."""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable
from typing import Any

import aiohttp
from jobqueue_client import Bury, Retry

from jobqueue.sinks.webhook.addresses import NotAllowed


class NoConnection(Retry):
    """Nothing was sent: the host, or the way to it, is down."""


def failure(error: Exception) -> Retry | Bury:
    """The outcome for the job. Its reason never shows the URL, nor which address was refused."""
    inner = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
    if isinstance(inner, NotAllowed):
        return Bury(inner.reason)
    if isinstance(error, aiohttp.InvalidURL):
        return Bury("url must have a host that is a name, or an address in its usual spelling")
    reason = next(tell(error) for kind, tell in _FAILURES if isinstance(error, kind))
    return NoConnection(reason=reason) if isinstance(error, _UNSENT) else Retry(reason=reason)


def _certificate(error: Any) -> str:
    return getattr(error.certificate_error, "verify_message", None) or "the certificate is not trusted"


def words(error: Exception) -> str:
    """Why a connection failed."""
    number = error.errno if isinstance(error, OSError) else None
    return os.strerror(number).lower() if number and number > 0 else "it failed"


_UNSENT = (aiohttp.ClientConnectorError, ssl.SSLError)
# The first match counts.
_FAILURES: tuple[tuple[type[Exception], Callable[[Any], str]], ...] = (
    (aiohttp.ClientConnectorCertificateError, lambda error: f"TLS failed: {_certificate(error)}"),
    (aiohttp.ClientConnectorSSLError, lambda error: "TLS failed"),
    (ssl.SSLError, lambda error: "TLS failed"),
    (aiohttp.ClientConnectorDNSError, lambda error: "the name of the host was not found"),
    (aiohttp.ClientConnectorError, lambda error: f"no connection: {words(error.os_error)}"),
    (aiohttp.ClientResponseError, lambda error: "the answer is not HTTP"),
    (Exception, lambda error: "the connection broke before the answer"),
)
