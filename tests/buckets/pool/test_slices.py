"""Slices: far jobs wait in small sets, which take less memory, and are popped as all others are."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from functools import partial

import pytest

from buckets.clock import HeldClock
from buckets.job import NewJob, State
from buckets.keys import Keys
from buckets.namespace import Numbers, found
from buckets.pool.pool import PAGE, Pool
from buckets.redis.client import Redis
from buckets.timers.slicing import Slicing
from buckets.topics.topics import Topics
from buckets.topics.walk import Sought, Times, Walk
from tests.buckets.books import check_books
from tests.buckets.instances import sign
from tests.buckets.jobs import add, delete, get, pop, popped_ids
from tests.buckets.topics.walks import peeked_ids, purge
from tests.kit.redis_server import RedisServer
from tests.kit.service import Client, ServiceProcess
from tests.kit.waiting import tick_all, until

HOUR = 3_600_000
ENTRIES = 128  # of a slice at most


async def slice_all(pool: Pool, page: int = 200) -> int:
    """Move all far jobs into slices; returns how many."""
    total, skipped = 0, 0
    for bucket in range(pool.buckets):
        while any(told := await pool.slice(0, bucket, skipped, page)):
            total, skipped = total + told[0], skipped + told[1]
        skipped = 0
    return total


@pytest.fixture
async def one(redis: Redis, clock: HeldClock) -> AsyncIterator[Pool]:
    """A pool with one bucket."""
    pool = await Pool.open(redis, buckets=1, clock=clock)
    yield pool
    await pool.close()


async def slices(pool: Pool, bucket: int = 0) -> dict[str, list[str]]:
    """The ids in each slice of a bucket, by its bound, each slice as Redis keeps it: in one piece."""
    bounds = await pool.redis.read("ZRANGE", pool.keys[0].slices(bucket), 0, -1)
    sets = {}
    for bound in bounds:
        key = pool.keys[0].slices(bucket).encode() + b":" + bound
        assert await pool.redis.read("OBJECT", "ENCODING", key) == b"listpack"
        sets[bound.decode()] = [each.decode() for each in await pool.redis.read("ZRANGE", key, 0, -1)]
    return sets


async def in_slices(pool: Pool) -> set[str]:
    return {each for bucket in range(pool.buckets) for ids in (await slices(pool, bucket)).values() for each in ids}


async def in_sets(pool: Pool) -> set[str]:
    keys = [pool.keys[0].bucket(bucket) for bucket in range(pool.buckets)]
    return {each.decode() for key in keys for each in await pool.redis.read("ZRANGE", key, 0, -1)}


def jobs(delays: list[int], prefix: str = "j") -> list[NewJob]:
    return [NewJob(f"{prefix}{number:05}", "t", b"1", delay_ms=delay) for number, delay in enumerate(delays)]


async def backwards(pool: Pool) -> list[str]:
    """The ids of all delayed jobs, the latest first."""
    walk, times = Walk(pool), Times(Topics(pool), "t")
    seen, place, begun = list[str](), None, False
    while place or not begun:
        page = await walk.look(Sought("t", State.DELAYED, back=True), place, times, 60)
        seen += [job.id for job in page.jobs]
        place, begun = page.next, True
    return seen


async def test_only_delayed_jobs_that_are_due_far_ahead_move_into_slices(one: Pool, clock: HeldClock) -> None:
    delays = {"near": HOUR, "far": HOUR + 1, "x" * 65: 2 * HOUR, "x" * 64: 2 * HOUR}
    await one.add([NewJob(each, "t", b"1", delay_ms=delay) for each, delay in delays.items()])
    await one.add([NewJob("reserved", "u", b"1", ttr_ms=2 * HOUR), NewJob("mortal", "t", b"1", ttl_ms=2 * HOUR)])
    await pop(one, "u")
    others = {"near", "x" * 65, "reserved", "mortal"}
    assert await slice_all(one, 1) == 2
    assert (await in_slices(one), await in_sets(one)) == ({"far", "x" * 64}, others)
    await check_books(one.redis, one)
    clock.advance(HOUR // 4)
    await tick_all(one)
    assert await in_slices(one) == {"far", "x" * 64}
    clock.advance(1)
    await tick_all(one)
    assert (await in_slices(one), await in_sets(one)) == (set(), {"far", "x" * 64} | others)
    await check_books(one.redis, one)


async def test_a_namespace_of_format_1_has_no_slices(redis: Redis, clock: HeldClock) -> None:
    await found(redis, Keys("jq", 0), Numbers(1, 1), slices_ms=0)
    pool = await Pool.open(redis, clock=clock)
    await add(pool, "a", delay_ms=90 * HOUR)
    assert (pool.slices_ms, await slice_all(pool), await in_sets(pool)) == (0, 0, {"a"})
    await redis.read("FLUSHALL")
    await pool.ensure_meta(0)
    await add(pool, "a", delay_ms=90 * HOUR)
    assert await slice_all(pool) == 0
    await pool.close()


async def test_without_the_setting_all_slices_are_moved_back(one: Pool) -> None:
    await one.add(jobs([90 * HOUR + number for number in range(300)]))
    assert await slice_all(one) == 300
    await one.redis.read("HDEL", one.keys[0].meta, "slices")
    await tick_all(one)
    assert len(await in_sets(one)) == 300
    await check_books(one.redis, one)


@pytest.mark.parametrize(
    ("name", "delays"),
    [
        ("one time", [5 * HOUR] * 1_000),
        ("one after the other", [5 * HOUR + number for number in range(1_000)]),
        ("backwards", [9 * HOUR - number for number in range(1_000)]),
        ("at random", random.Random(5).choices(range(2 * HOUR, 9 * HOUR), k=1_000)),
    ],
)
@pytest.mark.parametrize("together", [1, 10, 100, 1_000])
@pytest.mark.parametrize("page", [1, 7, 200])
async def test_slices_are_well_filled_and_never_too_large(
    one: Pool, name: str, delays: list[int], together: int, page: int
) -> None:
    every = jobs(delays)
    for first in range(0, len(every), together):
        await one.add(every[first : first + together])
        if together > 1:
            await slice_all(one, page)
    await slice_all(one, page)
    sizes = [len(ids) for ids in (await slices(one)).values()]
    assert sum(sizes) == len(every) and max(sizes) <= ENTRIES
    assert sum(sizes) / len(sizes) >= 60
    await check_books(one.redis, one)


@pytest.mark.parametrize("buckets", [1, 3])
async def test_whatever_happens_far_jobs_are_where_they_belong(redis: Redis, clock: HeldClock, buckets: int) -> None:
    """Adds, other times, deletions and looks in random order, on a few thousand jobs with few different times."""
    pool = await Pool.open(redis, buckets=buckets, clock=clock)
    chance = random.Random(38)
    due: dict[str, int] = {}
    for step in range(150):
        now = clock.now_us // 1000
        times = [now + chance.randrange(HOUR // 2, 6 * HOUR) for _ in range(chance.choice([1, 1, 3, 50]))]
        new = [f"{chance.choice('aZé_')}{step}-{n}" for n in range(chance.choice([1, 5, 100, 300]))]
        due |= {each: chance.choice(times) for each in new}
        await pool.add([NewJob(each, "t", b"1", due_ms=due[each]) for each in new])
        for each in chance.sample(sorted(due), min(len(due), 20)):
            due[each] = chance.choice([*times, now + chance.randrange(HOUR // 2, 6 * HOUR)])
            await pool.update(each, due_ms=due[each])
        gone = chance.sample(sorted(due), min(len(due), chance.choice([0, 10, 200])))
        await pool.delete(gone)
        due = {each: at for each, at in due.items() if each not in gone}
        if chance.random() < 0.7:
            await slice_all(pool, chance.choice([5, 200]))
        if step % 10 == 0:
            await check_books(redis, pool)
            homes = {each: (await get(pool, each)).bucket for each in due}
            in_order = sorted(due, key=lambda each: (due[each], homes[each], each.encode()))
            assert await peeked_ids(pool, State.DELAYED, count=chance.choice([7, 100])) == in_order
            assert await backwards(pool) == in_order[::-1]
        clock.advance(chance.choice([1, 1, 60_000, 600_000, 2 * HOUR]))
        await tick_all(pool)
        over = [each for each, at in due.items() if at <= clock.now_us // 1000]
        assert sorted(await popped_ids(pool, count=10_000)) == sorted(over)
        for each in over:
            del due[each]
        await pool.finish([(each, None) for each in over])
    await check_books(redis, pool)
    assert await slice_all(pool)
    assert await purge(pool) == len(due)
    await check_books(redis, pool)
    await pool.close()


async def test_after_a_long_time_without_timers_jobs_come_in_their_order(one: Pool, clock: HeldClock) -> None:
    chance = random.Random(1)
    delays = {f"j{n}": chance.randrange(5_000, 30 * HOUR) for n in range(10 * PAGE)}
    await one.add([NewJob(each, "t", b"1", delay_ms=delay) for each, delay in delays.items()])
    await slice_all(one)
    others = {f"k{n}": chance.randrange(5_000, 30 * HOUR) for n in range(4 * PAGE)}  # in the set
    await one.add([NewJob(each, "t", b"1", delay_ms=delay) for each, delay in others.items()])
    delays |= others
    clock.advance(30 * HOUR)
    await tick_all(one)
    assert await popped_ids(one, count=10_000) == sorted(delays, key=lambda each: (delays[each], each.encode()))


async def test_a_walk_goes_on_where_it_was_while_slices_move(one: Pool, clock: HeldClock) -> None:
    every = jobs([2 * HOUR + 1_000 * number for number in range(600)])
    await one.add(every)
    walk, seen, place = Walk(one), list[str](), None
    while True:
        page = await walk.peek("t", State.DELAYED, place, count=37)
        seen += [job.id for job in page.jobs]
        place = page.next
        if place is None:
            break
        await one.slice(0, 0, 0, 50)
        clock.advance(HOUR // 12)
        await one.due(0, 0)  # moves one slice back, once there is one that begins soon
    assert seen == [job.id for job in every]


@pytest.mark.parametrize("change", ["delete", "run", "take", "replace", "update", "priority", "later", "keep"])
async def test_a_job_that_leaves_its_slice_leaves_nothing(one: Pool, change: str) -> None:
    await one.add(jobs([2 * HOUR, 3 * HOUR]))
    await slice_all(one)
    job = "j00000"
    again = partial(NewJob, job, "t", b"2", delay_ms=5 * HOUR)
    match change:
        case "delete":
            await delete(one, job)
        case "run":
            await one.run(job)
        case "take":
            await one.take(job)
        case "update":
            await one.update(job, delay_ms=60_000)
        case "priority":
            await one.update(job, priority=9)
        case _:
            await one.add([again(if_exists=change)])
    assert await in_slices(one) == ({job, "j00001"} if change == "keep" else {"j00001"})
    await check_books(one.redis, one)


async def test_an_entry_left_behind_delays_nothing(one: Pool, clock: HeldClock) -> None:
    """Such as an error between two writes leaves."""
    await one.add(jobs([2 * HOUR, 2 * HOUR + 1]))
    await slice_all(one)
    ((bound, _),) = (await slices(one)).items()
    await one.update("j00000", delay_ms=HOUR)
    stale = clock.now_us // 1000 + HOUR + HOUR // 2
    await one.redis.read("ZADD", f"{one.keys[0].slices(0)}:{bound}", stale, "j00000")
    clock.advance(HOUR - 1)
    await tick_all(one)
    assert not await in_slices(one)
    clock.advance(1)
    await tick_all(one)
    assert await popped_ids(one) == ["j00000"]


async def test_an_entry_that_its_record_does_not_confirm_stays_where_it_is(one: Pool, clock: HeldClock) -> None:
    await one.add(jobs([2 * HOUR] * 3))
    await one.redis.read("ZADD", one.keys[0].bucket(0), "inf", "j00001", clock.now_us // 1000 + 3 * HOUR, "nobody")
    assert await slice_all(one) == 2
    assert await in_sets(one) == {"j00001", "nobody"}


async def test_jobs_of_one_time_are_shown_in_the_order_of_their_ids_and_each_once(one: Pool) -> None:
    """Wherever they are; and one that an error left in both places."""
    every = jobs([2 * HOUR] * 300)
    await one.add(every[::2])
    await slice_all(one)
    await one.add(every[1::2])
    ids = [job.id for job in every]
    for count in (1, 7, 100):
        assert await peeked_ids(one, State.DELAYED, count=count) == ids
    assert await backwards(one) == ids[::-1]
    await one.redis.read("ZADD", one.keys[0].bucket(0), (await get(one, ids[4])).next, ids[4])
    assert await peeked_ids(one, State.DELAYED) == ids
    assert await purge(one) == 300
    assert (await Topics(one).stats("t")).counts["delayed"] == 0


async def test_another_programs_bounds_block_nothing(one: Pool) -> None:
    bounds = one.keys[0].slices(0)
    await one.redis.read("ZADD", bounds, 0, "!", 0, "a stranger", 5, "x" * 20, 0, "0" * 15 + "z")
    await one.add(jobs([2 * HOUR] * 300))
    assert await slice_all(one) == 300
    assert not await one.redis.read("EXISTS", f"{bounds}:!")
    await delete(one, "j00000")
    assert len(await peeked_ids(one)) == 299
    large = f"{bounds}:" + "0" * 15 + "z"
    await one.redis.read("ZADD", large, *(str(each) for n in range(5_000) for each in (n, n)))
    await tick_all(one)
    assert await one.redis.read("ZCARD", large) <= ENTRIES


async def test_few_far_jobs_stay_and_what_cannot_move_is_not_looked_at_again_and_again(
    one: Pool,
) -> None:
    slicing = Slicing(one, rest=0, least=100)
    await one.add(jobs([2 * HOUR] * 99))
    assert await slicing.tick(0) == 0
    await one.add([NewJob(f"{'x' * 64}{number}", "t", b"1", delay_ms=3 * HOUR) for number in range(400)])
    assert await slicing.tick(0) == 99  # and the long ids stay
    await one.add(jobs([4 * HOUR] * 150, "later"))
    assert await slicing.tick(0) == 0
    await one.add(jobs([4 * HOUR] * 100, "last"))
    assert await slicing.tick(0) == 250
    assert len(await in_sets(one)) == 400


async def test_all_buckets_have_their_turn_and_none_while_an_instance_does_not_know_slices(
    pool: Pool, clock: HeldClock
) -> None:
    for number in range(2 * pool.buckets):
        await pool.add(jobs([2 * HOUR] * 10, f"{number:02}-"))
    slicing = Slicing(pool, rest=0, least=1)
    await sign(pool, "old")
    assert await slicing.tick(0) == 0
    clock.advance(60_001)
    assert await slicing.tick(0) == 20 * pool.buckets
    assert len([bucket for bucket in range(pool.buckets) if await slices(pool, bucket)]) > 1


async def test_the_service_slices_by_itself(redis_server: RedisServer, redis: Redis) -> None:
    pool = await Pool.open(redis, buckets=1)
    async with ServiceProcess("--redis", redis_server.url) as service:
        await pool.add(jobs([2 * HOUR] * 1_200))

        async def are_sliced() -> bool:
            return not await redis.read("EXISTS", pool.keys[0].bucket(0))

        await until(are_sliced)
        async with Client(service.url) as client:
            assert (await client.ask("get", id="j00007"))["state"] == "delayed"
            assert len((await client.ask("peek", topic="t", state="delayed", count=5))["jobs"]) == 5
    await check_books(redis, pool)
    await pool.close()
