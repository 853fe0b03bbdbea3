"""Reading what may be large in bounded steps, with a rest after each, so that nobody waits long for Redis."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Iterator, Sequence
from typing import TypeVar

from buckets.redis.client import Redis

T = TypeVar("T")

_LONGEST_REST_S = 0.005  # after a step that itself waited long, most of it was not Redis's work
_SCANNED = 200  # keys, members or fields a step
_ENTRIES = 500  # of a list a step


class Pages:
    """Steps on one Redis, one at a time. `rest`: seconds after each second of work."""

    def __init__(self, redis: Redis, rest: float = 0.0) -> None:
        self._redis = redis
        self._rest = rest

    async def step(self, work: Awaitable[T]) -> T:
        """Do a piece of work, then leave Redis to the others for a while."""
        loop = asyncio.get_running_loop()
        begun = loop.time()
        result = await work
        await asyncio.sleep(min(self._rest * (loop.time() - begun), _LONGEST_REST_S))
        return result

    async def keys(self, pattern: str) -> AsyncIterator[list[bytes]]:
        """Keys that fit a pattern. One that is there all the time is met, perhaps twice."""
        for server in await self._redis.servers():
            cursor = b"0"
            while True:
                read = server.read("SCAN", cursor, "MATCH", pattern, "COUNT", _SCANNED)
                cursor, keys = await self.step(read)
                yield keys
                if cursor == b"0":
                    break

    async def members(self, key: bytes) -> AsyncIterator[list[bytes]]:
        """The members of a sorted set."""
        async for flat in self._scan("ZSCAN", key):
            yield flat[::2]

    async def fields(self, key: bytes) -> dict[bytes, bytes]:
        """A hash."""
        found: dict[bytes, bytes] = {}
        async for flat in self._scan("HSCAN", key):
            found |= zip(flat[::2], flat[1::2], strict=True)
        return found

    async def _scan(self, command: str, key: bytes) -> AsyncIterator[list[bytes]]:
        cursor = b"0"
        while True:
            cursor, flat = await self.step(self._redis.read(command, key, cursor, "COUNT", _SCANNED))
            yield flat
            if cursor == b"0":
                return

    async def entries(self, key: bytes) -> AsyncIterator[list[bytes]]:
        """The entries of a list, from its end to its front. What is pushed meanwhile makes some be met twice; what is
        popped from the front, or put there, moves no other. So an entry that stays is met. A page that is not full
        reached the front; to go on until one is empty might take for ever, as each push moves an entry into it."""
        last = -1
        while True:
            entries = await self.step(self._redis.read("LRANGE", key, last - _ENTRIES + 1, last))
            yield entries
            if len(entries) < _ENTRIES:
                return
            last -= _ENTRIES


def chunks(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """The items, so many at a time."""
    for at in range(0, len(items), size):
        yield items[at : at + size]
