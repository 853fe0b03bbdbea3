"""Acknowledgements: which entries a group of consumers is done with, seen by looking at what it has pending."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Any

from buckets.errors import JobQueueError
from buckets.redis.client import Redis
from jobqueue.sinks import Down, Refused

_PAGE = 1_000  # pending entries
_TAKE_OUT = """
if redis.call('XACK', KEYS[1], ARGV[1], ARGV[2]) == 0 then return 0 end
redis.call('XDEL', KEYS[1], ARGV[2])
return 1
"""

Place = tuple[int, int]


def place_of(entry: bytes) -> Place:
    """The id of an entry, to be compared."""
    ms, _, seq = entry.partition(b"-")
    return int(ms), int(seq)


class Acks:
    """Of one group, in any streams. `timeout_s`: for so long a consumer may have an entry."""

    def __init__(self, redis: Redis, group: str, timeout_s: float) -> None:
        self._redis, self._group, self._timeout_ms = redis, group, round(timeout_s * 1000)
        self._made: set[str] = set()
        self._awaited: dict[str, dict[Place, tuple[bytes, asyncio.Future[None]]]] = defaultdict(dict)

    async def make_group(self, stream: str) -> None:
        """Make the group at the beginning of a stream, unless it is there. Raises JobQueueError."""
        if stream in self._made:
            return
        try:
            await self._redis.ask(stream, "XGROUP", "CREATE", stream, self._group, "0", "MKSTREAM")
        except JobQueueError as error:
            if not error.message.startswith("BUSYGROUP"):
                raise
        self._made.add(stream)

    async def wait(self, stream: str, entry: bytes) -> None:
        """Wait until an entry is acknowledged. Raises Refused when it was taken out."""
        place, done = place_of(entry), asyncio.get_running_loop().create_future()
        self._awaited[stream][place] = entry, done
        try:
            await done
        finally:
            self._awaited[stream].pop(place, None)
            if not self._awaited[stream]:
                del self._awaited[stream]

    async def look(self) -> None:
        """See what has been acknowledged, and take out what has been pending for too long. Raises Down,
        JobQueueError."""
        for stream in list(self._awaited):
            if awaited := self._awaited.get(stream):
                delivered = await self._delivered(stream)
                idle = await self._idle(stream, awaited[min(awaited)][0], awaited[max(awaited)][0])
                for place, (entry, done) in sorted(awaited.items(), key=lambda each: each[0]):
                    if place <= delivered and not done.done():
                        await self._judge(stream, entry, done, idle.get(place))

    async def _judge(self, stream: str, entry: bytes, done: asyncio.Future[None], idle_ms: int | None) -> None:
        if idle_ms is None:
            done.set_result(None)
        elif idle_ms >= self._timeout_ms:
            out = await self._redis.ask(stream, "EVAL", _TAKE_OUT, 1, stream, self._group, entry)
            if out and not done.done():
                done.set_exception(Refused("no ack"))

    async def _delivered(self, stream: str) -> Place:
        groups: list[list[Any]] = await self._redis.ask(stream, "XINFO", "GROUPS", stream)
        for fields in groups:
            named = dict(zip(fields[::2], fields[1::2], strict=True))
            if named[b"name"] == self._group.encode():
                return place_of(named[b"last-delivered-id"])
        self._made.discard(stream)
        raise Down(f"the stream {stream} has no group {self._group} any more")

    async def _idle(self, stream: str, first: bytes, last: bytes) -> dict[Place, int]:
        """For how many ms consumers have had the pending entries between two."""
        found: dict[Place, int] = {}
        start: bytes = first
        while True:
            page = await self._redis.ask(stream, "XPENDING", stream, self._group, start, last, _PAGE)
            found.update((place_of(entry), idle_ms) for entry, _, idle_ms, _ in page)
            if len(page) < _PAGE:
                return found
            start = b"(" + page[-1][0]
