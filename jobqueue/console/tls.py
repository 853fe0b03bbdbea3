"""TLS for the console itself: a certificate and its key, which are reloaded when one of their files changes."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import structlog

log = structlog.get_logger()

_LOOK_S = 60.0


class Certificate:
    """`cert`: a PEM file with the certificate and its chain; `key`: a PEM file with its key, without a password. Raises
    ValueError for files that cannot be loaded."""

    def __init__(self, cert: str, key: str) -> None:
        self._cert = cert
        self._key = key
        self._seen = self._look()
        self.context = self._loaded()
        """The context of all handshakes."""

    async def run(self) -> None:
        """Check every minute whether a file has changed."""
        while True:
            await asyncio.sleep(_LOOK_S)
            self.tick()

    def tick(self) -> None:
        """Reload the files if one has changed. If they cannot be loaded, the previous certificate stays in use."""
        seen = self._look()
        if seen == self._seen:
            return
        self._seen = seen
        try:
            self._loaded()  # tried first: a mismatched pair would leave the context in use without a key
            self.context.load_cert_chain(self._cert, self._key, password=_refuse)
        except (OSError, ValueError) as error:
            log.error("tls.refused", error=str(error))
        else:
            log.info("tls.reloaded")

    def _loaded(self) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        try:
            context.load_cert_chain(self._cert, self._key, password=_refuse)
        except ssl.SSLError as error:
            raise ValueError(f"{self._cert} and {self._key} cannot be used: {error.reason or error}") from None
        except OSError as error:
            raise ValueError(f"{self._cert} and {self._key} cannot be read: {error.strerror}") from None
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_RENEGOTIATION
        context.set_alpn_protocols(["http/1.1"])
        return context

    def _look(self) -> list[tuple[int, int]]:
        """The time and inode of each file, to detect a change; zeros for a file that cannot be examined."""
        return [_time(file) for file in (self._cert, self._key)]


def _time(file: str) -> tuple[int, int]:
    try:
        found = Path(file).stat()
    except OSError:
        return 0, 0
    return found.st_mtime_ns, found.st_ino


def _refuse() -> str:
    raise ValueError("the key has a password, and nobody is there to type it")
