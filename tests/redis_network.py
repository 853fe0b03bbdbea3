"""A network between the servers of a set, in which some can be cut off from the others.

Each server listens at an address of its own, and calls others from there. They are told that it is at 127.0.0.1, at the
same ports: there is a proxy, which knows by the address who calls. The service calls from 127.0.0.1.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection
from contextlib import AsyncExitStack

from tests.chaos.servers.proxy import BOTH, FAIR, Proxy, Weather, to

SERVICE = "127.0.0.1"
"""Where the service calls from, and whoever else has no address of a server's."""


class Network:
    """Whole at first. Whoever asks a server at its own address is in no cut."""

    def __init__(self) -> None:
        self._proxies: dict[str, list[Proxy]] = {}
        self._stack = AsyncExitStack()
        self._numbers = itertools.count(1)

    async def add(self, *ports: int) -> str:
        """The address of a new server, which will listen at these ports there."""
        host = f"127.0.1.{next(self._numbers)}"
        proxies = [Proxy(to(port, host), port=port) for port in ports]
        self._proxies[host] = [await self._stack.enter_async_context(proxy) for proxy in proxies]
        return host

    def cut_off(self, hosts: Collection[str], *, with_service: bool) -> None:
        """Let nothing pass between these servers and the others, in either direction. The service reaches all of them;
        with `with_service` it is on the side of these, and reaches no other."""
        others = self._proxies.keys() - set(hosts)
        for host, proxies in self._proxies.items():
            cut = others if host in hosts else {*hosts, *((SERVICE,) if with_service else ())}
            for proxy in proxies:
                proxy.set(Weather(cut=BOTH), of=cut)

    def heal(self) -> None:
        """All reach all. What was sent meanwhile arrives, unless its sender has given up."""
        for proxy in itertools.chain(*self._proxies.values()):
            proxy.set(FAIR)

    async def close(self) -> None:
        await self._stack.aclose()
