"""Trimming: takes out of a stream what every group of consumers has acknowledged."""

from __future__ import annotations

import asyncio
from typing import Any

import structlog

from buckets.errors import JobQueueError
from buckets.redis.client import Redis
from jobqueue.sinks.redis_stream.acks import Place, place_of

log = structlog.get_logger()

_EVERY_S = 5.0


class Trimming:
    """Of the streams that were written to since the last time."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._streams: set[str] = set()

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
        """Take out what all groups are done with; nothing where there is none. What is read in between stands behind:
        positions of groups only rise. Raises JobQueueError."""
        groups: list[list[Any]] = await self._redis.ask(stream, "XINFO", "GROUPS", stream)
        firsts = [await self._first_needed(stream, fields) for fields in groups]
        if firsts:
            ms, seq = min(firsts)
            await self._redis.ask(stream, "XTRIM", stream, "MINID", f"{ms}-{seq}")

    async def _first_needed(self, stream: str, fields: list[Any]) -> Place:
        named = dict(zip(fields[::2], fields[1::2], strict=True))
        _, first, _, _ = await self._redis.ask(stream, "XPENDING", stream, named[b"name"])
        ms, seq = place_of(named[b"last-delivered-id"])
        return min(place_of(first), (ms, seq + 1)) if first else (ms, seq + 1)
