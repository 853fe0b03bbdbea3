"""Jobs that live by the journal come back as they were; those that Redis knows, or that ended, do not."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import select

from buckets.job import Cause, NewJob, State
from buckets.pool.pool import Pool
from buckets.redis.client import Redis
from buckets.topics.topics import Topics
from jobqueue.journal import tables
from tests.buckets.books import check_books
from tests.buckets.jobs import add, delete, finish, get, pop, pop_one, state
from tests.jobqueue.journal.restoring.lost import World, contents, world_of
from tests.kit.redis_server import RedisServer
from tests.kit.waiting import tick_all, until

HOUR = 3_600_000
FULL: dict[str, Any] = {
    "backoff_ms": (5_000, 60_000),
    "ttl_ms": 40 * HOUR,
    "retention_ms": HOUR,
    "headers": b'{"a":"\\u0000"}',
    "tags": b'["x"]',
    "note": b"\x00\xff",
    "priority": 9,
    "tries": 0,
}


async def fill(pool: Pool) -> None:
    """One job or tombstone in each state, and one whose tombstone keeps all."""
    for word in ("finished", "deleted", "whole", "dead", "reserved", "released"):
        await add(pool, word, body=b'{"n":"\\u0000"}', **FULL, keeps_body=word == "whole")
        popped = await pop_one(pool, worker=f"w:{word}", ttr_ms=HOUR)
        if word in ("finished", "whole"):
            await finish(pool, word, popped.lease)
        elif word == "deleted":
            await delete(pool, word)
        elif word == "dead":
            await pool.bury(word, popped.lease, "it broke")
        elif word == "released":
            await pool.release(word, popped.lease, reason="not yet é")
    await add(pool, "ready")
    await add(pool, "delayed", delay_ms=HOUR)
    await add(pool, "far", body=b'"' + b"x" * 5_000 + b'"', delay_ms=30 * HOUR, **FULL)


async def test_jobs_in_all_states_come_back_byte_for_byte(each_world: World) -> None:
    pool = each_world.pool
    await fill(pool)
    before = await each_world.records()
    await each_world.drained()
    await each_world.lose()
    counts = await each_world.counts(states=(*range(1, 5),))
    after = await each_world.records()
    assert contents(after) == contents(before) and len(before) == 9
    assert counts == {"looked": 9, "put": 9, "tombstones": 3, "overdue": 1}
    await check_books(pool.redis, pool)
    await each_world.drained()
    assert await each_world.counts(states=(*range(1, 5),)) == {"looked": 9, "known": 9}


async def test_dead_letters_come_back_where_they_are_asked_for(world: World) -> None:
    await fill(world.pool)
    await world.drained()
    await world.lose()
    assert (await world.restore()).counts["put"] == 8
    assert await state(world.pool, "dead") == "unknown"
    assert (await world.restore(states=(State.DEAD,))).counts["put"] == 1
    assert (await get(world.pool, "dead")).state is State.DEAD


async def test_a_job_that_a_lease_has_killed_keeps_its_reason_in_the_journal_and_comes_back_with_it(
    each_world: World,
) -> None:
    await add(each_world.pool, "a", ttr_ms=1, tries=2)
    await pop_one(each_world.pool)
    await each_world.pool.release("a", delay_ms=0, reason="busy")
    await each_world.drained()
    await pop_one(each_world.pool)
    while await state(each_world.pool, "a") != "dead":
        await tick_all(each_world.pool)
    await each_world.drained()
    row = await each_world.row("a")
    assert (row.cause, row.reason) == (Cause.TRIES, "lease ended")
    before = await each_world.records()
    await each_world.lose()
    await each_world.restore(states=(State.DEAD,))
    assert contents(await each_world.records()) == contents(before)
    assert (await get(each_world.pool, "a")).reason == "lease ended"


async def test_a_worker_that_has_a_job_finishes_it_with_its_old_lease(world: World) -> None:
    for name in "ab":
        await add(world.pool, name, ttr_ms=300)
    leases = {job.id: job.lease for job in await pop(world.pool, count=2)}
    await world.drained()
    await world.lose()
    await world.restore()
    assert await finish(world.pool, "a", leases["a"]) == "finished"
    while await state(world.pool, "b") != "ready":
        await tick_all(world.pool)
    assert (await pop_one(world.pool)).attempts == 2


async def test_a_job_that_was_finished_is_not_put_though_redis_has_forgotten_it(world: World) -> None:
    await add(world.pool, "a", retention_ms=0)
    await add(world.pool, "b", retention_ms=0)
    await world.drained()
    await finish(world.pool, (await pop_one(world.pool)).id)
    assert await world.counts() == {"looked": 1, "known": 1}
    assert await state(world.pool, "a") == "unknown"


async def test_an_id_that_was_added_again_keeps_its_new_life(world: World) -> None:
    await add(world.pool, "a", body=b"1")
    await add(world.pool, "b", body=b"1")
    await world.drained()
    await world.lose()
    await add(world.pool, "a", body=b"2")
    assert await world.counts() == {"looked": 2, "known": 1, "put": 1, "overdue": 1}
    assert ((await get(world.pool, "a")).body, (await get(world.pool, "b")).body) == (b"2", b"1")


async def test_ready_jobs_come_back_in_the_order_of_their_time(each_world: World) -> None:
    names = [f"j{(n * 37) % 250}" for n in range(250)]
    for name in names:
        await add(each_world.pool, name)
    await each_world.drained()
    await each_world.lose()
    await each_world.restore()
    assert [job.id for job in await pop(each_world.pool, count=250)] == names


async def test_jobs_of_a_key_come_back_in_their_order_and_only_one_runs(each_world: World) -> None:
    pool = each_world.pool
    await pool.add([NewJob(f"7@{name}", "t", b"1", key="7") for name in "adcb"])
    first = await pop_one(pool)
    await each_world.drained()
    await each_world.lose()
    await each_world.counts()
    await check_books(pool.redis, pool)
    assert await pop(pool, "t", count=4) == []
    for name in "dcb":
        await finish(pool, first.id, first.lease)
        first = await pop_one(pool)
        assert first.id == f"7@{name}"


async def test_a_job_in_back_off_whose_key_another_got_meanwhile_waits_for_it(world: World) -> None:
    """Ready jobs come back before delayed ones."""
    pool = world.pool
    await pool.add([NewJob(f"7@{name}", "t", b"1", key="7") for name in "ab"])
    first = await pop_one(pool)
    await pool.release(first.id, first.lease, delay_ms=2_000)
    await world.drained()
    await world.lose()
    await world.restore()
    assert [await state(pool, each) for each in ("7@a", "7@b")] == ["delayed", "ready"]
    assert (await pop_one(pool)).id == "7@b"
    await until(lambda: ticked(pool, "7@a", "ready"))
    await check_books(pool.redis, pool)
    assert await pop(pool, "t") == []
    await finish(pool, "7@b")
    assert (await pop_one(pool)).id == "7@a"


async def ticked(pool: Pool, job_id: str, word: str) -> bool:
    """Whether a job is in a state after a tick."""
    await tick_all(pool)
    return await state(pool, job_id) == word


async def test_only_jobs_of_the_topics_and_states_that_were_asked_for_come_back(each_world: World) -> None:
    for topic in ("A", "a", "ab", "b_%"):
        await add(each_world.pool, f"{topic} ready", topic)
        await add(each_world.pool, f"{topic} delayed", topic, delay_ms=HOUR)
    await each_world.drained()
    await each_world.lose()
    await each_world.restore(topics="a*", states=(State.DELAYED,))
    assert set(await each_world.records()) == {"a delayed", "ab delayed"}
    await each_world.restore(topics="A b_%")
    assert set(await each_world.records()) == {
        "a delayed",
        "ab delayed",
        "A ready",
        "A delayed",
        "b_% ready",
        "b_% delayed",
    }


async def test_jobs_that_are_named_come_back_in_any_state_and_unknown_ones_are_told(world: World) -> None:
    await fill(world.pool)
    await world.drained()
    await world.lose()
    await add(world.pool, "stranger", delay_ms=HOUR)
    sums = await world.restore(ids=("dead", "far", "nobody", "stranger", "dead"))
    assert {name for name, number in sums.counts.items() if number} == {"looked", "put", "unknown", "known"}
    assert (sums.counts["put"], sums.counts["known"], sums.named) == (2, 1, {"unknown": ["nobody"]})
    assert set(await world.records()) == {"dead", "far", "stranger"}


async def test_a_dry_run_tells_the_same_and_puts_nothing(world: World) -> None:
    await fill(world.pool)
    await world.drained()
    await world.lose()
    dry = await world.counts(dry=True)
    assert await world.records() == {} and dry["put"] == 8
    assert dry == await world.counts()


async def test_jobs_without_a_body_stay_away_and_are_named(
    live_pool: Pool, redis_server: RedisServer, sqlite_url: str
) -> None:
    async with world_of(live_pool, redis_server.url, sqlite_url, bodies=False) as world:
        await add(world.pool, "lives")
        await add(world.pool, "ended")
        await delete(world.pool, "ended")
        await world.drained()
        await world.lose()
        sums = await world.restore()
        assert sums.named == {"without_body": ["lives"]} and sums.left == 1
        assert set(await world.records()) == {"ended"}


async def test_large_bodies_and_odd_names_come_back_byte_for_byte(each_world: World) -> None:
    kinds = ["A" * 255, "a" * 255, "".join(chr(33 + n % 94) for n in range(255)).replace("@", "~"), "%" * 255, "x@y"]
    body = b'"' + b"\\u0000" + "é".encode() * 20_000 + b"x" * (262_144 - 40_008) + b'"'
    assert len(body) == 262_144
    jobs = [NewJob(name, name[:200], body, delay_ms=HOUR) for name in kinds]
    jobs += [NewJob("long topic", "T" * 255, body, delay_ms=HOUR), NewJob("other", "t" * 255, body, delay_ms=HOUR)]
    await each_world.pool.add(jobs)
    before = await each_world.records()
    await each_world.drained()
    await each_world.lose()
    assert (await each_world.restore()).counts["put"] == len(jobs) == len(before)
    assert contents(await each_world.records()) == contents(before)


async def test_the_totals_tell_how_many_were_restored(world: World) -> None:
    await fill(world.pool)
    await world.drained()
    await world.lose()
    await world.restore()
    totals = (await Topics(world.pool).stats("t")).totals
    assert totals["created"] == 5
    assert await world.pool.redis.read("HGET", f"{world.pool.keys[0].tag}c:t", "restored") == b"5"


async def test_a_run_is_told_as_the_actor_of_its_jobs(world: World) -> None:
    await add(world.pool, "a")
    await world.drained()
    await world.lose()
    await world.restore()
    await world.drained()
    told = select(tables.event.c.actor, tables.event.c.verb).order_by(tables.event.c.at)
    async with world.engine.connect() as connection:
        rows = (await connection.execute(told)).all()
        (run,) = (await connection.execute(select(tables.restore))).all()
    assert [tuple(row) for row in rows] == [("", 1), (f"restore:{run.number}", 22)]
    assert run.ended and run.sums


@pytest.mark.parametrize("shards", [3])
async def test_jobs_of_several_shards_come_back(
    redis_server: RedisServer, redis: Redis, sqlite_url: str, shards: int
) -> None:
    pool = await Pool.open(redis, shards=shards)
    async with world_of(pool, redis_server.url, sqlite_url) as world:
        await pool.add([NewJob(f"j{n}", "t", b"1", delay_ms=n % 2 * HOUR) for n in range(500)])
        before = await world.records()
        await world.drained()
        await world.lose()
        assert (await world.restore()).counts["put"] == 500
        assert contents(await world.records()) == contents(before)
    await pool.close()
