"""The networks that may use a dialect: the setting `allow`."""

from __future__ import annotations

import functools
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Any


def allows(networks: tuple[str, ...], peer: Any) -> bool:
    """Whether a client may use a dialect. `peer`: its address as the socket has it (`peername`, or the sender of a
    datagram); anything but an IP address may not."""
    try:
        address = ip_address(peer[0])
    except (ValueError, TypeError, IndexError):
        return False
    mapped = address.ipv4_mapped if address.version == 6 else None
    return any(each in network for network in _parsed(networks) for each in (address, mapped) if each is not None)


@functools.lru_cache(maxsize=64)
def _parsed(networks: tuple[str, ...]) -> list[IPv4Network | IPv6Network]:
    return [ip_network(each) for each in networks]
