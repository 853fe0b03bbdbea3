"""Reads large data in bounded steps, with a rest after each step, so that no other caller waits long for Redis."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Iterator, Sequence
from typing import TypeVar

from buckets.redis.client import Redis

T = TypeVar("T")

_LONGEST_REST_S = 0.005  # a step that would need a longer rest spent most of its time waiting, not working in Redis
SCANNED = 200  # keys, members or fields per step
_NAMED = 50  # fields per step, if they may be large
_ENTRIES = 500  # entries of a list per step


class Pages:
    """Steps on one Redis, one at a time. `rest`: seconds of rest for each second of work."""

    def __init__(self, redis: Redis, rest: float = 0.0) -> None:
        self._redis = redis
        self._share = rest
        self._rest_until = 0.0  # by the loop's clock

    async def step(self, work: Awaitable[T]) -> T:
        """Do a piece of work, then leave Redis to others for a while."""
        result = await self.look(work)
        await self.rest()
        return result

    async def look(self, work: Awaitable[T]) -> T:
        """Do a piece of work; the caller calls `rest` itself, after its own work."""
        clock = asyncio.get_running_loop().time
        begun = clock()
        result = await work
        ended = clock()
        self._rest_until = ended + min(self._share * (ended - begun), _LONGEST_REST_S)
        return result

    async def rest(self) -> None:
        """Leave Redis to others for the remaining part of the rest after the last piece of work."""
        await asyncio.sleep(max(self._rest_until - asyncio.get_running_loop().time(), 0))

    async def keys(self, pattern: str) -> AsyncIterator[list[bytes]]:
        """Keys that match a pattern. A key that exists throughout is returned at least once, perhaps twice."""
        for server in await self._redis.servers():
            cursor = b"0"
            while True:
                read = server.read("SCAN", cursor, "MATCH", pattern, "COUNT", SCANNED)
                cursor, keys = await self.step(read)
                yield keys
                if cursor == b"0":
                    break

    async def members(self, key: bytes) -> AsyncIterator[list[bytes]]:
        """The members of a sorted set."""
        async for flat in self._scan("ZSCAN", key):
            yield flat[::2]

    async def names(self, key: bytes | str) -> AsyncIterator[list[bytes]]:
        """The names of the fields of a hash."""
        async for flat in self._scan("HSCAN", key, _NAMED):  # the reply includes the values
            yield flat[::2]

    async def fields(self, key: bytes) -> dict[bytes, bytes]:
        """The fields of a hash."""
        found: dict[bytes, bytes] = {}
        async for flat in self._scan("HSCAN", key):
            found |= zip(flat[::2], flat[1::2], strict=True)
        return found

    async def _scan(self, command: str, key: bytes | str, count: int = SCANNED) -> AsyncIterator[list[bytes]]:
        cursor = b"0"
        while True:
            cursor, flat = await self.step(self._redis.read(command, key, cursor, "COUNT", count))
            yield flat
            if cursor == b"0":
                return

    async def entries(self, key: bytes) -> AsyncIterator[list[bytes]]:
        """The entries of a list, from its end to its front. If entries are pushed at the end meanwhile, some are
        returned twice; a pop or a push at the front does not shift the others. So every entry that stays is returned.
        The first page that is not full has reached the front; waiting for an empty page might take forever, since each
        push would move an entry into it."""
        last = -1
        while True:
            entries = await self.step(self._redis.read("LRANGE", key, last - _ENTRIES + 1, last))
            yield entries
            if len(entries) < _ENTRIES:
                return
            last -= _ENTRIES


def chunks(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """The items, `size` at a time."""
    for at in range(0, len(items), size):
        yield items[at : at + size]
