"""Buckets of permits in Redis, `{namespace:0}:rate:<name>`, of which the processes of all instances lease chunks."""

from __future__ import annotations

from buckets.shards import Shards


async def lease(
    shards: Shards, name: str, *, rate: int, burst: int, least: int, most: int, owed: int
) -> tuple[int, float]:
    """Lease up to `most` permits of a bucket that gets `rate` of them a second and holds `burst`, or none where there
    are fewer than `least`. `owed`: how many were spent without a lease since the last one. Returns how many are leased
    and, where none are, after how many seconds to ask again. Raises JobQueueError; then it may or may not be done."""
    leased, after_us = await shards.call(
        "lease_rate",
        0,
        now=shards.clock.now(),
        whose=name,
        rate=rate,
        burst=burst,
        least=least,
        most=most,
        owed=owed,
    )
    return leased, after_us / 1e6
