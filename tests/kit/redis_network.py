"""A network between the servers of a set, in which some can be cut off from the others.

Each server listens on an address of its own and makes its outgoing connections from it. To the others it announces
127.0.0.1 with the same ports. A proxy listens there and knows the caller by its address. The service calls from
127.0.0.1.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection
from contextlib import AsyncExitStack

from tests.kit.proxy import BOTH, FAIR, Proxy, Weather, to

SERVICE = "127.0.0.1"
"""The address that the service calls from, and every caller that is not one of the servers."""


class Network:
    """A network that starts out whole. A caller that connects to a server's own address bypasses every cut."""

    def __init__(self) -> None:
        self._proxies: dict[str, list[Proxy]] = {}
        self._stack = AsyncExitStack()
        self._numbers = itertools.count(1)

    async def add(self, *ports: int) -> str:
        """Add a server that will listen on these ports; returns its address."""
        host = f"127.0.1.{next(self._numbers)}"
        proxies = [Proxy(to(port, host), port=port) for port in ports]
        self._proxies[host] = [await self._stack.enter_async_context(proxy) for proxy in proxies]
        return host

    def cut_off(self, hosts: Collection[str], *, with_service: bool) -> None:
        """Drop all traffic between these servers and the others, in both directions. The service still reaches all of
        them; with `with_service` it is on the side of `hosts` and reaches no other."""
        others = self._proxies.keys() - set(hosts)
        for host, proxies in self._proxies.items():
            cut = others if host in hosts else {*hosts, *((SERVICE,) if with_service else ())}
            for proxy in proxies:
                proxy.set(Weather(cut=BOTH), of=cut)

    def heal(self) -> None:
        """Connect everyone again. What was sent meanwhile arrives, unless its sender has given up."""
        for proxy in itertools.chain(*self._proxies.values()):
            proxy.set(FAIR)

    async def close(self) -> None:
        await self._stack.aclose()
