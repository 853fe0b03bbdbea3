"""What the console is started with; and its own TLS: a certificate and a key, read again when one of their files
changed.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

if TYPE_CHECKING:
    from ssl import SSLContext

    from jobqueue_client.access import Token


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


COLOURS = ("grey", "blue", "green", "amber", "red", "purple")
_LOCAL = ("localhost", "127.0.0.1", "::1")


def is_loopback(host: str) -> bool:
    """Whether a host, by its name or its address, is this machine."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True)
class Options:
    """`url`: of the service; `tls`: whom to trust there. `hosts`: the names by which browsers know the console, besides
    loopback names and `host`; `base_path`: what a proxy has put in front of its paths, without a slash at the end.
    `title` and `colour` tell one console from another. `hides_bodies`: a page shows a body only when it is asked to.
    What `trusted_proxies` (networks) say in the headers `user_header` and `groups_header` is believed; `roles` has the
    token of each group. With a `certificate` the console speaks TLS only."""

    url: str
    tls: SSLContext | None = None
    host: str = "127.0.0.1"
    port: int = 8001
    hosts: tuple[str, ...] = ()
    title: str = "jobqueue"
    colour: str = "grey"
    read_only: bool = False
    hides_bodies: bool = False
    base_path: str = ""
    trusted_proxies: tuple[str, ...] = ()
    user_header: str = ""
    groups_header: str = ""
    roles: Mapping[str, Token] = field(default_factory=dict)
    certificate: Certificate | None = None

    @property
    def names(self) -> frozenset[str]:
        """Every name that a request may have in `Host`."""
        return frozenset(name.lower() for name in (*_LOCAL, self.host, *self.hosts))
