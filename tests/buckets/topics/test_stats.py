"""buckets.pool.pool, stats.lua: the figures are exact."""

from __future__ import annotations

from buckets.clock import HeldClock
from buckets.job import NewJob
from buckets.pool.pool import Pool
from buckets.redis.client import Redis
from buckets.topics.topics import RANGES, Topics
from tests.buckets.books import check_books
from tests.buckets.jobs import add, delete, finish, pop, pop_one
from tests.kit.waiting import tick_all

MINUTE = 60_000
HOUR = 60 * MINUTE
DAY = 24 * HOUR


async def test_a_topic_that_nobody_used_has_zeros(pool: Pool) -> None:
    stats = await Topics(pool).stats("t")
    assert stats.counts == {"delayed": 0, "ready": 0, "reserved": 0, "dead": 0}
    assert stats.totals == {}
    assert stats.oldest_ready_ms is None
    assert stats.due == {name: 0 for name, _ in RANGES}


async def test_counts_by_state_and_totals_ever(redis: Redis, pool: Pool, clock: HeldClock) -> None:
    await pool.add([NewJob(f"r{n}", "t", b"", ttr_ms=1_000, tries=1) for n in range(6)])
    await pool.add([NewJob(f"d{n}", "t", b"", delay_ms=HOUR) for n in range(3)])
    popped = await pop(pool, count=4)
    await pool.finish([(job.id, job.lease) for job in popped[:2]])
    await delete(pool, "d0")
    await delete(pool, "r5")
    clock.advance(1_000)
    await tick_all(pool)
    await add(pool, "d1", if_exists="replace")
    await pop_one(pool)
    stats = await Topics(pool).stats("t")
    assert stats.counts == {"delayed": 1, "ready": 1, "reserved": 1, "dead": 2}
    expected = {"created": 9, "replaced": 1, "delivered": 5, "finished": 2, "deleted": 3, "died_tries": 2}
    assert stats.totals == expected
    await check_books(redis, pool)


async def test_without_a_topic_all_topics_of_all_shards_are_summed(redis: Redis, clock: HeldClock) -> None:
    pool = await Pool.open(redis, "many", shards=3, clock=clock)
    for n in range(30):
        await add(pool, str(n), f"t{n % 3}", delay_ms=n % 2 * HOUR)
    await pop(pool, "t0", "t1", "t2", count=4)
    stats = await Topics(pool).stats()
    assert stats.counts == {"delayed": 15, "ready": 11, "reserved": 4, "dead": 0}
    assert stats.totals == {"created": 30, "delivered": 4}
    assert sum(stats.due.values()) == 15
    assert (await Topics(pool).stats("t1")).totals["created"] == 10


async def test_the_age_of_the_oldest_ready_job_counts_from_when_it_became_ready(pool: Pool, clock: HeldClock) -> None:
    await add(pool, "a", delay_ms=5_000, priority=0)
    clock.advance(5_000)
    await tick_all(pool)
    clock.advance(2_000)
    await add(pool, "b", priority=9)
    clock.advance(1_500)
    assert (await Topics(pool).stats("t")).oldest_ready_ms == 3_500
    await delete(pool, "a")
    assert (await Topics(pool).stats("t")).oldest_ready_ms == 1_500
    assert (await Topics(pool).stats()).oldest_ready_ms == 1_500
    await pop_one(pool)
    assert (await Topics(pool).stats("t")).oldest_ready_ms is None


async def test_the_histogram_says_when_pending_jobs_fall_due(pool: Pool) -> None:
    delays = [1, 9 * MINUTE, 29 * MINUTE, 59 * MINUTE, 5 * HOUR, 23 * HOUR, 6 * DAY, 29 * DAY, 40 * DAY]
    for number, delay in enumerate(delays, start=1):
        await pool.add([NewJob(f"{delay}-{n}", "t", b"", delay_ms=delay) for n in range(number)])
    due = (await Topics(pool).stats("t")).due
    assert list(due.values()) == list(range(1, 10))
    assert list(due) == [name for name, _ in RANGES]


async def test_jobs_leave_the_histogram_with_every_way_out_of_delayed(
    redis: Redis, pool: Pool, clock: HeldClock
) -> None:
    for n, delay in enumerate((5 * MINUTE, 3 * DAY) * 4):
        await add(pool, str(n), delay_ms=delay, ttl_ms=10 * MINUTE if n < 2 else None)
    await delete(pool, "2")
    await delete(pool, "3")
    await add(pool, "4", if_exists="replace")
    await add(pool, "5", if_exists="replace", delay_ms=MINUTE)
    await check_books(redis, pool)
    clock.advance(HOUR)
    await tick_all(pool)
    assert sum((await Topics(pool).stats("t")).due.values()) == 2
    clock.advance(3 * DAY)
    await tick_all(pool)
    assert sum((await Topics(pool).stats("t")).due.values()) == 0
    assert await redis.read("EXISTS", pool.keys[0].due("t")) == 0
    await check_books(redis, pool)


async def test_a_late_finish_takes_a_delayed_job_out_of_the_histogram(
    redis: Redis, pool: Pool, clock: HeldClock
) -> None:
    await add(pool, "a", ttr_ms=1_000, backoff_ms=(2 * DAY,))
    await pop_one(pool)
    clock.advance(1_000)
    await tick_all(pool)
    assert (await Topics(pool).stats("t")).due["under_7d"] == 1
    await finish(pool, "a")
    assert sum((await Topics(pool).stats("t")).due.values()) == 0
    await check_books(redis, pool)


async def test_a_histogram_of_very_many_minutes_is_read_whole(pool: Pool) -> None:
    await pool.add([NewJob(str(n), "t", b"", delay_ms=n * MINUTE + 1) for n in range(1_400)])
    assert sum((await Topics(pool).stats("t")).due.values()) == 1_400


async def test_topics_are_listed_by_their_last_use(pool: Pool, clock: HeldClock) -> None:
    for topic in ("b", "a", "c", "b"):
        await add(pool, f"{topic}{clock.now_us}", topic)
        clock.advance(10_001)
    assert await Topics(pool).names(0) == ["a", "c", "b"]


async def test_the_figures_of_many_topics_are_those_that_stats_gives_of_each(redis: Redis, clock: HeldClock) -> None:
    pool = await Pool.open(redis, "many", shards=3, clock=clock)
    topics = [f"t{n}" for n in range(250)]
    await pool.add([NewJob(str(n), topics[n % 250], b"", delay_ms=n % 3 * 1_000) for n in range(1_000)])
    clock.advance(1_500)
    await tick_all(pool)
    await pop(pool, *topics[:20], count=50)
    clock.advance(777)
    figures = await Topics(pool).figures(str)
    assert figures.keys() == set(topics)
    for topic in topics:
        stats = await Topics(pool).stats(topic)
        assert {word: figures[topic].counts.get(word, 0) for word in stats.counts} == stats.counts
        assert figures[topic].totals == stats.totals
        assert figures[topic].oldest_ready_ms == stats.oldest_ready_ms


async def test_figures_of_topics_with_one_name_are_added_up_the_last_used_first(pool: Pool, clock: HeldClock) -> None:
    for topic in ("a", "b", "c"):
        await add(pool, topic, topic)
        clock.advance(20_000)
    asked: list[str] = []

    def name_of(topic: str) -> str:
        asked.append(topic)
        return "c" if topic == "c" else "other"

    figures = await Topics(pool).figures(name_of)
    assert asked == ["c", "b", "a"]
    assert (figures["other"].counts["ready"], figures["other"].totals["created"]) == (2, 2)
    assert (figures["other"].oldest_ready_ms, figures["c"].oldest_ready_ms) == (60_000, 20_000)


async def test_a_topic_whose_counts_another_program_spoilt_does_not_hide_the_others(pool: Pool, redis: Redis) -> None:
    for topic in ("a", "b", "c"):
        await add(pool, topic, topic)
    await redis.read("SET", pool.keys[0].counts("a"), "spoilt")
    await redis.read("HSET", pool.keys[0].counts("b"), "ready", "many")
    assert (await Topics(pool).figures(str)).keys() == {"c"}
