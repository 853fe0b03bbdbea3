"""Keeps the stream of a shard's events within its bytes, however long no journal reads it."""

from __future__ import annotations

from buckets.namespace import fresh_word
from buckets.pages import Pages
from buckets.shards import Shards

MOST_BYTES = 256 << 20
_PAGE = 2_000  # entries a script; of 4 KB each they take half a millisecond


async def bound_events(shards: Shards, shard: int, most_bytes: int) -> int:
    """Cut off the oldest entries beyond the bytes; returns how many. Where events are on and their stream was deleted,
    it is made again."""
    pages, cut_off = Pages(shards.redis, rest=1.0), 0
    while True:
        call = shards.call("bound_events", shard, bytes=most_bytes, page=_PAGE, fresh=fresh_word())
        some: int = await pages.step(call)
        if not some:
            return cut_off
        cut_off += some
