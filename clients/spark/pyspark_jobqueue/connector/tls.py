"""What went wrong with TLS, in words: a certificate, or a URL whose scheme is not that of the port."""

from __future__ import annotations

import http.client
import socket
import ssl
from urllib.parse import urlsplit

# What OpenSSL says of bytes that are not TLS.
_NOT_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST")
_PROBE_S = 3.0


def trouble(url: str, error: BaseException) -> str | None:
    """Why a request failed, if that has to do with TLS."""
    if isinstance(error, ssl.SSLCertVerificationError):
        cure = ". To trust its authority, set SSL_CERT_FILE on the driver and the executors"
        return f"the certificate is not valid: {error.verify_message.rstrip('.')}{cure}"
    if isinstance(error, ssl.SSLError) and error.reason in _NOT_TLS:
        return "this port does not speak TLS: use http://"
    is_closed = isinstance(error, ConnectionError | http.client.BadStatusLine)
    is_refused = isinstance(error, ConnectionRefusedError)
    if url.lower().startswith("http:") and is_closed and not is_refused and _speaks_tls(url):
        return "this port speaks TLS: use https://"
    return None


def _speaks_tls(url: str) -> bool:
    """Return True if what listens at an http URL speaks TLS: it closes a plain connection without a word."""
    parts = urlsplit(url)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # nothing is sent
    try:
        with (
            socket.create_connection((parts.hostname or "", parts.port or 80), _PROBE_S) as plain,
            context.wrap_socket(plain, server_hostname=parts.hostname),
        ):
            return True
    except ssl.SSLError as error:
        return "ALERT" in (error.reason or "")  # such as that a certificate is wanted
    except (OSError, ValueError):
        return False
