"""The guard: which hosts, addresses and ports a callback may connect to.

The producer of a job chooses its URL. Without a guard, a producer could make the worker call services that only the
worker can reach: databases, consoles, the metadata service of the cloud. So the worker connects to public addresses
only, whatever name, spelling or redirect led there: the guard checks the address and the port that a socket is about to
connect to. Names are checked only if the operator lists those that may be called.
"""

from __future__ import annotations

import fnmatch
import re
import socket
from collections.abc import Collection, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.resolver import ThreadedResolver

Network = IPv4Network | IPv6Network
Address = IPv4Address | IPv6Address
_Info = tuple[int, int, int, str, tuple[str, int] | tuple[str, int, int, int] | tuple[int, bytes]]

# Our own lists, because what `ipaddress` calls global differs between Python releases.
_NOT_PUBLIC = tuple(
    map(
        ip_network,
        (
            *("0.0.0.0/8", "10.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.168.0.0/16"),
            "100.64.0.0/10",  # carriers' NAT
            *("192.0.0.0/24", "192.88.99.0/24", "198.18.0.0/15"),  # protocols, relays, benchmarks
            *("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24"),  # documentation
            *("224.0.0.0/4", "240.0.0.0/4"),  # multicast; reserved, broadcast
            "168.63.129.16/32",  # looks public, but is Azure's own service for each machine there
            *("2001::/23", "2001:db8::/32", "3fff::/20"),  # protocols and Teredo; documentation
        ),
    )
)
_UNICAST = ip_network("2000::/3")  # all of IPv6 that is allocated: no loopback, link, site, unique local, multicast
_NAT64 = IPv6Network("64:ff9b::/96")


_USUAL_PORTS = frozenset((80, 443))

BAD_HOST = "the host is not allowed (see --allow-host)"
BAD_ADDRESS = "the address of the host is not allowed (see --allow-network)"
BAD_PORT = "the port is not allowed (see --allow-port)"


class NotAllowed(OSError):
    """What the guard refuses; `reason` is one of the sentences above, which name neither host nor address."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Guard:
    """Allows ports 80 and 443 of public addresses, and all ports of addresses in `networks`.

    `ports`: if any are given, only these ports are allowed, at all addresses. `hosts`: if any are given, only names
    that match one of these patterns are allowed; `*` stands for any text and `?` for any character.
    """

    def __init__(
        self, networks: Sequence[Network] = (), ports: Collection[int] = (), hosts: Sequence[str] = ()
    ) -> None:
        self._networks = tuple(networks)
        self._ports = frozenset(ports)
        self._hosts = tuple(re.compile(fnmatch.translate(host.lower())) for host in hosts)

    def check_host(self, host: str) -> None:
        """Check the host of a URL, in lower case. Raises NotAllowed."""
        if self._hosts and not any(pattern.match(host) for pattern in self._hosts):
            raise NotAllowed(BAD_HOST)

    def check(self, host: str, port: int) -> None:
        """Check an IP address in its usual notation, and a port. Raises NotAllowed, also for any other text."""
        try:
            address = ip_address(host)
        except ValueError:
            raise NotAllowed(BAD_ADDRESS) from None
        meant = _meant(address)
        is_named = any(each in network for each in (address, meant) for network in self._networks)
        if not is_named and not _is_public(meant):
            raise NotAllowed(BAD_ADDRESS)
        if port not in (self._ports or _USUAL_PORTS) and (self._ports or not is_named):
            raise NotAllowed(BAD_PORT)

    def socket(self, info: _Info) -> socket.socket:
        """For aiohttp: a socket for this address. Raises NotAllowed."""
        family, kind, protocol, _, address = info
        self.check(str(address[0]), int(address[1]))
        return socket.socket(family, kind, protocol)


class Resolver(AbstractResolver):
    """The system's resolver, without the addresses that the guard refuses.

    The sockets are guarded too; this way only the allowed addresses of a name are tried.
    """

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._system = ThreadedResolver()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """The allowed addresses of a name. Raises NotAllowed if it has only others, OSError if it has none."""
        try:
            found = await self._system.resolve(host, port, family)
        except UnicodeError:  # a label that is too long, or empty
            raise OSError(None, "not a valid host name") from None
        allowed, refusal = [], None
        for each in found:
            try:
                self._guard.check(each["host"], port)
                allowed.append(each)
            except NotAllowed as error:
                refusal = error
        if refusal and not allowed:
            raise refusal
        return allowed

    async def close(self) -> None:
        await self._system.close()


def _meant(address: Address) -> Address:
    """The IPv4 address that an IPv6 address stands for (mapped, 6to4, NAT64); otherwise the address itself."""
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped or address.sixtofour:
            return address.ipv4_mapped or address.sixtofour or address
        if address in _NAT64:
            return IPv4Address(int(address) & 0xFFFF_FFFF)
    return address


def _is_public(address: Address) -> bool:
    if isinstance(address, IPv6Address) and (address.scope_id or address not in _UNICAST):
        return False
    return not any(address in network for network in _NOT_PUBLIC)
