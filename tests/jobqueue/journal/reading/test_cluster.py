"""A Cluster whose slots move while they are drained: nothing is missing, nothing is there twice."""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict

import pytest

from buckets.errors import JobQueueError
from buckets.events.switch import stream_key
from buckets.job import LIVE, NewJob
from buckets.pool.pool import Pool
from buckets.redis.client import Redis
from tests.jobqueue.journal.reading.drained import Journal, opened, switched_on
from tests.kit.redis_cluster import ClusterSet

SHARDS = 4


async def work(pool: Pool, stop: asyncio.Event) -> None:
    """Whole lives of jobs, over all shards."""
    number = 0
    while not stop.is_set():
        number += 1
        with contextlib.suppress(JobQueueError):  # a slot that moves refuses for a while
            await pool.add([NewJob(f"job-{number}-{n}", "t", b"1") for n in range(8)])
            popped = (await pool.pop(["t"], 8)).jobs
            await pool.finish([(job.id, job.lease) for job in popped])
        await asyncio.sleep(0.005)


async def survive_moves(url: str, shards_moved: int) -> None:
    async with ClusterSet(replicas=0) as cluster:
        redis = Redis(cluster.url)
        pool = await Pool.open(redis, shards=SHARDS)
        await switched_on(pool)
        stop = asyncio.Event()
        async with opened(pool, url, cluster.url) as journal, journal.draining():
            working = asyncio.create_task(work(pool, stop))
            await journal.until_drained()
            for shard in range(shards_moved):
                assert await cluster.move_back_and_forth(stream_key(pool, shard), batch=10) > 0
            stop.set()
            await working
            await journal.until_drained(60)
            await must_be_whole(journal)
        await pool.close()
        await redis.close()


async def must_be_whole(journal: Journal) -> None:
    states: dict[str, int] = defaultdict(int)
    events = await journal.events()
    for row in sorted(events, key=lambda row: (row["ms"], row["seq"], row["n"])):
        before = states[row["id"]] if states[row["id"]] in LIVE else 0
        assert row["state_before"] == before, row
        states[row["id"]] = row["state_after"]
    assert len({row["shard"] for row in events}) == SHARDS
    assert {row["kind"] for row in await journal.gaps()} == {3}
    for job_id, row in (await journal.jobs()).items():
        assert row["state"] == states[job_id]
    for key in journal.shards.keys:
        assert await journal.shards.redis.read("XLEN", key.events) == 0


async def test_a_slot_that_moves_and_comes_back_is_drained_all_the_time(sqlite_url: str) -> None:
    async with asyncio.timeout(120):
        await survive_moves(sqlite_url, 1)


@pytest.mark.slow
async def test_slots_of_all_shards_move_and_come_back(journal_url: str) -> None:
    await survive_moves(journal_url, SHARDS)
