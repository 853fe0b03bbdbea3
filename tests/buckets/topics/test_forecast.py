"""buckets.topics.figures: how many delayed jobs fall due when, exactly."""

from __future__ import annotations

from collections import Counter

import pytest

from buckets.clock import HeldClock
from buckets.pool.pool import Pool
from buckets.redis.client import Redis
from buckets.topics import figures
from buckets.topics.figures import read_forecast
from buckets.topics.topics import RANGES, Bin, Topics
from tests.buckets.jobs import add, delete, pop_one
from tests.kit.waiting import tick_all

MINUTE = 60_000
HOUR = 60 * MINUTE
DAY = 24 * HOUR


def minute(at: int) -> Bin:
    return Bin(at // MINUTE * MINUTE, MINUTE)


def hour(at: int) -> Bin:
    return Bin(at // HOUR * HOUR, HOUR)


async def test_jobs_are_counted_by_the_minute_and_those_added_a_day_ahead_by_the_hour(pool: Pool) -> None:
    now = await pool.now_ms()
    for n, ahead in enumerate((5 * MINUTE, 5 * MINUTE, 2 * HOUR, 30 * HOUR)):
        await add(pool, str(n), delay_ms=ahead)
    found = await read_forecast(Topics(pool), "t", now + 2 * DAY)
    assert found.bins == {
        minute(now + 5 * MINUTE + 1): 2,
        minute(now + 2 * HOUR + 1): 1,
        hour(now + 30 * HOUR + 1): 1,
    }
    assert (found.later, found.topics, found.left_out) == (0, 1, 0)


async def test_jobs_due_after_the_end_are_a_number(pool: Pool) -> None:
    now = await pool.now_ms()
    await add(pool, "soon", delay_ms=MINUTE)
    await add(pool, "late", delay_ms=5 * HOUR)
    found = await read_forecast(Topics(pool), "t", now + HOUR)
    assert (found.bins.total(), found.later) == (1, 1)


async def test_a_job_in_back_off_counts_and_leases_and_ready_ones_do_not(pool: Pool, clock: HeldClock) -> None:
    for name in ("released", "reserved", "ready"):
        await add(pool, name)
    job = await pop_one(pool)
    assert job.id == "released"
    await pool.release(job.id, job.lease, delay_ms=3 * MINUTE)
    await pop_one(pool)
    now = await pool.now_ms()
    assert (await read_forecast(Topics(pool), "t", now + HOUR)).bins == {minute(now + 3 * MINUTE + 1): 1}
    clock.advance(4 * MINUTE)
    await tick_all(pool)
    assert (await read_forecast(Topics(pool), "t", now + HOUR)).bins.total() == 0


async def test_a_deleted_job_is_no_longer_in_it(pool: Pool) -> None:
    await add(pool, "a", delay_ms=MINUTE)
    await delete(pool, "a")
    assert (await read_forecast(Topics(pool), "t", await pool.now_ms() + HOUR)).bins.total() == 0


async def test_without_a_topic_those_of_all_shards_within_are_added_up(redis: Redis, clock: HeldClock) -> None:
    pool = await Pool.open(redis, "many", shards=3, clock=clock)
    for n in range(30):
        await add(pool, str(n), f"t{n % 3}", delay_ms=MINUTE)
    end = await pool.now_ms() + HOUR
    found = await read_forecast(Topics(pool), None, end)
    assert (found.bins.total(), found.topics, found.left_out) == (30, 3, 0)
    within = await read_forecast(Topics(pool), None, end, "t0 t2")
    assert (within.bins.total(), within.topics, within.left_out) == (20, 2, 0)


async def test_topics_beyond_the_most_are_left_out_the_least_recently_used_first(
    pool: Pool, clock: HeldClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(figures, "MOST_TOPICS", 2)
    for n, topic in enumerate(("old", "new", "newer")):
        await add(pool, topic, topic, delay_ms=HOUR)
        clock.advance(20_000 * (n + 1))
    found = await read_forecast(Topics(pool), None, await pool.now_ms() + DAY)
    assert (found.bins.total(), found.topics, found.left_out) == (2, 2, 1)


@pytest.mark.parametrize("overdue", [0, 30 * MINUTE, 3 * HOUR])
async def test_bins_read_by_their_names_say_the_same_as_all_bins(
    redis: Redis, clock: HeldClock, monkeypatch: pytest.MonkeyPatch, overdue: int
) -> None:
    pool = await Pool.open(redis, "many", shards=3, clock=clock)
    for n in range(200):  # those of more than a day are known to the hour
        await add(pool, str(n), f"t{n % 3}", delay_ms=26 * HOUR + overdue + (n - 20) * MINUTE - overdue * (n % 2))
    clock.advance(26 * HOUR + overdue)  # no timer runs: some are overdue
    topics, now = Topics(pool), await pool.now_ms()
    for end in (now + MINUTE, now + HOUR, now + 2 * HOUR):
        monkeypatch.setattr(figures, "_NAMED", 0)
        found = await read_forecast(topics, None, end), await read_forecast(topics, "t1", end)
        monkeypatch.setattr(figures, "_NAMED", 300)
        assert bool(await figures._named(topics, end)) == (overdue < HOUR)
        for small in (0, 512):
            monkeypatch.setattr(figures, "_SMALL", small)
            assert found == (await read_forecast(topics, None, end), await read_forecast(topics, "t1", end))
        assert found[0].bins.total() > 0 and found[0].bins.total() + found[0].later == 200


async def test_a_histogram_that_another_program_spoilt_counts_as_empty(redis: Redis, pool: Pool) -> None:
    await redis.read("SET", pool.keys[0].due("t"), "a string")
    assert (await read_forecast(Topics(pool), "t", await pool.now_ms() + HOUR)).bins.total() == 0


async def test_its_bins_say_the_same_as_the_ranges_of_stats(pool: Pool, clock: HeldClock) -> None:
    """A bin counts in the range in which it begins, also where the range ends within its hour."""
    for end_s in [end for _, end in RANGES if end]:
        for number, off_ms in enumerate((-7 * MINUTE // 10, -1, 0, MINUTE, 61 * MINUTE)):
            await add(pool, f"{end_s}:{number}", delay_ms=end_s * 1000 + off_ms)
    for later_ms in (0, 90_000, 20 * HOUR):
        clock.advance(later_ms)
        await tick_all(pool)
        now, topics = await pool.now_ms(), Topics(pool)
        found = await read_forecast(topics, "t", now + 31 * DAY)
        judged: Counter[str] = Counter(over_30d=found.later)
        for each, jobs in found.bins.items():
            judged[next(name for name, end in RANGES if end is None or each.begin - now < end * 1000)] += jobs
        assert {name: judged[name] for name, _ in RANGES} == (await topics.stats("t")).due
        assert judged.total() == (await topics.counts("t"))["delayed"] > 0
