"""A Redis Cluster: which of its servers has a key, and how the client learns that.

The wrong server names the right one (MOVED). In addition, a server that answers is asked for the whole slot map once a
second, and at once if something is wrong: so a server that hangs is abandoned once a replica has taken over. While a
slot moves, all its keys are refused until the move ends (buckets/keys.py says why). After an ASK, a script is never
sent to the named server, which would run it on half of its keys.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import logging
from collections.abc import Iterable
from typing import Any

from redis.crc import REDIS_CLUSTER_HASH_SLOTS as SLOTS
from redis.crc import key_slot

from buckets.errors import Unavailable
from buckets.meter import Meter
from buckets.redis.link import ErrorReply
from buckets.redis.server import Server, within
from buckets.redis.url import Address, Url

log = logging.getLogger(__name__)

_EVERY_S = 1.0
_TROUBLED_S = 0.1  # while something is wrong
_ANSWER_S = 0.4  # time limit of an answer, as the server may hang
_DOWN = "CLUSTERDOWN The cluster is down"  # the server reaches too few others, and refuses all keys, or all writes


@functools.lru_cache(maxsize=4096)
def slot_of(key: str | bytes) -> int:
    """The slot of a key."""
    slot: int = key_slot(key if isinstance(key, bytes) else key.encode())
    return slot


def _host_of(server: Server) -> str:
    """The host of a server, for addresses in its replies that leave out the host."""
    return server.name.rpartition(":")[0].strip("[]")


class Cluster:
    """The servers of a Cluster. Used in a running event loop."""

    def __init__(self, url: Url, timeout_s: float, meter: Meter) -> None:
        self._url = url
        self._timeout_s = timeout_s
        self._meter = meter
        self._servers: dict[Address, Server] = {}
        self._slots: list[Server | None] = [None] * SLOTS
        self._used: set[Server] = set()  # the servers on the map
        self._known = asyncio.Event()
        self._wanted = asyncio.Event()
        self._turn = itertools.count()
        self._watching: asyncio.Task[None] | None = None
        self._named: Server | None = None  # named by a MOVED since the map was read
        self._logged = ""

    def of(self, key: str | bytes | None) -> Server | None:
        """The server of a key, or None if it is unknown. With None as the key, any server, if possible one that
        answers."""
        if key is None:
            return min(self._used, key=lambda server: server.is_away, default=None)
        return self._slots[slot_of(key)]

    async def find(self, key: str | bytes | None, deadline: float) -> Server:
        """As `of`, but waits until the server is known. Raises Unavailable at the deadline (loop time)."""
        self._watching = self._watching or asyncio.create_task(self._watch())
        while True:
            if server := self.of(key):
                return server
            self._known.clear()
            self._wanted.set()
            try:
                async with asyncio.timeout_at(deadline):
                    await self._known.wait()
            except TimeoutError:
                raise Unavailable("no server of the Cluster says which server has the key") from None

    async def all(self, deadline: float) -> list[Server]:
        """The servers that have keys. Raises Unavailable."""
        await self.find(None, deadline)
        return sorted(self._used, key=lambda server: server.name)

    def refused(self, server: Server, error: str) -> Server | None:
        """Learn from an error reply of a server; returns the server to ask instead, if the reply names one."""
        word, _, target = error.partition(" ")
        if word != "MOVED":
            if word in ("CLUSTERDOWN", "MASTERDOWN"):
                self._wanted.set()
            if error.startswith(_DOWN):
                server.refuses_all()
            return None
        self._wanted.set()
        slot, _, address = target.partition(" ")
        host, _, port = address.rpartition(":")
        to = self._server(Address(host or _host_of(server), int(port)))
        self._used.add(to)
        self._slots[int(slot)] = to
        self._named = to
        return to

    def _server(self, address: Address) -> Server:
        """The server at an address, connecting to it if it is new."""
        if address not in self._servers:
            reach = functools.partial(self._reach, address)
            self._servers[address] = Server(str(address), reach, self._timeout_s, self._meter)
            self._servers[address].begin()
        return self._servers[address]

    async def _reach(self, address: Address) -> Any:
        self._wanted.set()  # a connection was lost: a replica may have replaced its server
        return self._url.connection(address)

    async def _watch(self) -> None:
        """Keep the map up to date, until cancelled."""
        while True:
            self._wanted.clear()
            try:
                well = await self._read_map()
            except Exception:
                log.exception("cluster.unreadable")
                well = False
            await asyncio.sleep(_TROUBLED_S)  # at most this often, whatever is wanted
            if well:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_EVERY_S - _TROUBLED_S):
                        await self._wanted.wait()

    async def _read_map(self) -> bool:
        """Read the map from a server that answers; returns whether all known servers answer."""
        for server in self._asked():
            with contextlib.suppress(Unavailable):
                deadline = asyncio.get_running_loop().time() + _ANSWER_S
                link = await server.connected(deadline)
                reply = await within(deadline, link.ask(("CLUSTER", "SLOTS")))
                if not isinstance(reply, ErrorReply):
                    self._take(reply, server)
                    return not any(each.is_away for each in self._servers.values())
                server.trouble = str(reply)
        return False

    def _asked(self) -> Iterable[Server]:
        """The servers to ask for the map: first those that answer, in rotation; then those that refuse everything else,
        whose map may be old; then the addresses in the URL."""
        well = [each for each in self._servers.values() if not each.is_away]
        first = next(self._turn) % len(well) if well else 0
        named, self._named = self._named, None
        yield from [named] if named in well and named else []  # the others may learn of a move later
        yield from (*well[first:], *well[:first])
        yield from [each for each in self._servers.values() if each.refuses]
        yield from map(self._server, self._url.addresses)

    def _take(self, ranges: list[Any], answered_by: Server) -> None:
        """Adopt the reply to CLUSTER SLOTS: for each range (first, last, [host, port, …] of the master, …)."""
        slots: list[Server | None] = [None] * SLOTS
        for first, last, master, *_ in ranges:
            host = (master[0] or b"").decode() or _host_of(answered_by)
            slots[first : last + 1] = [self._server(Address(host, master[1]))] * (last - first + 1)
        used = {each for each in slots if each}
        if not used:
            return
        self._slots, self._used = slots, used
        self._log(used)
        for address, server in list(self._servers.items()):
            if server not in used:
                del self._servers[address]
                server.retire()
        self._known.set()

    def _log(self, used: set[Server]) -> None:
        names = ", ".join(sorted(server.name for server in used))
        if self._logged != names:
            log.info("cluster.known", extra={"servers": names})
            self._logged = names

    @property
    def trouble(self) -> str:
        """Why the last attempts to connect failed, by server, for an operator."""
        return "; ".join(f"{each.name}: {each.trouble}" for each in self._servers.values() if each.trouble)

    async def close(self) -> None:
        """Hang up."""
        if self._watching:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
        await asyncio.gather(*(each.close() for each in self._servers.values()))
