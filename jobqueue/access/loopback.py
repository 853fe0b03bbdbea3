"""Loopback: addresses that only this machine reaches."""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import ip_address


def are_loopback(addresses: Iterable[str]) -> bool:
    """Whether only this machine reaches IP addresses, all of them."""
    return all(map(_is_loopback, addresses))


def _is_loopback(address: str) -> bool:
    parsed = ip_address(address)
    mapped = parsed.ipv4_mapped if parsed.version == 6 else None
    return (mapped or parsed).is_loopback
