"""TLS to Redis: one context for all connections of a URL, made anew when its files change.

redis-py would make one for each connection, which holds up the event loop for some 50 ms, and would trust the
authorities of the system beside those that the URL names.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

_Stamps = tuple[object, ...]


class Contexts:
    """The context of a URL's connections, by what redis-py read from its parameters (`ssl_ca_certs` and others)."""

    def __init__(self) -> None:
        self._context: ssl.SSLContext | None = None
        self._stamps: _Stamps = ()

    def give(self, connection: Any) -> None:
        """Have a connection of redis-py, not open yet, use the context. Files that do not load leave the one of before;
        without one, raises OSError."""
        options = getattr(connection, "ssl_context", None)
        if options is None:  # no TLS
            return
        stamps = tuple(map(_stamp, (options.ca_certs, options.certfile, options.keyfile)))
        if self._context is None or stamps != self._stamps:
            self._renew(options, stamps)
        options.context = self._context

    def _renew(self, options: Any, stamps: _Stamps) -> None:
        try:
            self._context = _made(options)
            self._stamps = stamps
        except OSError as error:  # as ssl's errors are
            if self._context is None:
                files = ", ".join(filter(None, (options.ca_certs, options.certfile, options.keyfile)))
                why = error.strerror if error.errno and not isinstance(error, ssl.SSLError) else error
                raise OSError(f"the TLS files do not load ({files}): {why}") from None


def _stamp(path: str | None) -> object:
    """What changes with a file."""
    try:
        found = Path(path).stat() if path else None
    except OSError:
        return None
    return found and (found.st_mtime_ns, found.st_ino, found.st_size)


def _made(options: Any) -> ssl.SSLContext:
    """A context as the parameters ask for. The authorities of the system count only when the URL names none."""
    folder = getattr(options, "ca_path", None)  # older versions of redis-py lack this one and the password
    context = ssl.create_default_context(cafile=options.ca_certs, capath=folder, cadata=options.ca_data)
    context.check_hostname = options.check_hostname
    context.verify_mode = options.cert_reqs
    for flag in options.include_verify_flags or ():
        context.verify_flags |= flag
    for flag in options.exclude_verify_flags or ():
        context.verify_flags &= ~flag
    if options.certfile or options.keyfile:
        # Without a password OpenSSL would ask the terminal for that of an encrypted key.
        password = getattr(options, "password", None) or ""
        context.load_cert_chain(options.certfile or options.keyfile, options.keyfile, password)
    if options.min_version is not None:
        context.minimum_version = options.min_version
    if options.ciphers is not None:
        context.set_ciphers(options.ciphers)
    return context
