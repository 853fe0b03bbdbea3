"""buckets.topics.topics, trim_dead.lua, forget.lua: the list of topics, bounds on dead letters, forgetting topics."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from buckets.clock import HeldClock
from buckets.job import LIVE, NewJob, State
from buckets.keys import shard_of
from buckets.meter import Meter
from buckets.pool.pool import Pool
from buckets.redis.client import Redis
from buckets.topics.topics import Bounds, Topic, Topics
from tests.buckets.books import check_books
from tests.buckets.jobs import add, delete, finish, pop, pop_one, popped_ids, state
from tests.buckets.topics.walks import fill, ids, listed, peeked_ids, purge, snapshot
from tests.kit.redis_server import RedisServer
from tests.kit.waiting import PATIENCE_S, tick_all

HOUR = 3_600_000
EMPTY = dict.fromkeys([state.word for state in LIVE], 0)


@pytest.fixture
def topics(pool: Pool) -> Topics:
    return Topics(pool)


async def names(pool: Pool, pattern: str = "*") -> list[str]:
    return sorted(topic.name for topic in await listed(pool, pattern))


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
        Topic("t", full, 0, None),
        Topic("u", EMPTY | {"ready": 1}, 0, 0),
        Topic("v", EMPTY, None, until_ms),
    ]
    clock.advance(59_999)
    assert [topic.paused_until for topic in await listed(pool, "v")] == [until_ms]
    clock.advance(1)
    assert [topic.paused_until for topic in await listed(pool, "v")] == [None]


async def test_a_topic_is_listed_with_the_wait_of_its_oldest_ready_job_in_any_shard(
    pool: Pool, clock: HeldClock
) -> None:
    for n in range(8):
        await add(pool, f"j{n}")
        clock.advance(100)
    assert [topic.oldest_ready_ms for topic in await listed(pool)] == [800]
    await pool.pop(["t"], 8)
    assert [topic.oldest_ready_ms for topic in await listed(pool)] == [None]


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
    """Make dead letters, one second apart."""
    names = [f"{topic}:{first + n:03}" for n in range(number)]
    for job_id in names:
        clock.advance(1_000)
        await add(pool, job_id, topic)
        await pop_one(pool, topic)
        await pool.bury(job_id)
    return names


async def bound(pool: Pool, topic: str = "t", age_ms: int = FOR_EVER_MS, most: int = 0) -> int:
    """How many entries were processed in all shards."""

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
    for ms in (1, 4_999, 1):
        clock.advance(ms)
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
    """Including stale entries of its ready lists."""
    await fill(pool, clock, 3, retention_ms=0)
    await add(pool, "far", delay_ms=100 * HOUR, retention_ms=0)
    await purge(pool)
    await redis.read("RPUSH", pool.keys[0].ready(9, "t"), "5:stale")
    await redis.read("HSET", pool.keys[0].due("t"), "m5", 1)
    clock.advance(HOUR - 2)  # one millisecond has passed already
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


async def test_the_newest_dead_letter_is_one_that_is_dead(redis: Redis, pool: Pool, topics: Topics) -> None:
    await add(pool, "alive")
    await redis.read("ZADD", pool.keys[0].dead("t"), 1, "alive")
    assert await topics.newest_dead("t") is None


async def test_a_pause_that_is_over_keeps_no_topic(redis: Redis, pool: Pool, topics: Topics, clock: HeldClock) -> None:
    """By the clock of the scripts, as on a test service, where Redis does not remove it."""
    await topics.pause("t", HOUR)
    clock.advance(HOUR - 1)
    assert await topics.forget(0, HOUR // 2) == 0
    clock.advance(HOUR)
    assert await topics.forget(0, HOUR // 2) == 1
    assert await redis.read("KEYS", "*") == [pool.keys[0].meta.encode()]


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
    """Even when those in use are never unused long enough to fall behind."""
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
    if family != "topics":  # an empty list would be wrong
        found, *_ = await topics.page()
        assert {topic.name for topic in found} == {"t", "u"}
    await topics.stats()
    assert (await topics.stats("u")).counts["ready"] == 1
    assert await topics.kick("u", 10) == 0
    await topics.bound(0, lambda name: Bounds(1_000))
    assert await topics.forget(0, 1_000) == 0


async def test_the_names_of_many_topics_are_read_in_steps(redis: Redis, pool: Pool, topics: Topics) -> None:
    key, names = pool.keys[0].topics, [f"topic{number:04}" for number in range(3_000)]
    await redis.read("ZADD", key, *[each for at, name in enumerate(names) for each in (at // 2, name)])
    await redis.read("CONFIG", "RESETSTAT")
    assert await topics.names(0) == names
    assert b"cmdstat_zrange" not in await redis.read("INFO", "commandstats")


class Writes(Meter):
    """Records how many commands left together."""

    def __init__(self) -> None:
        self.commands: list[int] = []

    def wrote(self, commands: int) -> None:
        self.commands.append(commands)


async def test_all_shards_are_asked_at_once(redis: Redis, redis_server: RedisServer) -> None:
    writes = Writes()
    pool = await Pool.open(own := Redis(redis_server.url, meter=writes), "many", shards=16, buckets=1)
    topics = Topics(pool)
    await pool.add([NewJob(str(n), "t", b"") for n in range(100)])
    for ask in (topics.stats("t"), topics.figures(str), topics.pause("t"), topics.resume("t"), topics.kick("t", 1)):
        writes.commands.clear()
        await ask
        assert writes.commands[0] == 16
    assert (await topics.stats("t")).counts["ready"] == (await topics.stats()).counts["ready"] == 100
    assert {(topic.name, topic.counts["ready"]) for topic in (await topics.page())[0]} == {("t", 100)}
    await pool.close()
    await own.close()


async def test_no_more_dead_letters_than_asked_for_are_kicked_over_all_shards(redis: Redis) -> None:
    pool = await Pool.open(redis, "many", shards=16, buckets=1)
    topics = Topics(pool)
    await pool.add([NewJob(str(n), "t", b"") for n in range(450)])
    for job in (await pool.pop(["t"], 450)).jobs:
        await pool.bury(job.id)
    kicked = [await topics.kick("t", count) for count in (10, 1, 300, 1000, 1000)]
    assert kicked == [10, 1, 300, 139, 0]
    assert (await topics.stats("t")).counts["ready"] == 450
    await pool.close()
