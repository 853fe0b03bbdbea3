"""A Redis Cluster: which of its servers has a key, and how that is learned.

Who asks the wrong server is told the right one (MOVED). Beside it some server that answers is asked for the whole map
each second, and at once when something is wrong: so a server that hangs is left when a replica has taken its place.
While a slot moves, its keys are refused as a whole (buckets/keys.py tells why) until the move ends; a script is never
sent after an ASK, which would run it on half of its keys.
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
_TROUBLED_S = 0.1  # between two looks while something is wrong
_ANSWER_S = 0.4  # for one that hangs
_DOWN = "CLUSTERDOWN The cluster is down"  # of one that reaches too few others: it refuses all keys, or all writes


@functools.lru_cache(maxsize=4096)
def slot_of(key: str | bytes) -> int:
    """The slot of a key."""
    slot: int = key_slot(key if isinstance(key, bytes) else key.encode())
    return slot


def _host_of(server: Server) -> str:
    """Where a server says "here"."""
    return server.name.rpartition(":")[0].strip("[]")


class Cluster:
    """The servers of a Cluster. Used in a running event loop."""

    def __init__(self, url: Url, timeout_s: float, meter: Meter) -> None:
        self._url = url
        self._timeout_s = timeout_s
        self._meter = meter
        self._servers: dict[Address, Server] = {}
        self._slots: list[Server | None] = [None] * SLOTS
        self._used: set[Server] = set()  # those on the map
        self._known = asyncio.Event()
        self._wanted = asyncio.Event()
        self._turn = itertools.count()
        self._watching: asyncio.Task[None] | None = None
        self._told: Server | None = None  # whom a MOVED named since the last look
        self._said = ""

    def of(self, key: str | bytes | None) -> Server | None:
        """The server of a key, as far as is known; of None any that answers."""
        if key is None:
            return min(self._used, key=lambda server: server.is_away, default=None)
        return self._slots[slot_of(key)]

    async def find(self, key: str | bytes | None, deadline: float) -> Server:
        """As `of`, waiting until it is known. Raises Unavailable at the deadline (loop time)."""
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
        """Learn from an error reply of a server; whom to ask instead, where it told that."""
        word, _, rest = error.partition(" ")
        if word != "MOVED":
            if word in ("CLUSTERDOWN", "MASTERDOWN"):
                self._wanted.set()
            if error.startswith(_DOWN):
                server.refuses_all()
            return None
        self._wanted.set()
        slot, _, place = rest.partition(" ")
        host, _, port = place.rpartition(":")
        to = self._server(Address(host or _host_of(server), int(port)))
        self._used.add(to)
        self._slots[int(slot)] = to
        self._told = to
        return to

    def _server(self, address: Address) -> Server:
        """The server at an address, connecting to it if it is new."""
        if address not in self._servers:
            reach = functools.partial(self._reach, address)
            self._servers[address] = Server(str(address), reach, self._timeout_s, self._meter)
            self._servers[address].begin()
        return self._servers[address]

    async def _reach(self, address: Address) -> Any:
        self._wanted.set()  # a connection was lost: perhaps a replica has taken the place of its server
        return self._url.connection(address)

    async def _watch(self) -> None:
        """Keep the map true, for ever."""
        while True:
            self._wanted.clear()
            try:
                well = await self._look()
            except Exception:
                log.exception("cluster.unreadable")
                well = False
            await asyncio.sleep(_TROUBLED_S)  # not more often, whatever is wanted
            if well:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_EVERY_S - _TROUBLED_S):
                        await self._wanted.wait()

    async def _look(self) -> bool:
        """Read the map from a server that answers; whether all servers on it do."""
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
        """Whom to ask: those that answer, each in its turn; those that refuse all else, whose map may be old; then the
        addresses of the URL."""
        well = [each for each in self._servers.values() if not each.is_away]
        first = next(self._turn) % len(well) if well else 0
        told, self._told = self._told, None
        yield from [told] if told in well and told else []  # news of a move reaches the others later
        yield from (*well[first:], *well[:first])
        yield from [each for each in self._servers.values() if each.refuses]
        yield from map(self._server, self._url.addresses)

    def _take(self, ranges: list[Any], told_by: Server) -> None:
        """Let the map be what CLUSTER SLOTS says: (first, last, [host, port, …] of the master, …) a range."""
        slots: list[Server | None] = [None] * SLOTS
        for first, last, master, *_ in ranges:
            host = (master[0] or b"").decode() or _host_of(told_by)
            slots[first : last + 1] = [self._server(Address(host, master[1]))] * (last - first + 1)
        used = {each for each in slots if each}
        if not used:
            return
        self._slots, self._used = slots, used
        self._tell(used)
        for address, server in list(self._servers.items()):
            if server not in used:
                del self._servers[address]
                server.retire()
        self._known.set()

    def _tell(self, used: set[Server]) -> None:
        names = ", ".join(sorted(server.name for server in used))
        if self._said != names:
            log.info("cluster.known", extra={"servers": names})
            self._said = names

    @property
    def trouble(self) -> str:
        """Why the last try to connect failed; for an operator."""
        return "; ".join(f"{each.name}: {each.trouble}" for each in self._servers.values() if each.trouble)

    async def close(self) -> None:
        """Hang up."""
        if self._watching:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
        await asyncio.gather(*(each.close() for each in self._servers.values()))
