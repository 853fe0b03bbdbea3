"""The options of the console."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ssl import SSLContext

    from jobqueue_client.access import Token

    from jobqueue.console.tls import Certificate

COLOURS = ("grey", "blue", "green", "amber", "red", "purple")
_LOCAL = ("localhost", "127.0.0.1", "::1")


def is_loopback(host: str) -> bool:
    """Whether a host name or an address is a loopback one."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True)
class Options:
    """`url`: the service's URL; `tls`: the TLS context for it. `hosts`: the names that browsers use for the console, in
    addition to loopback names and `host`; `base_path`: the prefix that a proxy adds to its paths, without a slash at
    the end. `title` and `colour` distinguish one console from another. `hides_bodies`: True if a page shows a body only
    on request. The headers `user_header` and `groups_header` are believed only from `trusted_proxies` (networks);
    `roles` has the token of each group. With a `certificate`, the console speaks TLS only."""

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
