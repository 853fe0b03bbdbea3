"""buckets.topics, pause.lua, resume.lua, bound.lua, forget.lua: what is done with a whole topic."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator

import pytest

from buckets.bell import Bell
from buckets.clock import HeldClock
from buckets.job import LIVE, NewJob, State
from buckets.keys import shard_of
from buckets.pool import Pool
from buckets.redis import Redis
from buckets.topics import Bounds, Topic, Topics
from tests.buckets.books import check_books
from tests.buckets.jobs import add, delete, finish, get, kick, pop, pop_one, popped_ids, state
from tests.buckets.walks import fill, ids, peeked_ids, purge, snapshot
from tests.waiting import PATIENCE_S, tick_all, until

HOUR = 3_600_000
EMPTY = dict.fromkeys([state.word for state in LIVE], 0)


@pytest.fixture
def topics(pool: Pool) -> Topics:
    return Topics(pool)


async def listed(pool: Pool, pattern: str = "*") -> list[Topic]:
    """The topics of all pages."""
    found, place = list[Topic](), (0, 0)
    while True:
        some, *behind = await Topics(pool).page(pattern, *place)
        found += some
        place = (behind[0], behind[1])
        if not any(place):
            return found
        assert Topics(pool).has(*place)


async def names(pool: Pool, pattern: str = "*") -> list[str]:
    return sorted(topic.name for topic in await listed(pool, pattern))


# Pauses.


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
    clock.now_us += 1  # what is finer than a millisecond is rounded up
    assert await topics.pause("t", 60_000) == clock.now_us // 1000 + 60_001
    for ahead_us, step_us in ((60_000_999, 60_000_000), (999, 998), (1, 1)):
        popped = await pool.pop(["t"])
        assert (popped.jobs, popped.opens_us) == ([], ahead_us)
        clock.now_us += step_us
    popped = await pool.pop(["t"])
    assert ([job.id for job in popped.jobs], popped.opens_us) == (["a"], None)


async def test_redis_removes_a_pause_that_is_over(redis: Redis, topics: Topics) -> None:
    await topics.pause("t", 60_000)
    assert 59_000 < await redis.read("PTTL", "{jq:0}:p:t") <= 60_000
    await topics.pause("t")
    assert await redis.read("PTTL", "{jq:0}:p:t") == -1
    await topics.pause("t", 1)
    await until(lambda: gone(redis, "{jq:0}:p:t"))


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


@pytest.mark.parametrize(
    "junk", [b"", b"soon", b"-5", b"nan", b"inf", b"-inf", b"1e99", b"0x7fffffffffff", b"9" * 30, b" 0", b"\xff"]
)
async def test_a_pause_that_holds_no_time_is_none(redis: Redis, pool: Pool, topics: Topics, junk: bytes) -> None:
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
async def bell(live_pool: Pool) -> AsyncIterator[Bell]:
    """A bell that hears, on Redis's own clock."""
    bell = Bell(live_pool)
    hearing = asyncio.create_task(bell.run())
    await until(bell.connected.is_set)
    yield bell
    bell.close()
    hearing.cancel()
    await asyncio.gather(hearing, return_exceptions=True)


def parked(bell: Bell, *topics: str, wait_s: float = 60.0) -> asyncio.Task[list[str]]:
    """A pop that waits; the ids that it gets."""

    async def wait() -> list[str]:
        async with asyncio.timeout(PATIENCE_S):
            return [job.id for job in (await bell.pop(topics or ("t",), 1, wait_s)).jobs]

    return asyncio.create_task(wait())


async def parks(bell: Bell, pool: Pool, number: int) -> None:
    """So many are parked and have looked."""
    await until(lambda: bell.parked == number)
    await Topics(pool).stats()  # answered behind their second look


async def test_a_waiting_pop_gets_its_job_when_the_topic_is_resumed(bell: Bell, live_pool: Pool) -> None:
    await Topics(live_pool).pause("t")
    await live_pool.add([NewJob(f"{n}", "t", b"") for n in range(3)])
    waiting = [parked(bell) for _ in range(3)]
    await parks(bell, live_pool, 3)
    await Topics(live_pool).resume("t")
    assert sorted([job_id for each in waiting for job_id in await each]) == ["0", "1", "2"]


async def test_a_resume_wakes_as_many_as_there_are_ready_jobs(live_pool: Pool) -> None:
    """Nobody where there is none."""
    heard: list[str] = []
    told = asyncio.Event()
    listening = asyncio.create_task(live_pool.listen(lambda shard, message: heard.append(message), told.set))
    await told.wait()
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
    bell: Bell, live_pool: Pool, pause_first: bool
) -> None:
    if pause_first:
        opens = await Topics(live_pool).pause("t", 150)
    waiting = parked(bell)
    await parks(bell, live_pool, 1)
    if not pause_first:
        opens = await Topics(live_pool).pause("t", 150)
    await add(live_pool, "a")
    assert await waiting == ["a"]
    job = await get(live_pool, "a")
    assert opens <= job.lease / 1000 < opens + 1_000


async def test_a_pop_of_two_topics_waits_for_the_pause_that_ends_first(bell: Bell, live_pool: Pool) -> None:
    await add(live_pool, "a", "t")
    await add(live_pool, "b", "u")
    await Topics(live_pool).pause("t", 60_000)
    opens = await Topics(live_pool).pause("u", 100)
    assert await parked(bell, "t", "u") == ["b"]
    assert opens <= (await get(live_pool, "b")).lease / 1000 < opens + 1_000


async def test_a_pop_whose_wait_ends_during_the_pause_is_empty(bell: Bell, live_pool: Pool) -> None:
    await add(live_pool, "a")
    await Topics(live_pool).pause("t", 60_000)
    assert await parked(bell, wait_s=0.05) == []


async def test_who_leaves_during_a_pause_leaves_the_job_to_those_who_wait_on(bell: Bell, live_pool: Pool) -> None:
    """The bell rang for the first only, who saw the pause and went: the second must learn when it ends."""
    first = parked(bell, wait_s=0.1)
    await parks(bell, live_pool, 1)
    second = parked(bell)
    await parks(bell, live_pool, 2)
    opens = await Topics(live_pool).pause("t", 400)
    await add(live_pool, "a")
    assert await first == []
    assert await second == ["a"]
    assert opens <= (await get(live_pool, "a")).lease / 1000 < opens + 1_000


@pytest.mark.parametrize("before", [None, 60_000])
async def test_who_waits_for_a_pause_hears_of_one_that_ends_earlier(
    bell: Bell, live_pool: Pool, before: int | None
) -> None:
    await Topics(live_pool).pause("t", before)
    await add(live_pool, "a")
    waiting = parked(bell)
    await parks(bell, live_pool, 1)
    opens = await Topics(live_pool).pause("t", 100)
    assert await waiting == ["a"]
    assert opens <= (await get(live_pool, "a")).lease / 1000 < opens + 1_000


# Listing.


async def test_a_topic_is_listed_with_its_jobs_by_state_and_its_pause(
    redis: Redis, pool: Pool, topics: Topics, clock: HeldClock
) -> None:
    assert await topics.page() == ([], 0, 0)
    await fill(pool, clock, 3)
    await delete(pool, "dead:0000")
    await add(pool, "a", "u")
    await topics.pause("u")
    await topics.pause("v", 60_000)
    until_ms = clock.now_us // 1000 + 60_000
    full = {"delayed": 3, "ready": 3, "reserved": 3, "dead": 2}
    assert sorted(await listed(pool), key=lambda topic: topic.name) == [
        Topic("t", full, None),
        Topic("u", EMPTY | {"ready": 1}, 0),
        Topic("v", EMPTY, until_ms),
    ]
    clock.advance(59_999)
    assert [topic.paused_until for topic in await listed(pool, "v")] == [until_ms]
    clock.advance(1)
    assert [topic.paused_until for topic in await listed(pool, "v")] == [None]


async def test_a_pattern_chooses_topics_by_stars_and_question_marks(pool: Pool) -> None:
    for name in ("order-close", "order-open", "order", "mail:de", "mail:fr", "a.b", "a+b", "a#b"):
        await add(pool, name, name)
    assert await names(pool, "order*") == ["order", "order-close", "order-open"]
    assert await names(pool, "mail:??") == ["mail:de", "mail:fr"]
    assert await names(pool, "*e*") == ["mail:de", "order", "order-close", "order-open"]
    assert await names(pool, "a.b") == ["a.b"]
    assert await names(pool, "order?") == []


async def test_every_topic_is_listed_once_over_all_pages(redis: Redis, pool: Pool, topics: Topics) -> None:
    some = [f"topic-of-some-length:{n}" for n in range(777)]
    await pool.add([NewJob(name, name, b"") for name in some])
    page, *behind = await topics.page()
    assert len(page) < 300 and any(behind)
    assert Counter(await names(pool)) == Counter(some)
    assert await names(pool, "*:77?") == [f"topic-of-some-length:{n}" for n in range(770, 777)]


@pytest.mark.parametrize("number", [10, 400])
async def test_a_topic_of_several_shards_is_listed_once_with_its_sums(
    redis: Redis, clock: HeldClock, number: int
) -> None:
    pool = await Pool.open(redis, "many", shards=3, clock=clock)
    jobs = [NewJob(f"{topic}:{n}", f"t{topic}", b"") for topic in range(number) for n in range(4)]
    await pool.add(jobs)
    await pop(pool, "t0", count=2)
    found = {topic.name: topic.counts for topic in await listed(pool)}
    assert len(await listed(pool)) == len(found) == number
    assert found.pop("t0") == EMPTY | {"ready": 2, "reserved": 2}
    assert list(found.values()) == [EMPTY | {"ready": 4}] * (number - 1)


async def test_a_place_beyond_the_shards_is_known_as_none(topics: Topics) -> None:
    assert topics.has(0, 0) and topics.has(0, 2**64 - 1)
    assert not any(topics.has(*place) for place in ((1, 0), (-1, 0), (0, -1), (0, 2**64)))
    assert await topics.page("*", 0, 2**64 - 1) == ([], 0, 0)


# Bounds of dead letters.

FOR_EVER_MS = 10**12


async def die(pool: Pool, clock: HeldClock, number: int, topic: str = "t", first: int = 0) -> list[str]:
    """So many dead letters, a second apart."""
    names = [f"{topic}:{first + n:03}" for n in range(number)]
    for job_id in names:
        clock.advance(1_000)
        await add(pool, job_id, topic)
        await pop_one(pool, topic)
        await pool.bury(job_id)
    return names


async def bound(pool: Pool, topic: str = "t", age_ms: int = FOR_EVER_MS, most: int = 0) -> int:
    """How many were dealt with, over all shards."""

    def bounds_of(name: str) -> Bounds:
        return Bounds(age_ms, most) if name == topic else Bounds(FOR_EVER_MS)

    return sum([await Topics(pool).bound(shard, bounds_of) for shard in range(len(pool.keys))])


async def test_the_oldest_dead_letters_beyond_a_number_are_deleted(redis: Redis, pool: Pool, clock: HeldClock) -> None:
    dead = await die(pool, clock, 6)
    others = await die(pool, clock, 6, "u")
    assert await bound(pool, most=6) == 0
    assert await bound(pool, most=4) == 2
    assert await peeked_ids(pool, State.DEAD) == dead[2:]
    assert [await state(pool, job_id) for job_id in dead[:3]] == ["deleted", "deleted", "dead"]
    assert await peeked_ids(pool, State.DEAD, "u") == others
    stats = await Topics(pool).stats("t")
    assert (stats.counts["dead"], stats.totals["deleted"], stats.totals["died_buried"]) == (4, 2, 6)
    await check_books(redis, pool)
    assert await bound(pool, age_ms=0) == 4
    await check_books(redis, pool)


async def test_dead_letters_are_deleted_at_their_age_and_not_before(redis: Redis, pool: Pool, clock: HeldClock) -> None:
    dead = await die(pool, clock, 4)
    clock.advance(9_999 - 3_000)
    assert await bound(pool, age_ms=10_000) == 0
    clock.advance(1)
    assert await bound(pool, age_ms=10_000) == 1
    clock.advance(1_000)
    assert await bound(pool, age_ms=10_000, most=99) == 1
    assert await peeked_ids(pool, State.DEAD) == dead[2:]
    assert await bound(pool, age_ms=10_000, most=1) == 1
    assert await bound(pool, age_ms=0) == 1
    await check_books(redis, pool)


async def test_without_bounds_all_stay(pool: Pool, clock: HeldClock) -> None:
    await die(pool, clock, 3)
    clock.advance(1_000 * HOUR)
    assert await bound(pool) == 0
    assert len(await peeked_ids(pool, State.DEAD)) == 3


@pytest.mark.parametrize("bounds", [Bounds(FOR_EVER_MS, 30), Bounds(5_000), Bounds(5_000, 30)])
async def test_many_dead_letters_are_bounded_page_by_page(
    redis: Redis, pool: Pool, clock: HeldClock, bounds: Bounds
) -> None:
    await pool.add([NewJob(f"{n:03}", "t", b"", ttl_ms=1 + n // 200 * 5_000) for n in range(430)])
    for _ in range(3):
        clock.advance(4_999 if clock.now_us % 5_000_000 else 1)
        await tick_all(pool)
    clock.advance(5_002)
    await tick_all(pool)
    clock.advance(2_000)
    assert await bound(pool, "t", bounds.age_ms, bounds.most) == 400
    assert await peeked_ids(pool, State.DEAD) == [f"{n:03}" for n in range(400, 430)]
    await check_books(redis, pool)


async def test_the_number_is_shared_by_the_shards(redis: Redis, clock: HeldClock) -> None:
    pool = await Pool.open(redis, "many", shards=3, clock=clock)
    await pool.add([NewJob(f"{n}", "t", b"", ttl_ms=1) for n in range(300)])
    clock.advance(1)
    await tick_all(pool)
    await bound(pool, most=31)
    assert len(await peeked_ids(pool, State.DEAD)) == 33
    await check_books(redis, pool)


async def test_entries_that_the_pool_does_not_bear_out_are_dropped(redis: Redis, pool: Pool, clock: HeldClock) -> None:
    dead = await die(pool, clock, 3)
    await die(pool, clock, 1, "u")
    await add(pool, "alive", delay_ms=HOUR)
    await redis.read("ZADD", pool.keys[0].dead("t"), 1, "alive", 2, "u:000", 3, "nobody")
    assert await bound(pool, age_ms=HOUR) == 3
    assert await peeked_ids(pool, State.DEAD) == dead
    assert [await state(pool, job_id) for job_id in ("alive", "u:000")] == ["delayed", "dead"]
    await check_books(redis, pool)


# Forgetting.


async def test_a_topic_without_jobs_is_forgotten_with_all_its_keys(
    redis: Redis, pool: Pool, topics: Topics, clock: HeldClock
) -> None:
    """Stale entries of its ready lists too."""
    await fill(pool, clock, 3, retention_ms=0)
    await add(pool, "far", delay_ms=100 * HOUR, retention_ms=0)
    await purge(pool)
    await redis.read("RPUSH", pool.keys[0].ready(9, "t"), "5:stale")
    await redis.read("HSET", pool.keys[0].due("t"), "m5", 1)
    clock.advance(HOUR - 2)  # a millisecond of it is over already
    assert await topics.forget(0, HOUR) == 0
    clock.advance(1)
    assert await topics.forget(0, HOUR) == 1
    assert await redis.read("KEYS", "*") == [pool.keys[0].meta.encode()]
    assert await names(pool) == []


@pytest.mark.parametrize("kept", [*LIVE, None])
async def test_a_topic_with_a_job_or_a_pause_is_not_forgotten(
    redis: Redis, pool: Pool, topics: Topics, clock: HeldClock, kept: State | None
) -> None:
    await fill(pool, clock, 1)
    await pool.delete(ids(1, *(each for each in LIVE if each is not kept)))
    if kept is None:
        await topics.pause("t")
    clock.advance(2 * HOUR)
    before = await snapshot(redis)
    assert await topics.forget(0, HOUR) == 0
    changed = {key for key, value in (await snapshot(redis)).items() if before[key] != value}
    assert changed == {pool.keys[0].topics.encode()}
    await pool.delete(ids(1))
    await topics.resume("t")
    assert await topics.forget(0, HOUR) == 0  # it was in use just now
    clock.advance(HOUR)
    assert await topics.forget(0, HOUR) == 1
    await check_books(redis, pool)


async def test_a_topic_with_dead_letters_is_kept_even_where_its_counts_are_lost(
    redis: Redis, pool: Pool, topics: Topics, clock: HeldClock
) -> None:
    await die(pool, clock, 1)
    await redis.read("DEL", pool.keys[0].counts("t"))
    clock.advance(2 * HOUR)
    assert await topics.forget(0, HOUR) == 0
    assert await redis.read("ZCARD", pool.keys[0].topics) == 1


async def test_a_topic_that_is_used_again_is_not_forgotten(pool: Pool, topics: Topics, clock: HeldClock) -> None:
    for _ in range(3):
        clock.advance(HOUR - 1)
        await add(pool, "a", retention_ms=0)
        await delete(pool, "a")
    assert await topics.forget(0, HOUR) == 0


async def test_a_tombstone_may_outlive_its_topic_and_the_books_stay_right(
    redis: Redis, pool: Pool, topics: Topics, clock: HeldClock
) -> None:
    await add(pool, "done", retention_ms=10 * HOUR)
    await add(pool, "gone", retention_ms=10 * HOUR)
    await pop_one(pool)
    await finish(pool, "done")
    await delete(pool, "gone")
    clock.advance(HOUR)
    assert await topics.forget(0, HOUR) == 1
    await check_books(redis, pool)
    assert [await state(pool, job_id) for job_id in ("done", "gone")] == ["finished", "deleted"]
    assert await finish(pool, "done") == "finished"
    assert await delete(pool, "gone") == "deleted"
    assert (await add(pool, "done")).state == "finished"
    assert await names(pool) == []
    for job_id in ("done", "gone"):
        assert (await add(pool, job_id, if_exists="replace")).result == "replaced"
    await check_books(redis, pool)
    assert await names(pool) == ["t"]
    assert (await topics.stats("t")).totals == {"replaced": 2}
    assert sorted(await popped_ids(pool)) == ["done", "gone"]


@pytest.mark.parametrize("idle_ms", [0, 1, HOUR])
async def test_hundreds_of_topics_are_looked_at_each_once(
    redis: Redis, pool: Pool, topics: Topics, clock: HeldClock, idle_ms: int
) -> None:
    """Also where those in use are never so long unused that they fall behind."""
    await pool.add([NewJob(f"{n}", f"topic:{n}", b"") for n in range(450)])
    await pool.delete([f"{n}" for n in range(0, 450, 3)])
    clock.advance(idle_ms or 1)
    async with asyncio.timeout(PATIENCE_S):
        assert await topics.forget(0, idle_ms) == 150
    assert len(await names(pool)) == 300
    await check_books(redis, pool)


async def test_each_shard_forgets_its_own(redis: Redis, clock: HeldClock) -> None:
    pool = await Pool.open(redis, "many", shards=2, clock=clock)
    await pool.add([NewJob(f"{n}", "t", b"", retention_ms=0) for n in range(20)])
    keep = next(f"{n}" for n in range(20) if shard_of(f"{n}", 2) == 1)
    await pool.delete([f"{n}" for n in range(20) if f"{n}" != keep])
    clock.advance(HOUR)
    assert [await Topics(pool).forget(shard, HOUR) for shard in (0, 1)] == [1, 0]
    assert [topic.counts["ready"] for topic in await listed(pool)] == [1]
    await check_books(redis, pool)


@pytest.mark.parametrize("family", ["counts", "due", "dead", "topics"])
async def test_an_index_of_another_program_hides_no_other_topic(
    redis: Redis, pool: Pool, topics: Topics, family: str
) -> None:
    await add(pool, "a", "t")
    await add(pool, "b", "u")
    key = getattr(pool.keys[0], family)
    key = key if isinstance(key, str) else key("t")
    await redis.read("DEL", key)
    await redis.read("SET", key, "junk")
    if family != "topics":  # an empty list would be untrue
        found, *_ = await topics.page()
        assert {topic.name for topic in found} == {"t", "u"}
    await topics.stats()
    assert (await topics.stats("u")).counts["ready"] == 1
    assert await topics.kick("t", 10) == 0
    await topics.bound(0, lambda name: Bounds(1_000))
    assert await topics.forget(0, 1_000) == 0


async def test_the_names_of_many_topics_are_read_in_steps(redis: Redis, pool: Pool, topics: Topics) -> None:
    key, names = pool.keys[0].topics, [f"topic{number:04}" for number in range(3_000)]
    await redis.read("ZADD", key, *[each for at, name in enumerate(names) for each in (at // 2, name)])
    await redis.read("CONFIG", "RESETSTAT")
    assert await topics.names(0) == names
    assert b"cmdstat_zrange" not in await redis.read("INFO", "commandstats")


async def test_the_end_of_a_pause_wakes_no_more_pops_than_there_are_jobs(redis: Redis, live_pool: Pool) -> None:
    """3,000 that popped in that moment held up everybody else for 0.5 s."""
    bell = Bell(live_pool)
    running = asyncio.create_task(bell.run())
    await bell.connected.wait()
    await add(live_pool, "a")
    await add(live_pool, "b")
    await Topics(live_pool).pause("t", 500)
    pops = [asyncio.create_task(bell.pop(["t"], 1, PATIENCE_S)) for _ in range(100)]
    await until(lambda: bell.parked == 100)
    await asyncio.sleep(0.1)  # each has looked once more
    await redis.read("CONFIG", "RESETSTAT")
    await until(lambda: sum(pop.done() for pop in pops) == 2)
    await asyncio.sleep(0.1)
    scripts = re.findall(rb"cmdstat_evalsha:calls=(\d+)", await redis.read("INFO", "commandstats"))
    assert int(scripts[0]) <= 6
    bell.close()
    await asyncio.gather(*pops)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
