"""Trimming: takes out of a stream what every group of consumers has acknowledged, and what is beyond its length."""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from typing import Any

import structlog

from buckets.errors import JobQueueError
from buckets.redis.client import Redis
from jobqueue.sinks.redis_stream.acks import Acks, Place, place_of

log = structlog.get_logger()

_EVERY_S = 5.0
# KEYS: the stream. ARGV: its length, and the first entry that has to stay. Takes out a page of the oldest entries
# beyond the length, and returns how many they were.
_SHORTEN = """
local beyond = redis.call('XLEN', KEYS[1]) - ARGV[1]
if beyond <= 0 then return 0 end
local page = redis.call('XRANGE', KEYS[1], '-', '(' .. ARGV[2], 'COUNT', math.min(beyond, 200))
if #page == 0 then return 0 end
local ms, seq = string.match(page[#page][1], '(%d+)-(%d+)')
redis.call('XTRIM', KEYS[1], 'MINID', ms .. '-' .. string.format('%.0f', seq + 1))
return #page
"""


class Trimming:
    """Of the streams that were written to since the last time.

    `acks`: those that are awaited here; what they have not seen yet stays. `maxlen`: entries, about, that a stream of
    theirs may have. `grace_s`: for so long an acknowledged entry stays at least, as another process may await it.
    """

    def __init__(
        self, redis: Redis, acks: Acks | None = None, maxlen: int | None = None, *, grace_s: float = 0.0
    ) -> None:
        self._redis, self._acks, self._maxlen, self._grace_s = redis, acks, maxlen, grace_s
        self._streams: set[str] = set()
        # When it was seen which entry all groups need first, and which one the group of `acks`.
        self._seen: defaultdict[str, deque[tuple[float, Place, Place | None]]] = defaultdict(deque)

    def touch(self, stream: str) -> None:
        """A stream was written to."""
        self._streams.add(stream)

    async def run(self) -> None:
        """Trim now and then, until cancelled."""
        while True:
            await asyncio.sleep(_EVERY_S)
            for stream in list(self._streams):
                try:
                    await self.trim(stream)
                except JobQueueError as error:
                    log.warning("sink.not_trimmed", stream=stream, reason=error.message)

    async def trim(self, stream: str) -> None:
        """Take out what all groups are done with, and the oldest entries beyond `maxlen` that the group of `acks` is
        done with; nothing where there is no group. Positions of groups only rise, so that what is read in between
        stays. Raises JobQueueError."""
        groups: list[list[Any]] = await self._redis.ask(stream, "XINFO", "GROUPS", stream)
        if not groups:
            return
        firsts = {name: await self._first_needed(stream, name, last) for name, last in map(_name_and_last, groups)}
        now, seen = asyncio.get_running_loop().time(), self._seen[stream]
        own = firsts.get(self._acks.group.encode()) if self._acks else None
        seen.append((now, min(firsts.values()), own))
        while len(seen) > 1 and seen[1][0] <= now - self._grace_s:
            seen.popleft()
        when, of_all, of_own = seen[0]
        if when <= now - self._grace_s:
            await self._redis.ask(stream, "XTRIM", stream, "MINID", self._first_kept(stream, of_all))
            if self._maxlen and of_own:
                kept = self._first_kept(stream, of_own)
                while await self._redis.ask(stream, "EVAL", _SHORTEN, 1, stream, self._maxlen, kept):
                    pass

    def _first_kept(self, stream: str, needed: Place) -> str:
        awaited = self._acks.first_awaited(stream) if self._acks else None
        ms, seq = min(needed, awaited) if awaited else needed
        return f"{ms}-{seq}"

    async def _first_needed(self, stream: str, group: bytes, last: Place) -> Place:
        """The first entry that a group has pending, or has not been given yet."""
        _, first, _, _ = await self._redis.ask(stream, "XPENDING", stream, group)
        ms, seq = last
        return min(place_of(first), (ms, seq + 1)) if first else (ms, seq + 1)


def _name_and_last(fields: list[Any]) -> tuple[bytes, Place]:
    """The name of a group, and the last entry that it was given."""
    named = dict(zip(fields[::2], fields[1::2], strict=True))
    return named[b"name"], place_of(named[b"last-delivered-id"])
