"""buckets.topics.topics, pause.lua, resume.lua: pauses, and the pops that wait for their end."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator

import pytest

from buckets.clock import HeldClock
from buckets.job import NewJob, State
from buckets.pool.pool import Pool
from buckets.redis.client import Redis
from buckets.topics.topics import Topics, TopicStatus
from buckets.waiting.waiting import Waiting
from tests.buckets.books import check_books
from tests.buckets.conftest import NewPool
from tests.buckets.jobs import add, delete, finish, get, kick, pop, popped_ids, state
from tests.buckets.topics.walks import listed, peeked_ids
from tests.buckets.waiting.parked import hearing, waiting_on
from tests.kit.waiting import PATIENCE_S, tick_all, until

HOUR = 3_600_000


@pytest.fixture
def topics(pool: Pool) -> Topics:
    return Topics(pool)


async def test_pops_of_a_paused_topic_find_nothing_until_it_is_resumed(
    redis: Redis, pool: Pool, topics: Topics, clock: HeldClock
) -> None:
    await add(pool, "a")
    assert await topics.pause("t") == 0
    clock.advance(1_000 * HOUR)
    popped = await pool.pop(["t"])
    assert (popped.jobs, popped.left, popped.opens_us) == ([], 0, None)
    assert await topics.resume("t")
    assert await popped_ids(pool) == ["a"]
    assert not await topics.resume("t")
    await check_books(redis, pool)


async def test_a_pause_for_a_time_ends_by_itself_and_not_a_microsecond_early(
    pool: Pool, topics: Topics, clock: HeldClock
) -> None:
    await add(pool, "a")
    clock.now_us += 1  # fractions of a millisecond are rounded up
    assert await topics.pause("t", 60_000) == clock.now_us // 1000 + 60_001
    for ahead_us, step_us in ((60_000_999, 60_000_000), (999, 998), (1, 1)):
        popped = await pool.pop(["t"])
        assert (popped.jobs, popped.opens_us) == ([], ahead_us)
        clock.now_us += step_us
    popped = await pool.pop(["t"])
    assert ([job.id for job in popped.jobs], popped.opens_us) == (["a"], None)


async def test_an_empty_pop_asks_why_where_a_topic_is_paused_or_not_known(
    pool: Pool, topics: Topics, clock: HeldClock
) -> None:
    assert (await pool.pop(["none"])).ask_why
    await add(pool, "a")
    assert not (await pool.pop(["t"])).ask_why
    assert not (await pool.pop(["none", "t"])).ask_why  # nothing but reading the topics would tell more
    await pool.add([NewJob("b", "later", b"", 1000)])
    assert not (await pool.pop(["later"])).ask_why  # no job of it was ever ready
    await topics.pause("t", 60_000)
    await topics.pause("u")
    for order in (["t"], ["u"], ["t", "u"], ["u", "t"]):
        popped = await pool.pop(order)
        assert (popped.ask_why, popped.opens_us) == (True, 60_000_000 if "t" in order else None)
    now = clock.now_us // 1000
    assert await topics.status(["none", "u", "t"]) == TopicStatus(True, {"u": 0, "t": now + 60_000})
    assert await topics.status(["none"]) == TopicStatus(False, {})
    clock.advance(60_000)
    await topics.resume("u")
    assert await topics.status(["u", "t"]) == TopicStatus(True, {})


async def test_a_topic_is_known_whichever_shard_has_it(redis: Redis) -> None:
    many = await Pool.open(redis, shards=4)
    topics = Topics(many)
    await many.add([NewJob(f"j{number}", "t", b"") for number in range(40)])
    assert len(await pop(many, count=100)) == 40
    assert await topics.know("t") and await topics.know("none", "t")
    assert not await topics.know("none")
    assert (await many.pop(["t"])).ask_why  # on many shards a pop may ask none for a topic
    await many.close()


async def test_redis_removes_a_pause_that_is_over(redis: Redis, live_pool: Pool) -> None:
    topics = Topics(live_pool)
    await topics.pause("t", 60_000)
    assert 59_000 < await redis.read("PTTL", "{jq:0}:p:t") <= 60_000
    await topics.pause("t")
    assert await redis.read("PTTL", "{jq:0}:p:t") == -1
    await topics.pause("t", 1)
    await until(lambda: gone(redis, "{jq:0}:p:t"))


async def test_a_pause_does_not_expire_by_redis_while_a_test_holds_the_clock(
    redis: Redis, topics: Topics, clock: HeldClock
) -> None:
    await topics.pause("t", 1)
    assert await redis.read("PTTL", "{jq:0}:p:t") > 60_000
    assert await topics.resume("t")
    await topics.pause("t", 1)
    clock.advance(2)
    assert not await topics.resume("t")


async def gone(redis: Redis, key: str) -> bool:
    return not await redis.read("EXISTS", key)


async def test_the_last_pause_holds(pool: Pool, topics: Topics, clock: HeldClock) -> None:
    await add(pool, "a")
    await topics.pause("t", 50_000)
    await topics.pause("t", 90_000)
    clock.advance(89_999)
    assert await popped_ids(pool) == []
    await topics.pause("t", 60_000)
    await topics.pause("t")
    clock.advance(60_000)
    assert await popped_ids(pool) == []
    await topics.pause("t", 60_000)
    clock.advance(60_000)
    assert await popped_ids(pool) == ["a"]


async def test_pops_of_several_topics_pass_over_the_paused_one(
    redis: Redis, pool: Pool, topics: Topics, clock: HeldClock
) -> None:
    for n, topic in enumerate("tuv"):
        await pool.add([NewJob(f"{topic}{m}", topic, b"", priority=n) for m in range(2)])
    await topics.pause("t", 70_000)
    await topics.pause("v", 60_000)
    popped = await pool.pop(["t", "u", "v"], 9)
    assert [job.id for job in popped.jobs] == ["u0", "u1"]
    assert (popped.left, popped.opens_us) == (0, 60_000_000)
    assert (await pool.pop(["t", "u"], 9)).opens_us == 70_000_000
    assert (await pool.pop(["u"], 9)).opens_us is None
    await topics.pause("w")
    for order in (["t", "v", "w"], ["w", "v", "t"]):
        assert (await pool.pop(order)).opens_us == 60_000_000
    await topics.resume("v")
    assert await popped_ids(pool, "t", "u", "v") == ["v0", "v1"]
    await check_books(redis, pool)


async def test_what_a_pop_leaves_is_told_of_the_last_topic_that_is_not_paused(pool: Pool, topics: Topics) -> None:
    for topic in "tu":
        await pool.add([NewJob(f"{topic}{n}", topic, b"") for n in range(5)])
    await topics.pause("u")
    assert (await pool.pop(["t", "u"], 2)).left == 3


async def test_all_but_pops_goes_on_during_a_pause(redis: Redis, pool: Pool, topics: Topics, clock: HeldClock) -> None:
    await add(pool, "late", ttr_ms=5_000)
    await add(pool, "done")
    jobs = {job.id: job for job in await pop(pool, count=2)}
    await topics.pause("t")
    await add(pool, "soon", delay_ms=1_000)
    await add(pool, "over", ttl_ms=1_000)
    await add(pool, "cancelled")
    assert await finish(pool, "done", jobs["done"].lease) == "finished"
    assert await delete(pool, "cancelled") == "ready"
    clock.advance(1_000)
    await tick_all(pool)
    assert [await state(pool, job_id) for job_id in ("soon", "over", "late")] == ["ready", "dead", "reserved"]
    await kick(pool, "over")
    clock.advance(4_000)
    await tick_all(pool)
    assert await state(pool, "late") == "ready"
    assert await popped_ids(pool) == []
    assert sorted(await peeked_ids(pool, State.READY)) == ["late", "soon"]
    await topics.resume("t")
    assert await popped_ids(pool) == ["soon", "late"]
    await check_books(redis, pool)


async def test_a_pause_that_holds_no_time_is_none(subtests: pytest.Subtests, redis: Redis, new_pool: NewPool) -> None:
    cases: list[bytes] = [
        b"",
        b"soon",
        b"-5",
        b"nan",
        b"inf",
        b"-inf",
        b"1e99",
        b"0x7fffffffffff",
        b"9" * 30,
        b" 0",
        b"\xff",
    ]
    for junk in cases:
        with subtests.test(junk=junk):
            pool = await new_pool()
            await add(pool, "a")
            await redis.read("SET", pool.keys[0].paused("t"), junk)
            assert [topic.paused_until for topic in await listed(pool)] == [None]
            popped = await pool.pop(["t"])
            assert ([job.id for job in popped.jobs], popped.opens_us) == (["a"], None)


async def test_a_pause_of_another_type_is_none_and_a_new_one_takes_its_place(
    redis: Redis, pool: Pool, topics: Topics
) -> None:
    await add(pool, "a")
    await add(pool, "b", "u")
    await redis.read("RPUSH", pool.keys[0].paused("t"), "not ours")
    assert {topic.name: topic.paused_until for topic in await listed(pool)} == {"t": None, "u": None}
    await topics.pause("t")
    assert await popped_ids(pool) == []
    await redis.read("DEL", pool.keys[0].paused("t"))
    await redis.read("RPUSH", pool.keys[0].paused("t"), "not ours")
    assert await popped_ids(pool) == ["a"]
    await topics.resume("t")


async def test_a_pause_holds_in_all_shards(redis: Redis, clock: HeldClock) -> None:
    pool = await Pool.open(redis, "many", shards=3, clock=clock)
    await pool.add([NewJob(f"{n}", "t", b"") for n in range(30)])
    assert await Topics(pool).pause("t", 60_000) == clock.now_us // 1000 + 60_000
    popped = await pool.pop(["t"], 30)
    assert (popped.jobs, popped.opens_us) == ([], 60_000_000)
    assert await Topics(pool).resume("t")
    assert len(await popped_ids(pool)) == 30


@pytest.fixture
async def waiting(live_pool: Pool) -> AsyncIterator[Waiting]:
    """Waiting pops of a process that hears all shards, on Redis's own clock."""
    async with hearing(live_pool) as waiting:
        yield waiting


def parked(waiting: Waiting, *topics: str, wait_s: float = 60.0) -> asyncio.Task[list[str]]:
    """A waiting pop; returns the ids that it gets."""

    async def wait() -> list[str]:
        async with asyncio.timeout(PATIENCE_S):
            return [job.id for job in (await waiting.pop(topics or ("t",), 1, wait_s)).jobs]

    return asyncio.create_task(wait())


async def parks(waiting: Waiting, pool: Pool, number: int) -> None:
    """Wait until this many are parked and have looked."""
    await until(lambda: waiting.parked == number)
    await Topics(pool).stats()  # answered after their second look


async def test_a_waiting_pop_gets_its_job_when_the_topic_is_resumed(waiting: Waiting, live_pool: Pool) -> None:
    await Topics(live_pool).pause("t")
    await live_pool.add([NewJob(f"{n}", "t", b"") for n in range(3)])
    popping = [parked(waiting) for _ in range(3)]
    await parks(waiting, live_pool, 3)
    await Topics(live_pool).resume("t")
    assert sorted([job_id for each in popping for job_id in await each]) == ["0", "1", "2"]


async def test_a_resume_wakes_as_many_as_there_are_ready_jobs(live_pool: Pool) -> None:
    """No pop if there is none."""
    heard: list[str] = []
    connected = asyncio.Event()
    listening = asyncio.create_task(live_pool.redis.listen(live_pool.keys[0].bell, heard.append, connected.set))
    await connected.wait()
    assert not await Topics(live_pool).resume("t")
    await live_pool.add([NewJob(f"{n}", "t", b"") for n in range(3)])
    await popped_ids(live_pool, count=1)
    assert not await Topics(live_pool).resume("t")
    await add(live_pool, "last", "last")
    await until(lambda: "ready 1 last" in heard)
    assert [message for message in heard if message.startswith("ready")] == ["ready 3 t", "ready 2 t", "ready 1 last"]
    listening.cancel()
    await asyncio.gather(listening, return_exceptions=True)


@pytest.mark.parametrize("pause_first", [True, False])
async def test_a_waiting_pop_gets_its_job_when_the_pause_ends_by_itself_and_not_before(
    waiting: Waiting, live_pool: Pool, pause_first: bool
) -> None:
    if pause_first:
        opens = await Topics(live_pool).pause("t", 150)
    popping = parked(waiting)
    await parks(waiting, live_pool, 1)
    if not pause_first:
        opens = await Topics(live_pool).pause("t", 150)
    await add(live_pool, "a")
    assert await popping == ["a"]
    job = await get(live_pool, "a")
    assert opens <= job.lease / 1000 < opens + 1_000


async def test_a_pop_of_two_topics_waits_for_the_pause_that_ends_first(waiting: Waiting, live_pool: Pool) -> None:
    await add(live_pool, "a", "t")
    await add(live_pool, "b", "u")
    await Topics(live_pool).pause("t", 60_000)
    opens = await Topics(live_pool).pause("u", 100)
    assert await parked(waiting, "t", "u") == ["b"]
    assert opens <= (await get(live_pool, "b")).lease / 1000 < opens + 1_000


async def test_a_pop_whose_wait_ends_during_the_pause_is_empty(waiting: Waiting, live_pool: Pool) -> None:
    await add(live_pool, "a")
    await Topics(live_pool).pause("t", 60_000)
    assert await parked(waiting, wait_s=0.05) == []


async def test_who_leaves_during_a_pause_leaves_the_job_to_those_who_wait_on(waiting: Waiting, live_pool: Pool) -> None:
    """The bell rang only for the first, which saw the pause and left: the second must learn when the pause ends."""
    first = parked(waiting, wait_s=0.1)
    await parks(waiting, live_pool, 1)
    second = parked(waiting)
    await parks(waiting, live_pool, 2)
    opens = await Topics(live_pool).pause("t", 400)
    await add(live_pool, "a")
    assert await first == []
    assert await second == ["a"]
    assert opens <= (await get(live_pool, "a")).lease / 1000 < opens + 1_000


@pytest.mark.parametrize("before", [None, 60_000])
async def test_who_waits_for_a_pause_hears_of_one_that_ends_earlier(
    waiting: Waiting, live_pool: Pool, before: int | None
) -> None:
    await Topics(live_pool).pause("t", before)
    await add(live_pool, "a")
    popping = parked(waiting)
    await parks(waiting, live_pool, 1)
    opens = await Topics(live_pool).pause("t", 100)
    assert await popping == ["a"]
    assert opens <= (await get(live_pool, "a")).lease / 1000 < opens + 1_000


async def test_the_end_of_a_pause_wakes_no_more_pops_than_there_are_jobs(redis: Redis, live_pool: Pool) -> None:
    """3,000 pops at that moment held up everything else for 0.5 s."""
    waiting = waiting_on(live_pool)
    running = asyncio.create_task(waiting.notifier.run())
    await waiting.notifier.connected.wait()
    await add(live_pool, "a")
    await add(live_pool, "b")
    await Topics(live_pool).pause("t", 4000)
    pops = [asyncio.create_task(waiting.pop(["t"], 1, PATIENCE_S)) for _ in range(100)]
    await until(lambda: waiting.parked == 100)
    await asyncio.sleep(0.1)  # each has looked once more
    await redis.read("CONFIG", "RESETSTAT")
    await until(lambda: sum(pop.done() for pop in pops) == 2)
    await asyncio.sleep(0.1)
    scripts = re.findall(rb"cmdstat_evalsha:calls=(\d+)", await redis.read("INFO", "commandstats"))
    assert int(scripts[0]) <= 6
    waiting.close()
    await asyncio.gather(*pops)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_an_empty_pop_of_many_shards_asks_for_its_topic_once(redis: Redis) -> None:
    many = await Pool.open(redis, shards=4)
    topics = Topics(many)
    await add(many, "a")
    assert await topics.status(["t"]) == TopicStatus(True, {})
    await topics.pause("t")
    await redis.read("CONFIG", "RESETSTAT")
    assert await topics.status(["t"]) == TopicStatus(True, {"t": 0})
    said = (await redis.read("INFO", "commandstats")).decode()
    assert "zmscore" not in said and "cmdstat_mget:calls=1," in said
    await many.close()
