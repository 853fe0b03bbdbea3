"""The guard: which addresses a callback may connect to.

The producer of a job chooses its URL. Without a guard, it could have the worker call what only the worker can reach:
databases, consoles, the metadata service of the cloud. So the worker connects to public addresses only, whatever name,
spelling or redirect led there: the guard checks the address that a socket is about to connect to.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
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


class NotAllowed(OSError):
    """An address that the guard refuses."""


class Guard:
    """Allows public addresses and those in `networks`."""

    def __init__(self, networks: Sequence[Network] = ()) -> None:
        self._networks = tuple(networks)

    def allows(self, host: str) -> bool:
        """Whether connecting to an address is allowed; never for text that is not an address in its usual spelling."""
        try:
            address = ip_address(host)
        except ValueError:
            return False
        meant = _meant(address)
        return any(each in network for each in (address, meant) for network in self._networks) or _is_public(meant)

    def socket(self, info: _Info) -> socket.socket:
        """For aiohttp: a socket for this address. Raises NotAllowed."""
        family, kind, protocol, _, address = info
        if not self.allows(str(address[0])):
            raise NotAllowed("not allowed")
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
        allowed = [each for each in found if self._guard.allows(each["host"])]
        if found and not allowed:
            raise NotAllowed("not allowed")
        return allowed

    async def close(self) -> None:
        await self._system.close()


def _meant(address: Address) -> Address:
    """The IPv4 address that an IPv6 address stands for (mapped, 6to4, NAT64); else the address itself."""
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
