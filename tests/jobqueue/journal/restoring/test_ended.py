"""A job that ended comes back as a new life, by its id."""

from __future__ import annotations

from typing import Any

import pytest

from buckets.job import KeyOf, State, Tag
from jobqueue.journal.restoring import restore
from tests.buckets.books import check_books
from tests.buckets.jobs import add, delete, finish, get, pop_one
from tests.jobqueue.journal.restoring.lost import World

HOUR = 3_600_000
FULL: dict[str, Any] = {
    "backoff_ms": (5_000, 60_000),
    "ttl_ms": HOUR,
    "retention_ms": 0,
    "headers": b'{"a":"b"}',
    "tags": b'["x"]',
    "note": b"n",
    "priority": 9,
    "tries": 3,
    "ttr_ms": 7_000,
    "key": "7",
    "key_concurrency": 2,
}


async def again(world: World, *ids: str, **how: Any) -> tuple[dict[str, int], dict[str, list[str]], list[str]]:
    await world.drained()
    sums, others = await restore.bring_back(world.reading, world.pool, ids, "restore:1", **how)
    return {name: number for name, number in sums.counts.items() if number}, sums.named, others


@pytest.mark.parametrize("keeps", [False, True], ids=["bare", "whole"])
async def test_a_finished_job_is_a_new_one_with_all_that_it_was_added_with(each_world: World, keeps: bool) -> None:
    pool = each_world.pool
    await add(pool, "a", **(FULL | ({"retention_ms": HOUR, "keeps_body": True} if keeps else {})))
    first = await pop_one(pool, worker="w", ttr_ms=50_000)
    await pool.release("a", first.lease, delay_ms=0, reason="once more")
    first = await pop_one(pool, worker="w", ttr_ms=50_000)
    await finish(pool, "a", first.lease)
    assert await again(each_world, "a") == ({"looked": 1, "put": 1}, {}, [])
    job = await get(pool, "a")
    assert (job.state, job.body, job.topic, job.ttr, job.tries) == (State.READY, b'"body"', "t", 7_000, 3)
    assert (job.backoff, job.ttl, job.priority, job.attempts) == ((5_000, 60_000), HOUR, 9, 0)
    assert (job.text(Tag.HEADERS), job.text(Tag.TAGS), job.note) == ('{"a":"b"}', '["x"]', b"n")
    assert KeyOf.among(job.optional) == ("7", 2, 0)
    assert job.text(Tag.REASON) is None and job.created > first.created and job.due > first.due
    assert job.retention == (HOUR if keeps else 0)
    assert (await pop_one(pool)).lease > first.lease
    await check_books(pool.redis, pool)


async def test_a_deleted_job_is_due_when_it_was(world: World) -> None:
    await add(world.pool, "a", delay_ms=HOUR, key="7", key_gap_us=5)
    due = (await get(world.pool, "a")).due
    await delete(world.pool, "a")
    assert await again(world, "a") == ({"looked": 1, "put": 1}, {}, [])
    job = await get(world.pool, "a")
    assert (job.state, job.due, KeyOf.among(job.optional)) == (State.DELAYED, due, ("7", 1, 5))


async def test_jobs_that_live_and_ids_that_nobody_knows_are_left_to_others(world: World) -> None:
    await add(world.pool, "lives")
    assert await again(world, "lives", "nobody", "lives") == ({}, {}, ["lives", "nobody"])


async def test_a_dry_run_adds_nothing(world: World) -> None:
    await add(world.pool, "a")
    await delete(world.pool, "a")
    assert await again(world, "a", dry=True) == ({"looked": 1, "put": 1}, {}, [])
    assert (await get(world.pool, "a")).state is State.DELETED


async def test_a_job_that_was_added_again_meanwhile_stays_as_it_is(world: World) -> None:
    await add(world.pool, "a", body=b"1")
    await delete(world.pool, "a")
    await world.drained()
    await add(world.pool, "a", body=b"2", if_exists="renew")
    sums, others = await restore.bring_back(world.reading, world.pool, ["a"], "restore:1", stale=True)
    assert (sums.counts["known"], others) in ((1, []), (0, ["a"]))  # as the journal has read the add, or not
    assert (await get(world.pool, "a")).body == b"2"
