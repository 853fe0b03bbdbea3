"""Walks over all jobs of a topic, page by page, and jobs to walk over."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from buckets.clock import HeldClock
from buckets.job import LIVE, Job, NewJob, State
from buckets.pool.pool import Pool
from buckets.redis.client import Redis
from buckets.topics.topics import Topic, Topics
from buckets.topics.walk import Walk
from tests.buckets.jobs import pop
from tests.kit.everything import everything
from tests.kit.waiting import tick_all

FAR_MS = 80_000_000
_MOST_PAGES = 3_000


async def peeked(
    pool: Pool,
    state: State | None = None,
    topic: str = "t",
    *,
    count: int = 100,
    shard: int | None = None,
    between: Callable[[], Awaitable[None]] | None = None,
) -> list[Job]:
    """All jobs of all pages; `between` is called between two pages."""
    walk, jobs, place = Walk(pool), list[Job](), None
    for _ in range(_MOST_PAGES):
        page = await walk.peek(topic, state, place, shard=shard, count=count)
        assert len(page.jobs) <= count
        jobs += page.jobs
        place = page.next
        if place is None:
            return jobs
        assert walk.has(place)
        if between:
            await between()
    raise AssertionError("the walk goes round in circles")


async def peeked_ids(pool: Pool, state: State | None = None, topic: str = "t", *, count: int = 100) -> list[str]:
    return [job.id for job in await peeked(pool, state, topic, count=count)]


async def purge(pool: Pool, state: State | None = None, topic: str = "t") -> int:
    """Purge to the end; returns how many jobs were deleted."""
    purged = await Walk(pool).purge(topic, state, seconds=60)
    assert purged.next is None
    return purged.count


async def fill(pool: Pool, clock: HeldClock, number: int, topic: str = "t", prefix: str = "", **fields: Any) -> None:
    """Add this many jobs in each live state; their ids begin with its name."""

    def jobs(word: str, **more: Any) -> list[NewJob]:
        return [NewJob(f"{prefix}{word}:{n:04}", topic, b"1", ttr_ms=FAR_MS, **fields, **more) for n in range(number)]

    await pool.add(jobs("dead", ttl_ms=1))
    clock.advance(1)
    await tick_all(pool)
    await pool.add(jobs("reserved"))
    await pop(pool, topic, count=number)
    await pool.add([*jobs("ready"), *jobs("delayed", delay_ms=FAR_MS)])


def ids(number: int, *states: State, prefix: str = "") -> list[str]:
    """The ids that `fill` adds."""
    return [f"{prefix}{state.word}:{n:04}" for state in states or LIVE for n in range(number)]


async def snapshot(redis: Redis) -> dict[bytes, bytes]:
    """Everything in Redis."""
    return {key: stored.dump for key, stored in (await everything(redis)).items()}


async def listed(pool: Pool, pattern: str = "*") -> list[Topic]:
    """The topics of all pages."""
    found, place = list[Topic](), (0, 0)
    while True:
        some, *behind = await Topics(pool).page(pattern, *place)
        found += some
        place = (behind[0], behind[1])
        if not any(place):
            return found
        assert Topics(pool).has(*place)
