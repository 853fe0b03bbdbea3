"""Modes: whether a service may start on the addresses that its settings name.

Without tokens, everybody who reaches the service may do everything. So it listens only on loopback and on its Unix
socket, unless the settings explicitly allow more. The ports of dialects are on the same addresses.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable
from ipaddress import ip_address

import structlog

from buckets.errors import Unfit
from jobqueue.settings import Settings


def are_loopback(addresses: Iterable[str]) -> bool:
    """Whether only this machine can reach any of these IP addresses."""
    return all(map(_is_loopback, addresses))


def _is_loopback(address: str) -> bool:
    parsed = ip_address(address)
    mapped = parsed.ipv4_mapped if parsed.version == 6 else None
    return (mapped or parsed).is_loopback


log = structlog.get_logger()


async def check_may_start(settings: Settings) -> None:
    """Raises Unfit for a service that other machines could use without tokens, or without TLS, though no setting allows
    this, and for a host that cannot be resolved."""
    beyond = await beyond_loopback(settings.host)
    why = open_without_word(settings, beyond) or plain_without_word(settings) if beyond else ""
    if why:
        raise Unfit(why)


async def warn_where_open(settings: Settings) -> None:
    """Log `access.open` for a service that other machines may use without tokens."""
    if settings.access == "open" and (beyond := await beyond_loopback(settings.host)):
        log.warning("access.open", addresses=beyond)


async def beyond_loopback(host: str, setting: str = "host") -> list[str]:
    """The addresses of a host that other machines may reach, or an empty list if all are loopback. Raises Unfit, with
    the name of the `setting`, for a host that cannot be resolved."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(
            host or None, None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except OSError as error:
        raise Unfit(f"{setting} = {host!r} cannot be resolved: {error.strerror or error}") from None
    addresses = dict.fromkeys(str(address[0]) for *_, address in found)
    return [each for each in addresses if not are_loopback([each])]


def open_without_word(settings: Settings, beyond: list[str]) -> str:
    """Why a service that listens beyond loopback may not be open, or an empty string if it may, or is not open."""
    if settings.access != "open" or settings.allow_open:
        return ""
    return (
        f"host = {settings.host!r} listens on {', '.join(beyond)}, and without tokens everybody who reaches it may do"
        ' everything: set access = "tokens", or allow_open = true if that is meant'
    )


def plain_without_word(settings: Settings) -> str:
    """Why a service that listens beyond loopback with TLS may not have a dialect's port without TLS, or an empty string
    if it may."""
    if not settings.tls_cert:
        return ""
    for name, options in settings.protocols.open():
        if not getattr(options, "allow_plain", True):
            return (
                f"protocols.{name} has no TLS, while the service has: close its port, keep host on loopback, or set"
                " its allow_plain = true if that is meant"
            )
    return ""
