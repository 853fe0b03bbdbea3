"""Free ports for servers that tests start, and restart on the same port."""

from __future__ import annotations

import functools
import itertools
import random
import socket
from collections.abc import Iterator
from contextlib import ExitStack, suppress

# Below the kernel's ephemeral range: an outgoing connection could take a stopped server's port before it is back.
_PORTS = range(12_000, 32_000)
# Each process has a share of its own: another one could take a stopped server's port, too.
_SHARE = 500


@functools.cache
def _turn() -> Iterator[int]:
    """The ports of this process's share, each once before any comes again, bound or not."""
    shares = range(len(_PORTS) // _SHARE)
    share = next(filter(_is_claimed, shares), random.choice(shares))
    own = _PORTS[share * _SHARE :][:_SHARE]
    return itertools.cycle(random.sample(own, len(own)))


def _is_claimed(share: int) -> bool:
    """Return True if no other process has this share: it is this one's until it ends."""
    claim = socket.socket(socket.AF_UNIX)
    try:
        claim.bind(f"\0jobqueue-test-ports-{share}")
    except OSError:
        claim.close()
        return False
    claim.detach()  # open until the end
    return True


def free_ports(number: int) -> list[int]:
    """TCP ports of 127.0.0.1 that are free now."""
    with ExitStack() as held:
        found: list[int] = []
        while len(found) < number:
            port, probe = next(_turn()), held.enter_context(socket.socket())
            with suppress(OSError):
                probe.bind(("127.0.0.1", port))
                found.append(port)
        return found


def free_port() -> int:
    """One free TCP port of 127.0.0.1."""
    (port,) = free_ports(1)
    return port
