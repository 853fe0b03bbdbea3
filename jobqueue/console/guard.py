"""Which requests the console answers, judged by their headers; and what trusted proxies report about a request.

`jobqueue.access.browsers` does the former for the service. If a foreign page points its host name at this machine (DNS
rebinding), that name is still in `Host`. If a page of another site makes a browser send a request, the browser says so
in `Sec-Fetch-Site`, or in `Origin` if it sends only `Origin`. Anybody can send a proxy's headers, so they are believed
only from the addresses of the trusted proxies.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from ipaddress import ip_address, ip_network
from typing import NamedTuple
from urllib.parse import urlsplit

import structlog
from aiohttp import web
from multidict import MultiMapping

from jobqueue.console.options import Options, is_loopback


def name_of(host: str) -> str:
    """The name or the address in a `Host` header, without its port; empty if the header has neither."""
    if host.startswith("["):
        address, _, rest = host[1:].partition("]")
        return "" if rest.strip(":0123456789") else address.lower()
    return host.partition(":")[0].lower().removesuffix(".")


class Guard:
    """`names`: the host names of the console."""

    def __init__(self, names: frozenset[str]) -> None:
        self._names = names

    def knows(self, headers: MultiMapping[str]) -> bool:
        """Whether the `Host` of the request is a name of the console."""
        given = headers.getall("Host", [])
        return len(given) == 1 and name_of(given[0]) in self._names

    def is_from_here(self, headers: MultiMapping[str]) -> bool:
        """Return True if a page of the console sent this POST. A request that does not say where it comes from was not
        sent by a browser, and so not by a page of ours."""
        sites, origins = headers.getall("Sec-Fetch-Site", []), headers.getall("Origin", [])
        if sites:
            return sites == ["same-origin"]
        return len(origins) == 1 and urlsplit(origins[0]).netloc.lower() == headers.get("Host", "").lower()


def is_for_loopback(headers: MultiMapping[str]) -> bool:
    """Return True if the browser is on this machine, because it uses a loopback name for the console."""
    return is_loopback(name_of(headers.get("Host", "")))


log = structlog.get_logger()

_FORWARDED = "X-Forwarded-For"
_NOTED_EVERY_S = 60.0
_MOST_NOTED = 1000


class User(NamedTuple):
    """A person who has signed in at a proxy."""

    name: str
    groups: tuple[str, ...]


class Proxies:
    """`clock`: returns monotonic seconds."""

    def __init__(self, options: Options, clock: Callable[[], float] = time.monotonic) -> None:
        self._networks = [ip_network(each) for each in options.trusted_proxies]
        self._user_header = options.user_header
        self._groups_header = options.groups_header
        self._clock = clock
        self._noted: dict[str, float] = {}

    def address_of(self, request: web.Request) -> str:
        """The address that a request comes from: behind trusted proxies, the last address that is not one of them."""
        address = request.remote or ""
        forwarded = ",".join(request.headers.getall(_FORWARDED, [])).split(",")
        for each in map(str.strip, reversed(forwarded)):
            if not (self._trusts(address) and _is_address(each)):
                break
            address = each
        return address

    def user_of(self, request: web.Request) -> User | None:
        """The user whom a proxy has signed in, or None if the request names no user or does not come from a trusted
        proxy. Raises HTTPBadRequest for a name that cannot be passed on."""
        names = request.headers.getall(self._user_header, []) if self._user_header else []
        if not names:
            return None
        if not self._trusts(request.remote or ""):
            self._note(request.remote or "")
            return None
        if len(names) > 1 or not names[0].strip() or not names[0].isprintable():
            raise web.HTTPBadRequest(reason=f"{self._user_header} must be there once, and be printable UTF-8")
        groups = ",".join(request.headers.getall(self._groups_header, [])).split(",")
        return User(names[0].strip(), tuple(filter(None, map(str.strip, groups))))

    def _trusts(self, address: str) -> bool:
        if not _is_address(address):
            return False
        parsed = ip_address(address)
        mapped = parsed.ipv4_mapped if parsed.version == 6 else None
        return any((mapped or parsed) in network for network in self._networks)

    def _note(self, address: str) -> None:
        """Log, at most once a minute, that the headers from an address are ignored."""
        now = self._clock()
        if now - self._noted.get(address, now - _NOTED_EVERY_S) < _NOTED_EVERY_S:
            return
        if len(self._noted) >= _MOST_NOTED:
            self._noted.clear()
        self._noted[address] = now
        log.warning("console.header_ignored", header=self._user_header, address=address)


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True
