"""Events, switched on with bare commands."""

from __future__ import annotations

from buckets.keys import Keys
from buckets.redis.client import Redis


async def switch_on(redis: Redis, keys: Keys, most: object = 1_000_000, *, touches: bool = False) -> None:
    """Events of a shard are on, and its stream is there and empty."""
    await redis.read("DEL", keys.events)
    await redis.read("XGROUP", "CREATE", keys.events, "journal", "0", "MKSTREAM")  # before a service makes it
    await redis.read("HSET", keys.meta, "events", str(most), *(("touches", "1") if touches else ()))
