"""buckets.pool.pool, due.lua: due jobs that go straight to pops that wait."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from buckets.clock import HeldClock
from buckets.errors import Unanswered
from buckets.job import Job, NewJob, State, Tag
from buckets.pool.pool import PAGE, Pool
from buckets.pool.pop_search import Offer
from buckets.redis.client import Redis
from buckets.topics.topics import Topics
from tests.buckets.books import check_books
from tests.buckets.jobs import add, get, is_stored, pop_one, popped_ids, state
from tests.buckets.pool.test_fast_paths import Written, contents
from tests.buckets.schedules.scheduled import Scheduled
from tests.buckets.test_meter import Notes
from tests.kit.redis_server import RedisServer
from tests.kit.waiting import tick_all, until

ROUNDS = 30
TOPICS = ("t", "u", "v", "w")


def offer(*topics: str, jobs: int = 1, worker: str = "") -> Offer:
    return Offer(topics or ("t",), [(jobs, worker)])


def ids(handed: list[list[Job]]) -> list[list[str]]:
    return [[job.id for job in jobs] for jobs in handed]


@pytest.fixture
async def one(redis: Redis, clock: HeldClock) -> Pool:
    """A pool with one bucket."""
    return await Pool.open(redis, "one", buckets=1, clock=clock)


async def handed(pool: Pool, *offers: Offer) -> list[list[str]]:
    """The ids of the jobs that each offer gets; the books balance afterwards."""
    found = ids((await pool.due(0, 0, offers))[2])
    await check_books(pool.redis, pool)
    return found


async def test_a_due_job_goes_straight_to_a_pop_that_waits(one: Pool, clock: HeldClock) -> None:
    await add(one, "a", delay_ms=1_000, ttr_ms=5_000, body=b"body")
    clock.now_us += 1_000_500
    moved, wait_us, [[job]] = await one.due(0, 0, [offer(worker="w")])
    assert (moved, job.id, job.state, job.body, job.text(Tag.WORKER)) == (1, "a", State.RESERVED, b"body", "w")
    assert (job.lease, job.attempts, job.deliveries) == (clock.now_us, 1, 1)
    assert job.next == -(-clock.now_us // 1000) + 5_000
    assert wait_us == job.next * 1000 - clock.now_us  # the timer learns of the lease
    assert await is_stored(one, job)
    stats = await Topics(one).stats("t")
    assert (stats.counts["reserved"], stats.totals) == (1, {"created": 1, "delivered": 1})
    await check_books(one.redis, one)
    assert await popped_ids(one) == []
    clock.advance(5_001)
    await tick_all(one)
    assert (await pop_one(one)).attempts == 2


async def test_before_its_time_nobody_gets_a_job(one: Pool, clock: HeldClock) -> None:
    await add(one, "a", delay_ms=1_000)
    clock.now_us += 999_999
    assert await one.due(0, 0, [offer()]) == (0, 1, [[]])


async def test_each_group_gets_what_it_wants_the_others_are_ready(one: Pool, clock: HeldClock) -> None:
    await one.add([NewJob(f"{n}", "t", b"", delay_ms=1 + n) for n in range(6)])
    clock.advance(10)
    offers = [Offer(("t",), [(2, "a"), (1, "b")]), offer("none"), offer("t", jobs=2)]
    assert await handed(one, *offers) == [["0", "1", "2"], [], ["3", "4"]]
    workers = [(await get(one, f"{n}")).text(Tag.WORKER) for n in range(5)]
    assert workers == ["a", "a", "b", None, None]
    assert await popped_ids(one) == ["5"]


async def test_higher_priorities_are_handed_out_first_then_what_was_due_first(one: Pool, clock: HeldClock) -> None:
    lives = {"late low": (3, 0), "early low": (1, 0), "late": (3, 4), "early": (1, 4), "high": (5, 9)}
    await one.add([NewJob(name, "t", b"", delay_ms=delay, priority=p) for name, (delay, p) in lives.items()])
    clock.advance(9)
    assert await handed(one, offer(jobs=4)) == [["high", "early", "late", "early low"]]


async def test_a_group_gets_jobs_of_its_next_topic_when_those_before_have_none(one: Pool, clock: HeldClock) -> None:
    await one.add([NewJob(f"{topic}{n}", topic, b"", delay_ms=1) for topic in "tu" for n in range(2)])
    clock.advance(1)
    assert await handed(one, offer("none", "u", "t", jobs=3), offer("u", "t", jobs=3)) == [["u0", "u1", "t0"], ["t1"]]


Prepare = Callable[[Pool], Awaitable[object]]
LEFT_TO_POPS: dict[str, tuple[Prepare, list[str]]] = {
    "a ready job of the topic": (lambda pool: add(pool, "x"), ["x", "a", "b"]),
    "a job with a ttr of 0": (lambda pool: add(pool, "x", delay_ms=1, priority=5, ttr_ms=0), ["x", "a", "b"]),
    "a job with a ttl": (lambda pool: add(pool, "x", delay_ms=1, priority=5, ttl_ms=9_000), ["x", "a", "b"]),
    "a large job": (lambda pool: add(pool, "x", delay_ms=1, priority=5, body=b"x" * 4_100), ["x", "a", "b"]),
    "an optional field": (lambda pool: add(pool, "x", delay_ms=1, priority=5, note=b"n"), ["x", "a", "b"]),
}


@pytest.mark.parametrize("case", LEFT_TO_POPS)
async def test_jobs_behind_one_that_is_not_plain_wait_for_a_pop_in_their_order(
    one: Pool, clock: HeldClock, case: str
) -> None:
    prepare, order = LEFT_TO_POPS[case]
    await prepare(one)
    await one.add([NewJob(each, "t", b"", delay_ms=1) for each in "ab"])
    await add(one, "other", "u", delay_ms=1)
    clock.advance(1)
    found = await handed(one, offer("t", "u", jobs=5, worker="w"), offer("t", worker="w"), offer("u", worker="w"))
    assert found == [[], [], [] if "ttl" in case else ["other"]]
    assert await popped_ids(one) == order


async def test_a_job_that_is_left_to_the_pop_of_one_group_is_not_handed_to_the_next(
    one: Pool, clock: HeldClock
) -> None:
    """A pop has to write the worker among its optional fields, and this one came first."""
    await add(one, "a", delay_ms=1, note=b"n")
    clock.advance(1)
    assert await handed(one, offer(worker="w"), offer()) == [[], []]


async def test_a_job_before_one_that_is_not_plain_is_handed_out(one: Pool, clock: HeldClock) -> None:
    sizes = {"a": 10, "b": 4_100, "c": 10}
    await one.add([NewJob(each, "t", b"x" * size, delay_ms=1) for each, size in sizes.items()])
    clock.advance(1)
    assert await handed(one, offer(jobs=2), offer()) == [["a"], []]
    assert await popped_ids(one) == ["b", "c"]


@pytest.mark.parametrize("body", [4_096 - 48, 4_097 - 48])
async def test_records_of_up_to_4096_bytes_are_handed_out(one: Pool, clock: HeldClock, body: int) -> None:
    await add(one, "a", delay_ms=1, body=b"x" * (body + 13))  # its header was shorter before
    clock.advance(1)
    assert await handed(one, offer()) == [["a"] if body == 4_048 else []]


async def test_a_paused_topic_keeps_its_jobs_and_a_pop_goes_past_it(one: Pool, clock: HeldClock) -> None:
    await one.add([NewJob(topic, topic, b"", delay_ms=1) for topic in "tu"])
    await Topics(one).pause("t")
    clock.advance(1)
    assert await handed(one, offer("t"), offer("t", "u")) == [[], ["u"]]
    assert await state(one, "t") == "ready"


async def test_ready_jobs_of_a_paused_topic_do_not_hold_up_the_next_topic(one: Pool, clock: HeldClock) -> None:
    await add(one, "ready")
    await add(one, "u", "u", delay_ms=1)
    await Topics(one).pause("t")
    clock.advance(1)
    assert await handed(one, offer("t", "u")) == [["u"]]


async def test_a_ready_job_of_an_earlier_topic_comes_first(one: Pool, clock: HeldClock) -> None:
    await add(one, "ready")
    await add(one, "u", "u", delay_ms=1)
    clock.advance(1)
    assert await handed(one, offer("t", "u")) == [[]]
    assert await popped_ids(one, "t", "u", count=1) == ["ready"]


async def test_bells_ring_only_for_jobs_that_nobody_got(
    redis: Redis, redis_server: RedisServer, one: Pool, clock: HeldClock
) -> None:
    await one.add([NewJob(f"{topic}{n}", topic, b"", delay_ms=1) for topic in "tu" for n in range(3)])
    said: list[str] = []
    begun = asyncio.Event()
    hearing = asyncio.create_task(redis.listen(one.keys[0].bell, said.append, begun.set))
    await begun.wait()
    clock.advance(1)
    await one.due(0, 0, [offer("t", jobs=3), offer("u", jobs=1)])
    await redis.read("SPUBLISH", one.keys[0].bell, "the end")
    await until(lambda: "the end" in said)
    hearing.cancel()
    await asyncio.gather(hearing, return_exceptions=True)
    assert said == ["ready 2 u", "the end"]


async def test_a_page_bounds_what_is_handed_out(one: Pool, clock: HeldClock) -> None:
    names = [f"{n:03}" for n in range(PAGE + 20)]
    await one.add([NewJob(name, "t", b"x" * (int(name) * 5), delay_ms=1) for name in names])
    clock.advance(1)
    assert await handed(one, *[offer(jobs=10)] * 40) == [names[n : min(n + 10, PAGE)] for n in range(0, 400, 10)]
    assert await handed(one, offer(jobs=30)) == [names[PAGE:]]


async def test_a_record_that_is_no_string_or_gone_is_handed_to_nobody(
    redis: Redis, one: Pool, clock: HeldClock
) -> None:
    await one.add([NewJob(each, "t", b"", delay_ms=1) for each in "abcd"])
    await redis.read("DEL", one.keys[0].job("b"), one.keys[0].job("c"))
    await redis.read("RPUSH", one.keys[0].job("b"), "not ours")
    clock.advance(1)
    assert ids((await one.due(0, 0, [offer(jobs=9)]))[2]) == [[]]
    assert await popped_ids(one) == ["a", "d"]


async def test_writes_come_in_the_order_that_leaves_at_most_an_index_entry_too_many(
    redis_server: RedisServer, one: Pool, clock: HeldClock
) -> None:
    """New index entries, counts, records; then the bucket, whose old entries bring the timer back until then."""
    await one.add([NewJob(each, "t", b"", delay_ms=1) for each in "ab"])
    clock.advance(1)
    with Written(redis_server.url) as written:
        await one.due(0, 0, [offer()])
        assert written.names() == ["RPUSH", "HINCRBY", "HDEL", "SETRANGE", "MSET", "ZADD", "ZREM", "SPUBLISH"]


async def test_a_handed_job_is_told_as_ready_and_whoever_takes_it_tells_that_it_is_delivered(
    redis: Redis, one: Pool, clock: HeldClock
) -> None:
    notes = redis.meter = Notes()
    await one.add([NewJob(each, "t", b"", delay_ms=1_000) for each in "abc"])
    clock.now_us += 1_000_300
    (jobs,) = (await one.due(0, 0, [offer(jobs=2)]))[2]
    assert (notes.pages, notes.ready, notes.deliveries) == ([3], [("t", 300, 3)], [])
    one.report_delivered(jobs)
    assert notes.deliveries == [("t", 300)] * 2


async def test_jobs_for_a_timer_that_is_gone_go_back(own_server: RedisServer) -> None:
    redis = Redis(own_server.url)
    pool = await Pool.open(redis, buckets=1)
    await pool.due(0, 0)  # from now on Redis knows the scripts
    await pool.add([NewJob(each, "t", b"", delay_ms=1) for each in "ab"])
    await asyncio.sleep(0.005)
    own_server.freeze()
    ticking = asyncio.create_task(pool.due(0, 0, [offer(), offer()]))
    for _ in range(10):
        await asyncio.sleep(0)
    ticking.cancel()
    await asyncio.gather(ticking, return_exceptions=True)
    own_server.thaw()
    await pool.close()
    assert (await Topics(pool).stats("t")).totals["undone"] == 2
    assert await popped_ids(pool) == ["a", "b"]
    await check_books(redis, pool)
    await redis.close()


async def test_with_offers_it_is_not_repeated_when_the_answer_is_lost(own_server: RedisServer) -> None:
    """The first run may have handed out jobs, which a second one would not answer."""
    redis = Redis(own_server.url, timeout_s=1.0)
    pool = await Pool.open(redis, buckets=1)
    await pool.due(0, 0)
    own_server.freeze()
    with pytest.raises(Unanswered):
        await pool.due(0, 0, [offer()])
    own_server.thaw()
    await pool.close()
    await redis.close()


class Twins:
    """A pool whose due jobs go straight to sleepers, and one where each of them pops right behind."""

    def __init__(self, straight: Pool, popping: Pool, clock: HeldClock, seed: int) -> None:
        self.pools = (straight, popping)
        self.clock = clock
        self.random = random.Random(seed)
        self.scheduled = [Scheduled(pool, clock) for pool in self.pools]
        self.handed = self.met = 0
        self.added = 0

    def job(self, *, is_odd: bool) -> NewJob:
        choose = self.random.choice
        self.added += 1
        fields: dict[str, Any] = {"delay_ms": choose([1, 1, 3, 8]), "ttr_ms": choose([1_000, 1_000, 300])}
        fields["priority"] = choose([4, 4, 4, 0, 9])
        if is_odd:
            odd: list[dict[str, Any]] = [
                {"ttr_ms": 0},
                {"ttl_ms": 50},
                {"keeps_body": True},
                {"delay_ms": 0},
                {"headers": b"h" * 250},
            ]
            fields |= choose([*odd, {"note": b"n"}, {"retention_ms": 0}, {"backoff_ms": (5,)}, {"tries": 1}])
        body = b"x" * choose([0, 100, 100, 210, 220, 1_000, 4_060 if is_odd else 500])
        return NewJob(f"j{self.added}", choose(TOPICS), body, **fields)

    def offer(self) -> Offer:
        choose, named = self.random.choice, self.random.random() < 0.5
        workers = [(choose([1, 1, 3, 8]), choose(["a", "bc"]) if named else "") for _ in range(choose([1, 2, 4]))]
        return Offer(tuple(self.random.sample(TOPICS, choose([1, 1, 2, 3]))), workers)

    async def add(self) -> None:
        choose = self.random.choice
        odds = choose([0, 0, 0, 0, 0.1, 0.5])
        jobs = [self.job(is_odd=self.random.random() < odds) for _ in range(choose([1, 5, 30]))]
        far = choose([*[0] * 9, 90_000_000])  # these are counted by the hour
        for job in jobs:
            job.delay_ms += far and job.delay_ms
        for pool in self.pools:
            await pool.add(jobs)
        self.clock.now_us += self.random.randrange(6_000) + far * 1_000

    async def schedule(self) -> None:
        name, every_ms = f"s{self.random.randrange(9)}", self.random.choice([1, 5, 50])
        topic, catch_up = self.random.choice(TOPICS), self.random.choice(["last", "all"])
        for each in self.scheduled:
            await each.define(name, every_ms, topic=topic, catch_up=catch_up)

    async def pause(self) -> None:
        topic, span_ms, resumes = self.random.choice(TOPICS), self.random.choice([None, 3]), self.random.random() < 0.6
        for pool in self.pools:
            if resumes:
                for each in TOPICS:
                    await Topics(pool).resume(each)
            else:
                await Topics(pool).pause(topic, span_ms)

    async def due(self, bucket: int) -> None:
        """Whatever was handed out, a pop of as many jobs would have got; and what is stored is the same."""
        straight, popping = self.pools
        offers = [self.offer() for _ in range(self.random.choice([1, 2, 4]))]
        page = self.random.choice([10, PAGE])
        now = self.clock.now()
        sleepers = [value for each in offers for value in each.arguments()]
        moved, _, died, handed, met, *late = await straight.call("due", 0, sleepers, now=now, bucket=bucket, page=page)
        reply = await popping.call("due", 0, now=now, bucket=bucket, page=page)
        assert (moved, died, [], met) == (reply[0], *reply[2:5])
        assert Counter(zip(*[iter(late)] * 3, strict=True)) == Counter(zip(*[iter(reply[5:])] * 3, strict=True))
        for each, jobs in zip(offers, handed, strict=False):
            want = len(jobs) // 2
            self.handed += want
            if want:
                named: dict[str, Any] = {"ttr": "", "workers": each.arguments()[1], "room": 8 << 20, "always": 1}
                _, _, _, *pairs = await popping.call("pop", 0, each.topics, now=now, bucket=bucket, want=want, **named)
                assert jobs == pairs
        self.met += len(met)
        for scheduled in self.scheduled:
            await scheduled.occurrences.make(0, bucket, [name.decode() for name in met])
        await self.check()

    async def check(self) -> None:
        stored = [await contents(pool.redis, pool) for pool in self.pools]
        for each in stored:
            # The end of a tombstone is rounded to a minute that is not the same for both; and random ones of the
            # occurrences that are done are forgotten.
            for key in [key for key in each if key.startswith((b"end of ", b"o:"))]:
                del each[key]
        assert stored[0] == stored[1]
        await check_books(self.pools[0].redis, self.pools[0])

    async def pop(self) -> None:
        topics, count = self.random.sample(TOPICS, 4), self.random.choice([5, 1000, 1000])
        jobs = [(await pool.pop(topics, count)).jobs for pool in self.pools]
        assert [job.id for job in jobs[0]] == [job.id for job in jobs[1]]
        for pool in self.pools:
            await pool.finish([(job.id, job.lease) for job in jobs[0]])
            await pool.redis.read("DEL", pool.keys[0].job(""), *(pool.keys[0].job(job.id) for job in jobs[0]))


@pytest.mark.parametrize("seed", range(2))
async def test_what_goes_straight_leaves_behind_what_a_pop_right_after_would(
    redis: Redis, clock: HeldClock, seed: int
) -> None:
    """Byte by byte, over random jobs, priorities, topics, pauses, bodies, groups and workers."""
    straight, popping = [await Pool.open(redis, name, buckets=2, clock=clock) for name in ("straight", "popping")]
    for pool in (straight, popping):
        pool._turn = iter(range(10**9))  # type: ignore[assignment]  # both spread jobs over buckets alike
    twins = Twins(straight, popping, clock, seed)
    for _ in range(ROUNDS):
        await twins.add()
        if twins.random.random() < 0.2:
            await twins.pause()
        if twins.random.random() < 0.3:
            await twins.schedule()
        for bucket in range(2):
            await twins.due(bucket)
        if twins.random.random() < 0.8:
            await twins.pop()
    assert twins.handed > ROUNDS // 2 and twins.met > ROUNDS // 2  # otherwise they were the wrong steps
