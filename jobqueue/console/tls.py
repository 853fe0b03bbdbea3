"""TLS of the console's own: a certificate and its key, which are read again when one of their files has changed."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import structlog

log = structlog.get_logger()

_LOOK_S = 60.0


class Certificate:
    """`cert`: a file with the certificate and its chain; `key`: one with its key, without a password (PEM). Raises
    ValueError for files that do not load."""

    def __init__(self, cert: str, key: str) -> None:
        self._cert = cert
        self._key = key
        self._seen = self._look()
        self.context = self._loaded()
        """That of all handshakes."""

    async def run(self) -> None:
        """Look every minute whether a file has changed."""
        while True:
            await asyncio.sleep(_LOOK_S)
            self.tick()

    def tick(self) -> None:
        """Read the files again if one has changed. If they do not load, those of before hold."""
        seen = self._look()
        if seen == self._seen:
            return
        self._seen = seen
        try:
            self._loaded()  # a pair of which only one file is new would leave the other context without a key
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
        """What changes when a file does. A file that cannot be seen has no time."""
        return [_time(file) for file in (self._cert, self._key)]


def _time(file: str) -> tuple[int, int]:
    try:
        found = Path(file).stat()
    except OSError:
        return 0, 0
    return found.st_mtime_ns, found.st_ino


def _refuse() -> str:
    raise ValueError("the key has a password, and nobody is there to type it")
