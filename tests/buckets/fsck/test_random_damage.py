"""buckets.fsck.check: whatever single key is damaged, nothing crashes, and afterwards every other job is as it was."""

from __future__ import annotations

import os
import random

import pytest

from buckets.clock import HeldClock
from buckets.errors import JobQueueError, NoMeta, Refused, Unfit
from buckets.fsck.check import Fsck
from buckets.job import Job, Kind, NewJob, State
from buckets.pool.pool import Pool
from buckets.redis.client import Redis
from buckets.schedules.record import Schedule
from buckets.schedules.schedules import Schedules
from buckets.topics.topics import Topics
from tests.buckets.books import check_books
from tests.buckets.fsck.damage import Damage
from tests.buckets.fsck.test_check import fsck
from tests.buckets.instances import sign, take
from tests.buckets.schedules.scheduled import Scheduled
from tests.kit.waiting import tick_all

ROUNDS = int(os.environ.get("TEST_DAMAGES", "60"))
IN_ONE_TEST = 20
TOPICS = ["t", "u", "v"]
JOBS = [f"job{number}" for number in range(42)]


async def build(redis: Redis, clock: HeldClock) -> Pool:
    """42 jobs in all states and three topics."""
    await redis.read("FLUSHALL")
    pool = await Pool.open(redis, buckets=4, clock=clock)
    fields = [
        {"ttl_ms": 1},  # dead
        {},  # finished, or reserved
        {},
        {},
        {"delay_ms": 60_000, "keeps_body": True},
        {"delay_ms": 90_000_000},
        {"delay_ms": 5_000, "ttl_ms": 60_000},
    ]
    new = [NewJob(job, TOPICS[n % 3], b'"body"', **fields[n // 3 % 7]) for n, job in enumerate(JOBS)]  # type: ignore[arg-type]
    await pool.add(new)
    for bucket in range(pool.buckets):
        await pool.slice(0, bucket, 0, 100)
    clock.advance(1)
    await tick_all(pool)
    popped = (await pool.pop(TOPICS, 10)).jobs
    await pool.finish([(job.id, job.lease) for job in popped[:3]])
    await pool.delete([JOBS[16], JOBS[21]])
    # Ready ones, as the later of those above: with a ttl, and of another priority.
    more = [
        NewJob(f"more{n}", TOPICS[n % 3], b'"body"', priority=n, ttl_ms=None if n % 2 else 600_000, keeps_body=n > 3)
        for n in range(6)
    ]
    await pool.add(more)
    scheduled = Scheduled(pool, clock)
    for name, every_ms in (("hourly", 3_600_000), ("soon", 2_000), ("overdue", 1)):
        await scheduled.define(name, every_ms, topic="w")
    await scheduled.occurrences.make(0, 0, ["overdue"])
    await scheduled.advance(1)
    await Topics(pool).pause("v", 1_000_000)
    await sign(pool, "token")
    await take(pool, "token")
    await redis.read("HSET", pool.keys[0].aside, "earlier", "record")
    clock.advance(1)
    return pool


async def snapshot(pool: Pool, ids: list[str]) -> dict[str, Job | None]:
    return {job_id: await pool.get(job_id) for job_id in ids}


async def schedules(pool: Pool) -> dict[str, Schedule | None]:
    names = ["hourly", "soon", "overdue"]
    return dict(zip(names, (await Schedules(pool).read(0, names))[1], strict=True))


async def usual_moves(pool: Pool, clock: HeldClock) -> None:
    """The daily work of a service. Reading a spoilt index is refused with an error, and nothing else goes wrong."""
    clock.advance(5_000)
    await tick_all(pool)
    try:
        await sign(pool, "other")
        await take(pool, "other")
    except NoMeta:
        await pool.ensure_meta(0)  # as its caller does
    popped = (await pool.pop(TOPICS, 6)).jobs
    await pool.unpop(popped[:2])
    await pool.finish([(job.id, job.lease) for job in popped[2:4]])
    await pool.delete([popped[0].id] if popped else [])
    results: list[object] = [*await pool.add([NewJob("new1", "t", b"1"), NewJob("new2", "u", b"1", delay_ms=60_000)])]
    results += await pool.kick(["job0", "job1"])
    assert all(not isinstance(result, JobQueueError) or isinstance(result, Refused) for result in results), results
    await Topics(pool).stats("t")
    for move in (Topics(pool).kick("t", 1), Topics(pool).stats(), Topics(pool).page(), Topics(pool).forget(0, 10**15)):
        try:
            await move
        except JobQueueError as error:
            assert "WRONGTYPE" in error.message, error


def known(job: Job | None) -> object:
    """The facts of a job that may not change; the number of its entry may, if it was queued again."""
    if job is None:
        return None
    kind = {
        name: getattr(job.kind, name) for name in Kind.__slots__ if name not in ("number", "bucket", "head", "rest")
    }
    return job.id, job.body, job.created, job.due, job.next, kind


async def drain(pool: Pool, clock: HeldClock) -> set[str]:
    """Pop and finish every live job; returns their ids."""
    done: set[str] = set()
    for topic in TOPICS:
        await Topics(pool).resume(topic)
    for _ in range(4):
        clock.advance(100_000_000)
        await tick_all(pool)
        for topic in TOPICS:
            await Topics(pool).kick(topic, 100)
        while jobs := (await pool.pop(TOPICS, 50)).jobs:
            await pool.finish([(job.id, job.lease) for job in jobs])
            done |= {job.id for job in jobs}
    return done


async def round_of(redis: Redis, seed: int) -> str:
    chance = random.Random(seed)
    clock = HeldClock()
    pool = await build(redis, clock)
    ids = JOBS + [f"more{n}" for n in range(6)]
    before, scheduled = await snapshot(pool, ids), await schedules(pool)
    assert all(scheduled.values())
    damage = await Damage(redis, pool, chance).do()
    moves = bool(chance.randrange(2))
    if moves:
        await usual_moves(pool, clock)
        clock.advance(1)
        before |= {job_id: job for job_id, job in (await snapshot(pool, ids)).items() if job_id != damage.job}
    try:
        report = await fsck(pool, repair=True)
    except Unfit as error:
        # A namespace that claims another version is refused.
        assert damage.key == pool.keys[0].meta.encode() and "format" in str(damage), error
        return f"{damage}: {error}"
    said = f"{damage} {'with' if moves else 'without'} moves: {report.findings}"
    assert report.faults == 0, said
    again = await fsck(pool, repair=True)
    assert (again.findings, again.unverified) == ({}, []), f"{said}, then {again.findings}"
    await Pool.open(redis, clock=clock)
    await check_books(redis, pool)
    after = await snapshot(pool, ids)
    for job_id in ids:
        if job_id != damage.job:
            assert known(after[job_id]) == known(before[job_id]), said
    if b"schedules" not in damage.key:
        assert await schedules(pool) == scheduled, said
    if damage.job and after.get(damage.job, damage) is None and before[damage.job] is not None:
        assert damage.how == "deletion" or moves or await redis.read("HEXISTS", pool.keys[0].aside, damage.job), said
    done = await drain(pool, clock)
    alive = {job_id for job_id, job in after.items() if job and job.state <= State.DEAD and job_id != damage.job}
    assert alive <= done, f"{said}: {alive - done}"
    assert (await fsck(pool)).faults == 0, said
    return said


@pytest.mark.parametrize("first", range(0, ROUNDS, IN_ONE_TEST))
async def test_any_single_key_may_be_damaged_and_is_mended(redis: Redis, first: int) -> None:
    for seed in range(first, min(first + IN_ONE_TEST, ROUNDS)):
        await round_of(redis, seed)


async def test_a_check_of_an_empty_redis_finds_nothing(redis: Redis) -> None:
    check = await Fsck.open(redis, "nobody", repair=True)
    assert (await check.run()).findings == {}
    assert await redis.read("DBSIZE") == 0
