"""What the console is started with."""

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
