"""Ports for servers that tests start, and start again where they were."""

from __future__ import annotations

import random
import socket
from contextlib import ExitStack

# Below those that the kernel gives to connections, which could take a stopped server's port before it is back.
_PORTS = range(12_000, 32_000)


def free_ports(number: int) -> list[int]:
    """TCP ports of 127.0.0.1 that nobody has."""
    with ExitStack() as held:
        found: list[int] = []
        for port in random.sample(_PORTS, len(_PORTS)):
            probe = held.enter_context(socket.socket())
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            found.append(port)
            if len(found) == number:
                break
        return found


def free_port() -> int:
    """One of them."""
    (port,) = free_ports(1)
    return port
