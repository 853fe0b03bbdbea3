"""buckets.events.restoring: jobs that Redis has lost are put as they were, and lives that it forgot had ended, end."""

from __future__ import annotations

import pytest

from buckets.clock import HeldClock
from buckets.errors import NoRoom
from buckets.events.restoring import Lost, Restoring
from buckets.events.switch import switch_on
from buckets.job import Job, State, Verb
from buckets.namespace import Switch
from buckets.pool.pool import Pool
from buckets.redis.client import Redis
from buckets.topics.topics import Topics
from tests.buckets.books import check_books
from tests.buckets.jobs import add, delete, finish, get, pop, pop_one, state
from tests.kit.waiting import tick_all

HOUR = 3_600_000


def by_now(pool: Pool) -> Restoring:
    return Restoring(pool, "restore:7")


async def lose(pool: Pool) -> dict[str, Job]:
    """Empty Redis; returns the jobs that it had."""
    (keys,) = pool.keys
    names = [key.decode().partition(":j:")[2] for key in await pool.redis.read("KEYS", f"{keys.tag}j:*")]
    jobs = {name: await get(pool, name) for name in names}
    await pool.redis.read("FLUSHALL")
    await pool.ensure_meta(0)
    return jobs


def content(job: Job) -> tuple[object, ...]:
    """All of a job but what its indexes give it."""
    kind = job.kind
    numbers = (kind.ttr, kind.tries, kind.attempts, kind.deliveries, kind.step, job.lease, job.created, job.due)
    return kind.topic, kind.state, kind.priority, kind.cause, numbers, job.next, kind.optional, job.body


async def fill(pool: Pool, clock: HeldClock) -> None:
    """One job or tombstone in each state."""
    for word in ("finished", "deleted", "dead", "reserved"):
        await add(pool, word, backoff_ms=(1_000,), keeps_body=word == "deleted")
        popped = await pop_one(pool, worker=f"w:{word}")
        if word == "finished":
            await finish(pool, word, popped.lease)
        elif word == "deleted":
            await delete(pool, word)
        elif word == "dead":
            await pool.bury(word, popped.lease, "it broke")
    await add(pool, "ready", ttl_ms=HOUR)
    await add(pool, "delayed", delay_ms=2_000)
    await add(pool, "far", delay_ms=30 * HOUR)
    clock.advance(1_000)


async def test_jobs_in_all_states_come_back_as_they_were(redis: Redis, pool: Pool, clock: HeldClock) -> None:
    await fill(pool, clock)
    jobs = await lose(pool)
    assert len(jobs) == 7
    assert await by_now(pool).put([(job.id, job.raw) for job in jobs.values()]) == [True] * 7
    assert {name: content(await get(pool, name)) for name in jobs} == {name: content(jobs[name]) for name in jobs}
    await check_books(redis, pool)
    totals = (await Topics(pool).stats("t")).totals
    assert totals["created"] == 5
    assert await redis.read("HGET", f"{pool.keys[0].tag}c:t", "restored") == b"5"


async def test_a_reserved_job_comes_back_to_its_worker(redis: Redis, pool: Pool, clock: HeldClock) -> None:
    await add(pool, "a")
    await add(pool, "b")
    leases = {job.id: job.lease for job in await pop(pool, count=2)}
    jobs = await lose(pool)
    clock.advance(30_000)
    await by_now(pool).put([(job.id, job.raw) for job in jobs.values()])
    assert await finish(pool, "a", leases["a"]) == "finished"
    clock.advance(30_000)
    await tick_all(pool)
    assert (await get(pool, "b")).state is State.READY
    assert (await pop_one(pool)).attempts == 2
    await check_books(redis, pool)


async def test_an_id_that_redis_knows_keeps_what_it_has(redis: Redis, pool: Pool) -> None:
    await add(pool, "lives", body=b"1")
    await add(pool, "ended", body=b"1")
    await add(pool, "lost", body=b"1")
    jobs = await lose(pool)
    await add(pool, "lives", body=b"2")
    await add(pool, "ended", body=b"2")
    await delete(pool, "ended")
    restoring = by_now(pool)
    (asked,) = await restoring.ask(list(jobs))
    assert asked.unknown == ["lost"]
    assert await restoring.put([(name, jobs[name].raw) for name in ("lives", "ended", "lost")]) == [False, False, True]
    assert (await get(pool, "lives")).body == b"2" and await state(pool, "ended") == "deleted"
    await check_books(redis, pool)


async def test_ready_jobs_come_back_in_the_order_in_which_they_are_put(pool: Pool, clock: HeldClock) -> None:
    for name in "abc":
        await add(pool, name)
        clock.advance(1)
    jobs = await lose(pool)
    await by_now(pool).put([(name, jobs[name].raw) for name in "abc"])
    assert [job.id for job in await pop(pool, count=3)] == ["a", "b", "c"]


async def test_what_is_told_names_the_run(redis: Redis, pool: Pool) -> None:
    await add(pool, "a")
    jobs = await lose(pool)
    word = await switch_on(pool, 0, Switch(1_000, False))
    await by_now(pool).put([("a", jobs["a"].raw)])
    ((_, (_, head, job_id, value)),) = await redis.read("XRANGE", f"{pool.keys[0].tag}e", "-", "+")
    assert head[1] == Verb.RESTORE and head.endswith(b" restore:7")
    assert job_id == b"a" and value.endswith(jobs["a"].body)
    ((shard, at, stream, unknown),) = await by_now(pool).ask(["a", "b"])
    assert (shard, at, stream, unknown) == (0, int(pool.clock.now()), word, ["b"])


async def test_a_shard_without_events_says_so(pool: Pool) -> None:
    (asked,) = await by_now(pool).ask(())
    assert (asked.stream, asked.unknown) == ("", [])


async def test_a_redis_without_room_takes_nothing(redis: Redis, pool: Pool) -> None:
    await add(pool, "a")
    jobs = await lose(pool)
    await redis.read("CONFIG", "SET", "maxmemory", "1")
    try:
        (result,) = await by_now(pool).put([("a", jobs["a"].raw)])
    finally:
        await redis.read("CONFIG", "SET", "maxmemory", "0")
    assert isinstance(result, NoRoom) and await state(pool, "a") == "unknown"


async def test_a_forgotten_end_ends_the_life_again(redis: Redis, pool: Pool, clock: HeldClock) -> None:
    await fill(pool, clock)
    lives = {name: await get(pool, name) for name in ("dead", "reserved", "ready", "delayed", "far", "finished")}
    lost = [Lost(name, job.created, job.lease, State.FINISHED) for name, job in lives.items()]
    assert await by_now(pool).end(lost) == ["ended"] * 5 + ["other"]
    assert [await state(pool, name) for name in lives] == ["finished"] * 6
    assert await by_now(pool).end(lost) == ["other"] * 6
    await check_books(redis, pool)


async def test_a_job_that_another_worker_has_by_now_is_left(pool: Pool, clock: HeldClock) -> None:
    await add(pool, "a")
    first = await pop_one(pool)
    clock.advance(60_000)
    await tick_all(pool)
    second = await pop_one(pool)
    assert await by_now(pool).end([Lost("a", first.created, first.lease, State.FINISHED)]) == ["reserved"]
    assert await by_now(pool).end([Lost("a", first.created, second.lease, State.DELETED)]) == ["ended"]
    assert await state(pool, "a") == "deleted"


@pytest.mark.parametrize("ends", [False, True])
async def test_a_life_makes_room_for_the_next_one(redis: Redis, pool: Pool, clock: HeldClock, ends: bool) -> None:
    await add(pool, "a", body=b"1")
    before = await get(pool, "a")
    if ends:
        await delete(pool, "a")
    assert await by_now(pool).end([Lost("a", before.created + 1, 0, 0)]) == ["other"]
    assert await by_now(pool).end([Lost("a", before.created, 0, 0)]) == ["ended"]
    assert await state(pool, "a") == "unknown"
    await check_books(redis, pool)
