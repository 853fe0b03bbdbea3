"""buckets.pool.pool: index entries that contradict the record, and shards whose trouble does not affect others."""

from __future__ import annotations

import pytest

from buckets.clock import HeldClock
from buckets.errors import JobQueueError
from buckets.job import NewJob
from buckets.pool.codec import Added
from buckets.pool.pool import Pool
from buckets.redis.client import Redis
from tests.buckets.books import check_books
from tests.buckets.jobs import add, delete, get, pop, pop_one, popped_ids, state
from tests.kit.waiting import tick_all


async def lists(redis: Redis, topic: str) -> list[bytes]:
    found: list[bytes] = await redis.read("KEYS", f"*:r:?:{topic}")
    return sorted(found)


async def test_stale_entries_before_a_live_job_are_skipped_in_one_pop(redis: Redis, pool: Pool) -> None:
    await pool.add([NewJob(f"old{n}", "t", b"") for n in range(1_800)])
    await add(pool, "live")
    await pool.delete([f"old{n}" for n in range(1_800)])
    assert await popped_ids(pool, count=1) == ["live"]
    await check_books(redis, pool)


async def test_one_script_looks_at_a_bounded_number_of_entries(redis: Redis, pool: Pool) -> None:
    """200,000 stale entries at once would block Redis for 0.2 s."""
    await pool.add([NewJob(f"old{n}", "t", b"") for n in range(1_800)])
    await add(pool, "live")
    await pool.delete([f"old{n}" for n in range(1_800)])
    await redis.read("CONFIG", "RESETSTAT")
    await popped_ids(pool, count=1)
    said = (await redis.read("INFO", "commandstats")).decode()
    assert "cmdstat_evalsha:calls=4," in said


async def test_the_lists_of_a_topic_are_dropped_when_nothing_is_ready(redis: Redis, pool: Pool) -> None:
    await pool.add([NewJob(f"{n}", "t", b"", priority=n % 10) for n in range(100)])
    await add(pool, "other", "u")
    assert len(await lists(redis, "t")) == 10
    await pool.delete([f"{n}" for n in range(1, 100)])
    assert len(await lists(redis, "t")) == 10
    await delete(pool, "0")
    assert await lists(redis, "t") == []
    assert len(await lists(redis, "u")) == 1


async def test_a_pop_of_the_last_job_drops_the_lists_with_all_that_is_stale(redis: Redis, pool: Pool) -> None:
    await add(pool, "first", priority=9)
    await pool.add([NewJob(f"{n}", "t", b"") for n in range(10)])
    await pool.delete([f"{n}" for n in range(10)])
    assert len(await lists(redis, "t")) == 2
    assert await popped_ids(pool, count=1) == ["first"]
    assert await lists(redis, "t") == []


@pytest.mark.parametrize("retention_ms", [60_000, 0])
async def test_delete_then_add_with_a_delay_is_never_early(
    redis: Redis, pool: Pool, clock: HeldClock, retention_ms: int
) -> None:
    await add(pool, "keeper")  # keeps the lists alive, and with them the stale entry
    await add(pool, "a", retention_ms=retention_ms)
    await delete(pool, "a")
    clock.advance(1)
    await add(pool, "a", delay_ms=10_000, if_exists="replace")
    assert await popped_ids(pool) == ["keeper"]
    clock.advance(9_999)
    await tick_all(pool)
    assert await popped_ids(pool) == []
    clock.advance(1)
    await tick_all(pool)
    assert await popped_ids(pool) == ["a"]


@pytest.mark.parametrize("retention_ms", [60_000, 0])
async def test_delete_then_add_does_not_stand_at_the_old_place(
    redis: Redis, pool: Pool, clock: HeldClock, retention_ms: int
) -> None:
    for job_id in "abc":
        await add(pool, job_id, retention_ms=retention_ms)
    await delete(pool, "a")
    clock.advance(1)
    await add(pool, "a", if_exists="replace")
    assert await popped_ids(pool) == ["b", "c", "a"]
    await check_books(redis, pool)


async def test_the_old_deadline_of_a_deleted_job_does_not_move_the_new_one(pool: Pool, clock: HeldClock) -> None:
    await add(pool, "a", ttr_ms=1_000)
    await pop_one(pool)
    await delete(pool, "a")
    await add(pool, "a", delay_ms=60_000, if_exists="replace")
    clock.advance(30_000)
    assert await tick_all(pool) == 0


async def test_an_earlier_priority_of_a_job_is_stale(redis: Redis, pool: Pool) -> None:
    await add(pool, "a", priority=9)
    await add(pool, "b", priority=5)
    await add(pool, "a", priority=1, if_exists="replace")
    assert await popped_ids(pool) == ["b", "a"]
    await check_books(redis, pool)


async def test_a_job_replaced_over_and_over_is_handed_out_once(redis: Redis, pool: Pool) -> None:
    await add(pool, "keeper")
    for n in range(50):
        await add(pool, "a", body=str(n).encode(), if_exists="replace")
    assert [job.body for job in await pop(pool, count=99)] == [b'"body"', b"49"]
    await check_books(redis, pool)


async def test_a_ready_list_with_strangers_in_it_is_still_popped(redis: Redis, pool: Pool) -> None:
    await add(pool, "a")
    await redis.read("LPUSH", pool.keys[0].ready(4, "t"), "", "no number", "1:", ":a", "1:nobody", "99:a")
    await add(pool, "b")
    assert await popped_ids(pool) == ["a", "b"]


async def test_an_entry_is_a_decimal_number_and_an_id_and_nothing_else_stands_for_a_job(
    redis: Redis, pool: Pool
) -> None:
    await add(pool, "a")
    keys = pool.keys[0]
    number = int((await redis.read("LPOP", keys.ready(4, "t"))).partition(b":")[0])
    await redis.read("SET", keys.job(""), "of another program")
    await redis.read("RPUSH", keys.ready(4, "t"), f"{number:#x}:a", f" {number}:a", f"{number}.0:a", "5:", ":a", "a")
    assert await popped_ids(pool) == []
    assert await redis.read("GET", keys.job("")) == b"of another program"


async def test_the_same_entry_twice_is_one_delivery(redis: Redis, pool: Pool) -> None:
    await add(pool, "a")
    number = (await get(pool, "a")).number
    await redis.read("RPUSH", pool.keys[0].ready(4, "t"), f"{number}:a", f"{number}:a")
    assert await popped_ids(pool) == ["a"]
    await check_books(redis, pool)


async def test_jobs_of_several_shards_are_all_popped_and_all_come_back(redis: Redis, clock: HeldClock) -> None:
    pool = await Pool.open(redis, "many", shards=3, buckets=2, clock=clock)
    ids = {f"order:{n}" for n in range(60)}
    results = await pool.add([NewJob(job_id, "t", b"", delay_ms=5) for job_id in ids])
    assert all(isinstance(result, Added) for result in results)
    clock.advance(5)
    assert await tick_all(pool) == 60
    popped = await pop(pool, count=60)
    assert {job.id for job in popped} == ids
    await pool.unpop(popped[:30])
    assert {job.id for job in await pop(pool, count=60)} == {job.id for job in popped[:30]}
    assert await pool.finish([(job_id, None) for job_id in sorted(ids)]) == ["finished"] * 60
    await check_books(redis, pool)


async def test_pops_begin_with_another_shard_each_time(redis: Redis, clock: HeldClock) -> None:
    """Otherwise the first shard's jobs would always go first."""
    pool = await Pool.open(redis, "many", shards=2, clock=clock)
    await pool.add([NewJob(f"{n}", "t", b"") for n in range(40)])
    ids = [(await pop_one(pool)).id for _ in range(8)]
    shards = [await redis.read("EXISTS", pool.keys[0].job(job_id)) for job_id in ids]
    assert sorted(shards) == [0] * 4 + [1] * 4


async def test_a_shard_that_fails_costs_no_job_of_another(redis: Redis, clock: HeldClock) -> None:
    pool = await Pool.open(redis, "many", shards=2, clock=clock)
    await pool.add([NewJob(f"{n}", "t", b"") for n in range(10)])
    await redis.read("DEL", pool.keys[1].ready(4, "t"))
    await redis.read("SET", pool.keys[1].ready(4, "t"), "broken")
    good = [f"{n}" for n in range(10) if await redis.read("EXISTS", pool.keys[0].job(f"{n}"))]
    popped: list[str] = []
    for _ in range(2):  # one starts at the broken shard, one at the good one
        try:
            popped += await popped_ids(pool, count=10)
        except JobQueueError as error:
            assert "WRONGTYPE" in str(error)
    assert popped == good
    assert [await state(pool, job_id) for job_id in good] == ["reserved"] * len(good)


@pytest.mark.parametrize("family", ["r:4:bad", "c:bad", "h:bad", "d:bad", "b:0", "t"])
async def test_an_index_key_of_another_program_is_set_aside_and_blocks_no_topic(
    redis: Redis, pool: Pool, clock: HeldClock, family: str
) -> None:
    """It shares its buckets with every topic; a page that failed on it would stop all of them."""
    await add(pool, "a", "bad", delay_ms=1_000, tries=1)
    await add(pool, "b", "good", delay_ms=1_000)
    key = pool.keys[0].tag + family
    await redis.read("SET", key, "not ours")
    clock.advance(1_000)
    await tick_all(pool)
    if family != "b:0":
        assert await popped_ids(pool, "good") == ["b"]
        assert await popped_ids(pool, "bad") == ["a"]
        clock.advance(60_000)
        await tick_all(pool)
        assert await state(pool, "a") == "dead"
    await add(pool, "c", "good")
    assert await popped_ids(pool, "good")
    aside = await redis.read("HKEYS", pool.keys[0].aside)
    assert aside in ([], [key.encode()])
    assert bool(aside) == ((await redis.read("TYPE", key)) != b"string")
