"""buckets.topics.walk, purge.lua, purge_ready.lua: deleting the jobs of a topic."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from buckets.clock import HeldClock
from buckets.errors import AlreadyExists, NotFound
from buckets.job import LIVE, NewJob, State
from buckets.pool.pool import Pool
from buckets.redis.client import Redis
from buckets.topics.topics import Topics
from buckets.topics.walk import Purged, Walk
from tests.buckets.books import check_books
from tests.buckets.jobs import add, finish, get, pop, pop_one, popped_ids, state
from tests.buckets.topics.walks import FAR_MS, fill, ids, peeked_ids, purge, snapshot
from tests.kit.waiting import tick_all, until


@pytest.mark.parametrize("of", LIVE)
async def test_a_purge_of_a_state_deletes_its_jobs_and_no_others(
    redis: Redis, pool: Pool, clock: HeldClock, of: State
) -> None:
    await fill(pool, clock, 3)
    await fill(pool, clock, 3, "u", "u:")
    assert await purge(pool, of) == 3
    assert sorted(await peeked_ids(pool)) == sorted(ids(3, *(each for each in LIVE if each is not of)))
    assert sorted(await peeked_ids(pool, None, "u")) == sorted(ids(3, prefix="u:"))
    stats = await Topics(pool).stats("t")
    assert (stats.counts, stats.totals["deleted"]) == ({each.word: 3 * (each is not of) for each in LIVE}, 3)
    assert [await state(pool, job_id) for job_id in ids(3, of)] == ["deleted"] * 3
    await check_books(redis, pool)


async def test_a_purge_without_a_state_deletes_all_live_jobs_and_leaves_tombstones(
    redis: Redis, pool: Pool, clock: HeldClock
) -> None:
    await fill(pool, clock, 3)
    await add(pool, "done", priority=9)
    await pop_one(pool)
    await finish(pool, "done")
    assert await purge(pool) == 12
    assert await peeked_ids(pool) == []
    assert await state(pool, "done") == "finished"
    for job_id in ids(3):
        job = await get(pool, job_id)
        assert (job.state, job.body, job.next) == (State.DELETED, b"", clock.now_us // 1000 + 60_000)
        with pytest.raises(AlreadyExists):
            await add(pool, job_id)
    assert await popped_ids(pool) == []
    await check_books(redis, pool)
    assert await purge(pool) == 0


async def test_jobs_without_a_retention_leave_nothing(redis: Redis, pool: Pool, clock: HeldClock) -> None:
    await fill(pool, clock, 2, retention_ms=0)
    await purge(pool)
    keys = {key.decode() for key in await redis.read("KEYS", "*")}
    assert keys == {pool.keys[0].meta, pool.keys[0].topics, pool.keys[0].counts("t")}
    await check_books(redis, pool)


async def test_the_workers_of_purged_jobs_are_told_that_there_is_no_such_job(redis: Redis, pool: Pool) -> None:
    await add(pool, "a")
    job = await pop_one(pool)
    assert await purge(pool, State.RESERVED) == 1
    for late in (
        finish(pool, "a", job.lease),
        pool.touch("a", job.lease),
        pool.release("a", job.lease),
        pool.bury("a", job.lease),
    ):
        with pytest.raises(NotFound) as refusal:
            await late
        assert refusal.value.state == "deleted"
    await check_books(redis, pool)


async def test_a_purged_job_does_not_come_back_when_its_time_comes(redis: Redis, pool: Pool, clock: HeldClock) -> None:
    await fill(pool, clock, 2)
    await add(pool, "ttl", ttl_ms=5_000)
    await purge(pool)
    clock.advance(FAR_MS)
    assert await tick_all(pool) == 0
    assert await popped_ids(pool) == []


@pytest.mark.parametrize("of", [None, *LIVE])
async def test_thousands_of_jobs_of_several_shards_are_purged(redis: Redis, clock: HeldClock, of: State | None) -> None:
    pool = await Pool.open(redis, "many", shards=3, buckets=2, clock=clock)
    await fill(pool, clock, 700)
    await fill(pool, clock, 5, "u", "u:")
    assert await purge(pool, of) == (700 if of else 2_800)
    assert len(await peeked_ids(pool, count=1_000)) == (2_100 if of else 0)
    assert len(await peeked_ids(pool, None, "u")) == 20
    await check_books(redis, pool)


@pytest.mark.parametrize("number", [199, 200, 201, 400])
async def test_lists_of_just_a_page_are_purged_to_their_end(redis: Redis, pool: Pool, number: int) -> None:
    await pool.add([NewJob(f"{n}", "t", b"", priority=n % 2 * 9) for n in range(2 * number)])
    assert await purge(pool) == 2 * number
    assert await redis.read("KEYS", "*:r:*") == []
    await check_books(redis, pool)


async def test_a_time_of_nothing_gives_the_place_to_begin_and_deletes_nothing(
    redis: Redis, pool: Pool, clock: HeldClock
) -> None:
    await fill(pool, clock, 2)
    before = await snapshot(redis)
    for of in (None, *LIVE):
        purged = await Walk(pool).purge("t", of, seconds=0)
        assert purged.count == 0 and purged.next and purged.next.begun == clock.now_us // 1000
    assert await snapshot(redis) == before


async def test_a_purge_goes_on_from_place_to_place_until_it_is_done(redis: Redis, pool: Pool, clock: HeldClock) -> None:
    """With so little time that each call does a step or two."""
    await fill(pool, clock, 250)
    walk, place, count, calls = Walk(pool), None, 0, 0
    while place or not calls:
        purged = await walk.purge("t", None, place, seconds=0.0005)
        place, count, calls = purged.next, count + purged.count, calls + 1
        assert place is None or walk.has(place)
    assert count == 1_000
    assert calls > 4
    await check_books(redis, pool)


@pytest.mark.parametrize("of", [None, *LIVE])
async def test_jobs_made_after_a_purge_began_stay(redis: Redis, pool: Pool, clock: HeldClock, of: State | None) -> None:
    """Jobs of the millisecond in which it began may be deleted."""
    await fill(pool, clock, 3, prefix="old:")
    begun = await Walk(pool).purge("t", of, seconds=0)
    clock.advance(1)
    await fill_behind(pool, clock)
    assert await Walk(pool).purge("t", of, begun.next, seconds=60) == Purged(3 if of else 12, None)
    left = await peeked_ids(pool, of)
    assert sorted(left) == sorted(ids(3, *([of] if of else LIVE), prefix="new:"))
    await check_books(redis, pool)


async def test_a_job_that_waits_for_its_key_and_was_made_after_a_purge_began_stays(
    redis: Redis, pool: Pool, clock: HeldClock
) -> None:
    for each in ("holder", "old"):
        await add(pool, each, key="7")
    begun = await Walk(pool).purge("t", State.READY, seconds=0)
    clock.advance(1)
    await add(pool, "new", key="7")
    assert await Walk(pool).purge("t", State.READY, begun.next) == Purged(2, None)
    await check_books(redis, pool)
    assert await popped_ids(pool) == ["new"]


async def fill_behind(pool: Pool, clock: HeldClock) -> None:
    """Jobs in each state, the reserved ones not taken from the jobs that existed before."""
    await fill(pool, clock, 3, "elsewhere", "moved:")
    await pool.delete(ids(3, prefix="moved:"))
    clock.advance(60_001)

    def jobs(word: str, **more: Any) -> list[NewJob]:
        return [NewJob(f"new:{word}:{n:04}", "t", b"", ttr_ms=FAR_MS, **more) for n in range(3)]

    await pool.add([*jobs("dead", ttl_ms=1), *jobs("delayed", delay_ms=FAR_MS)])
    clock.advance(1)
    await tick_all(pool)
    await pool.add(jobs("reserved", priority=9))
    await pop(pool, count=3)
    await pool.add(jobs("ready"))


async def test_a_job_replaced_after_a_purge_began_stays(redis: Redis, pool: Pool, clock: HeldClock) -> None:
    await add(pool, "a", delay_ms=1_000)
    await add(pool, "b", delay_ms=1_000)
    begun = await Walk(pool).purge("t", seconds=0)
    clock.advance(1)
    await add(pool, "a", delay_ms=1_000, if_exists="replace")
    assert (await Walk(pool).purge("t", None, begun.next)).count == 1
    assert [await state(pool, job_id) for job_id in "ab"] == ["delayed", "deleted"]
    await check_books(redis, pool)


async def test_a_new_job_that_came_back_to_the_front_hides_no_old_one_and_keeps_its_place(
    redis: Redis, pool: Pool, clock: HeldClock
) -> None:
    """Its client hung up: it is listed before jobs that existed when the purge began."""
    await pool.add([NewJob(f"old{n}", "t", b"") for n in range(5)])
    begun = await Walk(pool).purge("t", State.READY, seconds=0)
    clock.advance(1)
    await pool.add([NewJob(f"new{n}", "t", b"") for n in range(3)])
    popped = await pop(pool, count=8)
    await pool.unpop(popped[:3])
    await pool.unpop(popped[5:])
    await pool.unpop(popped[3:5])
    order = ["old3", "old4", "new0", "new1", "new2", "old0", "old1", "old2"]
    assert await peeked_ids(pool, State.READY) == order
    assert (await Walk(pool).purge("t", State.READY, begun.next)) == Purged(5, None)
    await check_books(redis, pool)
    assert await popped_ids(pool) == ["new0", "new1", "new2"]


async def test_old_jobs_that_became_ready_behind_new_ones_are_purged(
    redis: Redis, pool: Pool, clock: HeldClock
) -> None:
    await add(pool, "old", delay_ms=10)
    begun = await Walk(pool).purge("t", State.READY, seconds=0)
    clock.advance(5)
    await add(pool, "new")
    clock.advance(5)
    await tick_all(pool)
    assert (await Walk(pool).purge("t", State.READY, begun.next)).count == 1
    assert await popped_ids(pool) == ["new"]
    await check_books(redis, pool)


async def test_stale_entries_in_front_are_no_obstacle(redis: Redis, pool: Pool) -> None:
    await pool.add([NewJob(f"old{n}", "t", b"") for n in range(1_000)])
    await add(pool, "a")
    await add(pool, "low", priority=0)
    await pool.delete([f"old{n}" for n in range(1_000)])
    await redis.read("LPUSH", pool.keys[0].ready(4, "t"), "", "no number", "1:", ":a", "1:nobody", "99:a", b"\xff")
    assert await purge(pool, State.READY) == 2
    assert await redis.read("KEYS", "*:r:*") == []
    await check_books(redis, pool)


async def test_the_same_entry_twice_is_one_job(redis: Redis, pool: Pool) -> None:
    await add(pool, "a")
    entry = f"{(await get(pool, 'a')).number}:a"
    await redis.read("RPUSH", pool.keys[0].ready(4, "t"), entry, entry)
    assert await purge(pool) == 1
    await check_books(redis, pool)


async def test_entries_that_the_pool_does_not_bear_out_harm_nobody(redis: Redis, pool: Pool, clock: HeldClock) -> None:
    await fill(pool, clock, 2)
    await add(pool, "of u", "u")
    await redis.read("ZADD", pool.keys[0].dead("t"), 1, "delayed:0000", 2, "of u", 3, "nobody")
    await redis.read("RPUSH", pool.keys[0].ready(4, "t"), f"{(await get(pool, 'of u')).number}:of u")
    assert await purge(pool, State.DEAD) == 2
    assert [await state(pool, job_id) for job_id in ("delayed:0000", "of u")] == ["delayed", "ready"]


async def test_jobs_that_moved_between_the_look_and_the_deletion_stay(
    redis: Redis, pool: Pool, clock: HeldClock
) -> None:
    """Popped, finished, or added again with another topic: the script looks at each once more."""
    await fill(pool, clock, 1)
    await add(pool, "of u", "u", delay_ms=FAR_MS)
    named = [*ids(1), "of u", "nobody"]
    arguments: dict[str, Any] = {"now": clock.now(), "topic": "t", "begun": clock.now_us // 1000}
    assert await pool.call("purge", 0, named, state=int(State.DELAYED), **arguments) == 1
    assert [await state(pool, job_id) for job_id in named[:-1]] == ["deleted", "ready", "reserved", "dead", "delayed"]
    await check_books(redis, pool)


async def test_a_record_that_cannot_be_read_is_no_obstacle(redis: Redis, pool: Pool, clock: HeldClock) -> None:
    await fill(pool, clock, 2)
    for word in ("delayed", "ready", "reserved", "dead"):
        await redis.read("SET", pool.keys[0].job(f"{word}:0000"), "from another program")
    assert await purge(pool) == 4


async def test_a_purge_of_a_topic_that_nobody_used_does_nothing(redis: Redis, pool: Pool) -> None:
    before = await snapshot(redis)
    assert await purge(pool) == 0
    assert await snapshot(redis) == before


async def it_is_later(pool: Pool, ms: int) -> bool:
    return await pool.now_ms() > ms


@pytest.mark.parametrize("of", [None, State.DELAYED, State.READY])
async def test_who_purges_while_jobs_come_and_go_is_done_one_day(
    redis: Redis, live_pool: Pool, of: State | None
) -> None:
    """The jobs that exist, whatever an undone pop does to their order, and none that come later."""
    pool = live_pool
    await pool.add([NewJob(f"old{n}", "t", b"", delay_ms=n % 2 * FAR_MS) for n in range(6_000)])
    made = await pool.now_ms()
    await until(lambda: it_is_later(pool, made))
    purging = asyncio.create_task(Walk(pool).purge("t", of, seconds=60))
    n = 0
    while not purging.done():
        n += 1
        await pool.add([NewJob(f"new{n}", "t", b"", delay_ms=n % 2 * FAR_MS)])
        await pool.unpop(await pop(pool, count=1))
    # One was reserved just then, and a few were added in the millisecond in which it began.
    assert -1 <= (await purging).count - (3_000 if of else 6_000) <= 4 < n
    left = [job_id for job_id in await peeked_ids(pool, of, count=1_000) if job_id.startswith("old")]
    assert len(left) <= 1
    await check_books(redis, pool)


async def test_a_purge_deletes_a_delayed_job_that_was_added_in_its_millisecond(pool: Pool, clock: HeldClock) -> None:
    clock.now_us += 400
    await pool.add([NewJob("a", "t", b"1", delay_ms=1000)])
    assert (await Walk(pool).purge("t")).count == 1
