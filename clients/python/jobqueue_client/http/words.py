"""The words for a failed connection, without the libraries' decoration."""

from __future__ import annotations

import os
import ssl

# By OpenSSL: the certificate is signed by itself, by an authority that is, or by an unknown one.
_UNTRUSTED = (18, 19, 20)
# What OpenSSL says of bytes that are not TLS.
_NOT_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST")


def words(error: BaseException) -> str:
    """What went wrong, such as "connection refused"."""
    inner = getattr(error, "os_error", error)  # aiohttp's errors wrap the system's
    if isinstance(inner, ssl.SSLCertVerificationError):
        cure = "; ca_file names the authority to trust" if inner.verify_code in _UNTRUSTED else ""
        return f"certificate not valid: {inner.verify_message}{cure}"
    if isinstance(inner, ssl.SSLError) and inner.reason in _NOT_TLS:
        return "it does not speak TLS: use http://"
    if isinstance(inner, ssl.SSLError):
        return f"TLS failed: {inner.reason or inner}"
    if isinstance(inner, OSError) and inner.errno is not None:
        text = os.strerror(inner.errno) if inner.errno > 0 else inner.strerror or str(inner)
        return text[:1].lower() + text[1:]
    return repr(inner)
