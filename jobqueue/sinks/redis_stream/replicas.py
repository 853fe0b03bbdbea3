"""How many replicas have an entry, as WAIT tells."""

from __future__ import annotations

import asyncio

from buckets.redis.client import Redis
from buckets.redis.link import ErrorReply, Link
from jobqueue.sinks import Down, Refused


class Replicas:
    """Waits for replicas in rounds: one WAIT serves all entries that were appended over its connection before it."""

    def __init__(self, redis: Redis, number: int, timeout_s: float) -> None:
        """`timeout_s`: for a confirmation. A round has a quarter of it: an entry may wait for the round before its own,
        which holds up the commands behind it."""
        self._redis, self._number = redis, number
        self._ms = max(1, round(timeout_s * 250))
        self._turn = asyncio.Lock()
        self._next: dict[Link, asyncio.Task[int]] = {}

    async def wait(self, stream: str, link: Link) -> None:
        """Wait until enough replicas have what was appended over this connection. Raises Refused, Down."""
        if await self._redis.link_to(stream) is not link:
            raise Down("the connection was lost")  # the entry may have gone over the other one
        coming = self._next.get(link)
        if coming is None:
            coming = self._next[link] = asyncio.create_task(self._round(link))
        reached = await asyncio.shield(coming)
        if reached < self._number:
            raise Refused(f"{reached} of {self._number} replicas have it")

    async def _round(self, link: Link) -> int:
        async with self._turn:
            del self._next[link]
            try:
                return int(await link.ask(("WAIT", self._number, self._ms)))
            except ErrorReply as error:
                raise Down(str(error)) from None
