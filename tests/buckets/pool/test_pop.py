"""buckets.pool.pool, pop.lua, unpop.lua: delivering jobs, and taking them back."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from typing import Any

import pytest

from buckets.clock import HeldClock
from buckets.errors import NotReserved
from buckets.job import NewJob, State, Tag
from buckets.layout import NEW_HEADER
from buckets.pool.pool import Pool
from buckets.redis.client import Redis
from buckets.topics.topics import Topics
from tests.buckets.books import check_books
from tests.buckets.jobs import add, delete, finish, get, is_stored, pop, pop_one, popped_ids, state
from tests.kit.waiting import tick_all, until


async def test_a_topic_without_jobs_gives_none(pool: Pool) -> None:
    popped = await pool.pop(["t", "u"], 10)
    assert (popped.jobs, popped.left) == ([], 0)


async def test_jobs_of_one_priority_come_in_the_order_of_their_arrival(pool: Pool) -> None:
    for job_id in "cab":
        await add(pool, job_id)
    assert [(await pop_one(pool)).id for _ in "cab"] == ["c", "a", "b"]


async def test_arrival_counts_whichever_bucket_a_job_came_from(pool: Pool, clock: HeldClock) -> None:
    ids = [f"{n:02}" for n in range(pool.buckets * 2)]
    for n, job_id in enumerate(ids):
        await add(pool, job_id, delay_ms=1_000 * (n + 1))
    for _ in ids:
        clock.advance(1_000)
        await tick_all(pool)
    assert await popped_ids(pool) == ids


async def test_within_a_bucket_what_is_due_first_arrives_first(redis: Redis, clock: HeldClock) -> None:
    pool = await Pool.open(redis, "one", buckets=1, clock=clock)
    for delay in (30, 10, 20):
        await add(pool, f"z{99 - delay}", delay_ms=delay)
    clock.advance(50)
    await tick_all(pool)
    assert await popped_ids(pool) == ["z89", "z79", "z69"]


async def test_a_higher_priority_is_sooner_whenever_it_came(pool: Pool) -> None:
    for priority in (4, 0, 9, 5, 9):
        await add(pool, f"{priority}-{await redis_size(pool)}", priority=priority)
    assert [job_id[0] for job_id in await popped_ids(pool)] == ["9", "9", "5", "4", "0"]


async def redis_size(pool: Pool) -> int:
    return (await Topics(pool).stats()).counts["ready"]


async def test_a_pop_of_many_takes_up_to_so_many_and_says_what_is_left(pool: Pool) -> None:
    await pool.add([NewJob(str(n), "t", b"") for n in range(5)])
    popped = await pool.pop(["t"], 3)
    assert [job.id for job in popped.jobs] == ["0", "1", "2"]
    assert popped.left == 2
    popped = await pool.pop(["t"], 3)
    assert ([job.id for job in popped.jobs], popped.left) == (["3", "4"], 0)


async def test_topics_are_tried_in_their_order(pool: Pool) -> None:
    for topic in "abc":
        await pool.add([NewJob(f"{topic}{n}", topic, b"", priority=n) for n in range(2)])
    assert await popped_ids(pool, "b", "none", "a", "b", count=3) == ["b1", "b0", "a1"]
    assert await popped_ids(pool, "b", "a") == ["a0"]
    assert await popped_ids(pool, "c", count=1) == ["c1"]


async def test_a_thousand_jobs_come_in_one_pop(redis: Redis, pool: Pool) -> None:
    await pool.add([NewJob(f"{n:04}", "t", b"") for n in range(1001)])
    popped = await pool.pop(["t"], 1000)
    assert [job.id for job in popped.jobs] == [f"{n:04}" for n in range(1000)]
    assert popped.left == 1
    await check_books(redis, pool)


async def test_a_pop_stops_where_the_bodies_fill_its_room_and_the_rest_stays(redis: Redis, pool: Pool) -> None:
    for job_id in "abcd":
        await add(pool, job_id, body=b"x" * 1000)
    assert [job.id for job in await pop(pool, count=9, room=2500)] == ["a", "b"]
    assert await state(pool, "c") == "ready"
    assert await popped_ids(pool) == ["c", "d"]
    await check_books(redis, pool)


async def test_jobs_may_fill_the_room_to_its_last_byte(pool: Pool) -> None:
    for job_id in "abc":
        await add(pool, job_id, body=b"x" * 1000)
    size = NEW_HEADER + len("t") + 1000
    assert [job.id for job in await pop(pool, count=9, room=2 * size)] == ["a", "b"]


async def test_one_job_is_handed_out_however_little_room_there_is(pool: Pool) -> None:
    for job_id in "ab":
        await add(pool, job_id, body=b"x" * 1000)
    assert [job.id for job in await pop(pool, count=9, room=1)] == ["a"]


async def test_the_room_holds_over_all_priorities_and_topics(pool: Pool) -> None:
    await add(pool, "a", "t", b"x" * 1000, priority=5)
    await add(pool, "b", "t", b"x" * 1000)
    await add(pool, "c", "u")
    assert await popped_ids_in(pool, 1500) == ["a"]
    assert await popped_ids(pool, "t", "u") == ["b", "c"]


async def popped_ids_in(pool: Pool, room: int) -> list[str]:
    return [job.id for job in await pop(pool, "t", "u", count=9, room=room)]


async def test_a_delivery_raises_the_attempt_and_the_lease(pool: Pool, clock: HeldClock) -> None:
    await add(pool, "a", ttr_ms=1_000)
    leases = []
    for attempt in (1, 2, 3):
        job = await pop_one(pool)
        assert (job.attempts, job.deliveries, job.state) == (attempt, attempt, State.RESERVED)
        assert job.next == clock.now_us // 1000 + 1_000
        leases.append(job.lease)
        clock.advance(1_000)
        await tick_all(pool)
    assert leases == sorted(set(leases))
    assert leases[-1] < 2**53


async def test_the_lease_is_raised_even_when_the_clock_went_back(pool: Pool, clock: HeldClock) -> None:
    await add(pool, "a", ttr_ms=0 + 1_000)
    first = await pop_one(pool)
    await pool.unpop([first])
    clock.advance(-5_000)
    assert (await pop_one(pool)).lease == first.lease + 1


async def test_a_lease_never_repeats_after_delete_and_add(pool: Pool, clock: HeldClock) -> None:
    await add(pool, "a")
    first = await pop_one(pool)
    await delete(pool, "a")
    clock.advance(-1_000)
    await add(pool, "a", if_exists="replace")
    assert (await pop_one(pool)).lease > first.lease


async def test_a_pop_may_ask_for_another_ttr_for_this_delivery(redis: Redis, pool: Pool, clock: HeldClock) -> None:
    await add(pool, "a", ttr_ms=5_000, headers=b"{}")
    for ttr, lasts in ((1_000, 1_000), (90_000, 90_000), (None, 5_000), (5_000, 5_000)):
        job = await pop_one(pool, ttr_ms=ttr)
        assert (job.ttr, job.own_ttr, job.body, job.text(Tag.HEADERS)) == (lasts, 5_000, b'"body"', "{}")
        assert await is_stored(pool, job)
        clock.advance(lasts - 1)
        assert await tick_all(pool) == 0
        clock.advance(1)
        assert await tick_all(pool) == 1
    await check_books(redis, pool)


async def test_the_worker_that_popped_last_stands_in_the_record(pool: Pool, clock: HeldClock) -> None:
    await add(pool, "a", ttr_ms=1_000)
    for worker in ("first", "the second, with a longer name"):
        assert (await pop_one(pool, worker=worker)).text(Tag.WORKER) == worker
        assert (await get(pool, "a")).text(Tag.WORKER) == worker
        clock.advance(1_000)
        await tick_all(pool)
    assert (await pop_one(pool)).body == b'"body"'


async def test_a_job_at_most_once_is_gone_when_it_is_popped(redis: Redis, pool: Pool, clock: HeldClock) -> None:
    await add(pool, "a", ttr_ms=0, body=b"all", headers=b"{}")
    job = await pop_one(pool)
    assert (job.state, job.body, job.attempts, job.text(Tag.HEADERS)) == (State.FINISHED, b"all", 1, "{}")
    assert await state(pool, "a") == "finished"
    clock.advance(86_400_000)
    assert await tick_all(pool) == 0
    assert await popped_ids(pool) == []
    stats = await Topics(pool).stats("t")
    assert stats.totals == {"created": 1, "delivered": 1, "finished": 1}
    await check_books(redis, pool)


async def test_a_ttr_of_zero_in_a_pop_makes_this_delivery_the_only_one(pool: Pool) -> None:
    await add(pool, "a", ttr_ms=5_000)
    assert (await pop_one(pool, ttr_ms=0)).state is State.FINISHED
    assert await state(pool, "a") == "finished"


async def test_a_ttr_in_a_pop_leases_a_job_that_would_be_gone(pool: Pool, clock: HeldClock) -> None:
    await add(pool, "a", ttr_ms=0)
    assert (await pop_one(pool, ttr_ms=1_000)).state is State.RESERVED
    clock.advance(1_000)
    await tick_all(pool)
    assert (await pop_one(pool)).state is State.FINISHED


async def figures(pool: Pool) -> tuple[Counter[str], Counter[str]]:
    stats = await Topics(pool).stats("t")
    return Counter(stats.counts), Counter(stats.totals)


async def test_what_is_given_back_is_as_if_it_was_never_popped(redis: Redis, pool: Pool) -> None:
    for job_id in "abc":
        await add(pool, job_id, tries=1)
    counts, totals = await figures(pool)
    await pool.unpop(await pop(pool, count=2))
    assert await figures(pool) == (counts, totals + Counter(undone=2))
    job = await get(pool, "a")
    assert (job.state, job.attempts, job.deliveries) == (State.READY, 0, 0)
    with pytest.raises(NotReserved):
        await finish(pool, "a")
    assert await popped_ids(pool) == ["a", "b", "c"]
    await check_books(redis, pool)


async def test_a_redelivery_that_is_given_back_leaves_the_first_delivery(pool: Pool, clock: HeldClock) -> None:
    await add(pool, "a", ttr_ms=1_000)
    await pop_one(pool)
    clock.advance(1_000)
    await tick_all(pool)
    counts, totals = await figures(pool)
    await pool.unpop([await pop_one(pool)])
    assert await figures(pool) == (counts, totals + Counter(undone=1))
    assert (await get(pool, "a")).attempts == 1


async def test_many_given_back_stand_before_all_others_in_their_old_order(pool: Pool) -> None:
    await pool.add([NewJob(f"{n:04}", "t", b"", priority=4 + n % 2) for n in range(700)])
    order = [f"{n:04}" for n in (*range(1, 700, 2), *range(0, 700, 2))]
    await pool.unpop(await pop(pool, count=600))
    assert await popped_ids(pool, count=700) == order


async def test_only_the_newest_delivery_can_be_given_back(pool: Pool, clock: HeldClock) -> None:
    await add(pool, "a", ttr_ms=1_000)
    old = await pop_one(pool)
    clock.advance(1_000)
    await tick_all(pool)
    newest = await pop_one(pool)
    await pool.unpop([old])
    assert await is_stored(pool, newest)
    await finish(pool, "a")
    await pool.unpop([newest])
    assert await state(pool, "a") == "finished"


async def test_a_pop_whose_caller_is_gone_gives_its_jobs_back(pool: Pool) -> None:
    for job_id in "ab":
        await add(pool, job_id)
    popping = asyncio.create_task(pool.pop(["t"], 2))
    await asyncio.sleep(0)  # now it has asked Redis
    popping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await popping
    await until(lambda: has_ready(pool, 2))
    assert (await Topics(pool).stats("t")).totals == {"created": 2, "delivered": 0, "undone": 2}
    job = await pop_one(pool)
    assert (job.id, job.attempts, job.deliveries) == ("a", 1, 1)


async def has_ready(pool: Pool, number: int) -> bool:
    return (await Topics(pool).stats()).counts["ready"] == number


async def test_closing_the_pool_waits_for_what_is_given_back(pool: Pool) -> None:
    for _ in range(20):
        await add(pool, "a")
        popping = asyncio.create_task(pool.pop(["t"], 1))
        await asyncio.sleep(0)
        popping.cancel()
        await asyncio.gather(popping, return_exceptions=True)
        await pool.close()
        assert await state(pool, "a") == "ready"


async def test_a_large_pop_is_several_short_scripts_and_keeps_order_and_room(redis: Redis, pool: Pool) -> None:
    """A thousand jobs in one script would block Redis for more than the 5 ms that a script may take."""
    names = [f"{each:04d}" for each in range(1000)]
    await pool.add([NewJob(name, "t", b'"%s"' % (b"x" * 98)) for name in names])
    await redis.read("CONFIG", "RESETSTAT")
    assert [job.id for job in await pop(pool, count=450)] == names[:450]
    assert b"cmdstat_evalsha:calls=3," in await redis.read("INFO", "commandstats")
    few = await pop(pool, count=550, room=300 * 200)
    assert [job.id for job in few] == names[450 : 450 + len(few)]
    assert 250 < len(few) < 500
    assert sum(len(job.body) for job in few) <= 300 * 200
    await check_books(redis, pool)


async def test_large_bodies_are_popped_some_a_script(redis: Redis, pool: Pool) -> None:
    ids = [f"j{number:02}" for number in range(12)]
    for job_id in ids:
        await add(pool, job_id, body=b'"%s"' % (b"x" * 100_000))
    await redis.read("CONFIG", "RESETSTAT")
    assert await popped_ids(pool, "t", count=10) == ids[:10]
    scripts = re.findall(rb"cmdstat_eval(?:sha)?:calls=(\d+)", await redis.read("INFO", "commandstats"))
    assert sum(map(int, scripts)) in (4, 5)  # of three jobs each; the first may have to be loaded into Redis
    assert (await pool.pop(["t"], 10)).left == 0
    await check_books(redis, pool)


async def test_concurrent_pops_are_one_script_and_each_worker_gets_its_own_job(redis: Redis, pool: Pool) -> None:
    """First come, first served, and each job names its worker; with optional fields and without."""
    fields: list[dict[str, Any]] = [{}, {"ttl_ms": 60_000}, {"headers": b'{"a":"b"}'}]
    for n in range(30):
        await add(pool, f"{n:02}", **fields[n % 3])
    await redis.read("CONFIG", "RESETSTAT")
    popping = [asyncio.create_task(pool.pop(["t"], worker=f"w{n}" * (n + 1))) for n in range(32)]
    popped = await asyncio.gather(*popping)
    assert [[job.id for job in each.jobs] for each in popped] == [[f"{n:02}"] for n in range(30)] + [[], []]
    assert [each.jobs[0].text(Tag.WORKER) for each in popped[:30]] == [f"w{n}" * (n + 1) for n in range(30)]
    assert [(await get(pool, f"{n:02}")).text(Tag.WORKER) for n in range(30)] == [f"w{n}" * (n + 1) for n in range(30)]
    assert b"cmdstat_evalsha:calls=31," in await redis.read("INFO", "commandstats")  # with the gets
    await check_books(redis, pool)


async def test_pops_that_differ_in_what_they_ask_for_each_get_what_they_asked_for(redis: Redis, pool: Pool) -> None:
    for topic in ("t", "u"):
        for n in range(4):
            await add(pool, f"{topic}{n}", topic)
    asked: list[tuple[list[str], dict[str, Any]]] = [
        (["t"], {}),
        (["u"], {}),
        (["t"], {"ttr_ms": 500}),
        (["t"], {"worker": "w"}),
        (["u", "t"], {"ttr_ms": 0}),
    ]
    jobs = [each.jobs[0] for each in await asyncio.gather(*(pool.pop(topics, 1, **more) for topics, more in asked))]
    assert [job.topic for job in jobs] == ["t", "u", "t", "t", "u"]
    assert len({job.id for job in jobs}) == 5
    assert [job.next - job.lease // 1000 for job in jobs[:4]] == [60_000, 60_000, 500, 60_000]
    assert [job.text(Tag.WORKER) for job in jobs] == [None, None, None, "w", None]
    assert await state(pool, jobs[4].id) == "finished"
    await check_books(redis, pool)


async def test_large_jobs_reach_all_who_pop_at_once(redis: Redis, pool: Pool) -> None:
    """A script stops after some 256 KiB; the other callers are not told that the topic is empty."""
    body = b'"%s"' % (b"x" * 200_000)
    await pool.add([NewJob(str(n), "t", body) for n in range(9)])
    popped = await asyncio.gather(*(pool.pop(["t"], worker=f"w{n}") for n in range(9)))
    assert [[job.id for job in each.jobs] for each in popped] == [[str(n)] for n in range(9)]
    assert [each.jobs[0].text(Tag.WORKER) for each in popped] == [f"w{n}" for n in range(9)]
    await check_books(redis, pool)


async def test_who_left_as_the_script_began_gets_nothing_and_burns_nothing(redis: Redis, pool: Pool) -> None:
    await add(pool, "a")
    popping = [asyncio.create_task(pool.pop(["t"])) for _ in range(2)]
    await asyncio.sleep(0)
    for each in popping:
        each.cancel()
    await asyncio.gather(*popping, return_exceptions=True)
    await until_popped(pool, "a")
    assert (await get(pool, "a")).attempts == 1
    assert (await get(pool, "a")).deliveries == 1


async def until_popped(pool: Pool, job_id: str) -> None:
    async def found() -> bool:
        return [job.id for job in (await pool.pop(["t"])).jobs] == [job_id]

    await until(found)


async def test_what_comes_for_one_who_left_goes_back_and_the_others_keep_theirs(redis: Redis, pool: Pool) -> None:
    await pool.pop(["t"])  # Redis knows the script
    for n in range(4):
        await add(pool, str(n), tries=1)
    popping = [asyncio.create_task(pool.pop(["t"], worker=f"w{n}")) for n in range(4)]
    for _ in range(3):
        await asyncio.sleep(0)  # it is in progress
    popping[1].cancel()
    popped = await asyncio.gather(*popping[:1], *popping[2:])
    assert [[job.id for job in each.jobs] for each in popped] == [["0"], ["2"], ["3"]]
    await asyncio.gather(*popping, return_exceptions=True)
    await pool.close()
    assert (await pop_one(pool)).id == "1"
    assert (await get(pool, "1")).attempts == 1
    await check_books(redis, pool)


async def test_jobs_of_one_pop_have_each_their_own(pool: Pool) -> None:
    """Fields that the jobs share are read once; fields that differ must not be taken for shared."""
    jobs = [
        NewJob("plain", "t", b"1"),
        NewJob("high", "t", b"2", priority=9),
        NewJob("long", "t", b"3", ttr_ms=70_000),
        NewJob("with headers", "t", b"4", headers=b'{"a":"b"}'),
        NewJob("plain again", "t", b"5"),
    ]
    await pool.add(jobs)
    popped = {job.id: job for job in await pop(pool, count=9)}
    for job in jobs:
        got = popped[job.id]
        told = (got.body, got.priority, got.ttr, got.optional.get(Tag.HEADERS, b""))
        assert told == (job.body, job.priority, job.ttr_ms, job.headers)
