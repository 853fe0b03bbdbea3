"""The words for a failed connection, without the libraries' decoration."""

from __future__ import annotations

import os
import ssl


def words(error: BaseException) -> str:
    """What went wrong, such as "connection refused"."""
    inner = getattr(error, "os_error", error)  # aiohttp's errors wrap the system's
    if isinstance(inner, ssl.SSLCertVerificationError):
        return f"certificate not valid: {inner.verify_message}"
    if isinstance(inner, ssl.SSLError):
        return f"TLS failed: {inner.reason or inner}"
    if isinstance(inner, OSError) and inner.errno is not None:
        text = os.strerror(inner.errno) if inner.errno > 0 else inner.strerror or str(inner)
        return text[:1].lower() + text[1:]
    return repr(inner)
