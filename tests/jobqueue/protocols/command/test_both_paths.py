"""The fast path of the native protocol answers as the complete one, byte for byte, and leaves the same behind."""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import orjson
import pytest

from buckets import HeldClock, Pool, Redis
from jobqueue.settings import Settings, TopicSettings
from tests.jobqueue.protocols.command.random_requests import IDS, TOPICS, Maker
from tests.jobqueue.protocols.command.sites import Site
from tests.kit.waiting import tick_all

REQUESTS = 1500
SETTINGS = Settings(topics={"full": TopicSettings(max_pending=3)}, virtual_topics={"both": ("t", "u")})


@asynccontextmanager
async def two_sites(redis: Redis, clock: HeldClock, shards: int) -> AsyncIterator[tuple[Site, Site]]:
    """With several shards, both ask them in the same order."""
    async with AsyncExitStack() as stack:
        sites = []
        for namespace in ("fast", "complete"):
            pool = await Pool.open(redis, namespace, shards=shards, buckets=1, clock=clock)
            stack.push_async_callback(pool.close)
            pool.ready_shards._now, pool.ready_shards._stamps = lambda: 0.0, itertools.count(1)
            sites.append(Site(pool, SETTINGS))
        yield sites[0], sites[1]


async def state(site: Site) -> list[Any]:
    """All that can be seen of the jobs and topics."""
    ids = [*IDS, *(f"{job_id}@{topic}" for job_id in IDS for topic in TOPICS)]
    asked: list[dict[str, Any]] = [{"command": "get", "id": job_id} for job_id in ids]
    asked += [{"command": "stats", "topic": topic} for topic in TOPICS]
    return [json.loads((await site.ask_completely(orjson.dumps(each))).body) for each in asked]


def jobs_in(answer: Any) -> Iterator[dict[str, Any]]:
    """The jobs that an answer hands out."""
    for each in answer if isinstance(answer, list) else [answer]:
        for job in each.get("jobs", [each]):
            if job.get("lease"):
                yield job


@pytest.mark.parametrize(("seed", "shards"), [(0, 1), (1, 1), (2, 3)])
async def test_random_requests_are_answered_alike_and_leave_the_same_behind(
    redis: Redis, clock: HeldClock, seed: int, shards: int
) -> None:
    maker = Maker(seed, clock.now_us / 1e6)
    async with two_sites(redis, clock, shards) as (fast, complete):
        for turn in range(REQUESTS):
            data = maker.request()
            one, other = await fast.ask(data), await complete.ask_completely(data)
            assert one == other, (turn, data)
            for job in jobs_in(json.loads(one.body)):
                maker.leases[job["id"]] = job["lease"]
            clock.advance(maker.chance.choice([1, 1, 1, 100, 20_000]))
            if turn % 10 == 0:
                assert await tick_all(fast.pool) == await tick_all(complete.pool)
        assert await state(fast) == await state(complete)
        assert fast.counted() == complete.counted()
        assert fast.timed() == complete.timed()
        assert fast.polling() == complete.polling()
        assert fast.fast > REQUESTS / 3, "the comparison is of two paths"
        assert fast.complete > REQUESTS / 20
