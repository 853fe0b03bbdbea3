"""Free ports for servers that tests start, and restart on the same port."""

from __future__ import annotations

import itertools
import os
import random
import socket
from contextlib import ExitStack, suppress

# Below the kernel's ephemeral range: an outgoing connection could take a stopped server's port before it is back.
_PORTS = range(12_000, 32_000)
_SHARE = 2_000
# Each process of a test run has a share of its own: it could take a stopped server's port, too. Other programs have the
# first one.
_WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw-1").removeprefix("gw")) + 1
_OWN = _PORTS[_WORKER * _SHARE % len(_PORTS) :][:_SHARE]
_turn = itertools.cycle(random.sample(_OWN, len(_OWN)))  # each once before any comes again, bound or not


def free_ports(number: int) -> list[int]:
    """TCP ports of 127.0.0.1 that are free now."""
    with ExitStack() as held:
        found: list[int] = []
        while len(found) < number:
            port, probe = next(_turn), held.enter_context(socket.socket())
            with suppress(OSError):
                probe.bind(("127.0.0.1", port))
                found.append(port)
        return found


def free_port() -> int:
    """One free TCP port of 127.0.0.1."""
    (port,) = free_ports(1)
    return port
