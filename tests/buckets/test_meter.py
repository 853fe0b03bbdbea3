"""buckets.meter: what the engine reports about its work."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from buckets.clock import HeldClock
from buckets.errors import NotFound, Unavailable
from buckets.job import NewJob
from buckets.meter import Meter
from buckets.pool.pool import PAGE, Pool
from buckets.redis.client import Redis
from tests.buckets.instances import Instance, sign, take
from tests.buckets.jobs import add, finish, pop, pop_one, state
from tests.buckets.schedules.scheduled import Scheduled
from tests.kit.redis_server import RedisServer
from tests.kit.waiting import tick_all, until


class Notes(Meter):
    """Records what is reported."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str | None]] = []
        self.seconds: list[float] = []
        self.writes: list[int] = []
        self.pages: list[int] = []
        self.ready: list[tuple[str, int, int]] = []
        self.deliveries: list[tuple[str, int]] = []
        self.again: Counter[str] = Counter()
        self.added_to: Counter[str] = Counter()
        self.finished_in: Counter[str] = Counter()
        self.deaths: list[tuple[str, str]] = []
        self.locks: list[bool] = []
        self.instances: list[tuple[int, int]] = []
        self.ahead: list[float] = []
        self.jumps: list[float] = []

    def called(self, name: str, seconds: float, error: str | None) -> None:
        self.calls.append((name, error))
        self.seconds.append(seconds)

    def wrote(self, commands: int) -> None:
        self.writes.append(commands)

    def paged(self, entries: int) -> None:
        self.pages.append(entries)

    def promoted(self, topic: str, late_us: int, jobs: int) -> None:
        self.ready.append((topic, late_us, jobs))

    def delivered(self, topic: str, late_us: Sequence[int]) -> None:
        self.deliveries += [(topic, each) for each in late_us]

    def redelivered(self, topic: str, jobs: int) -> None:
        self.again[topic] += jobs

    def added(self, topic: str, jobs: int) -> None:
        self.added_to[topic] += jobs

    def finished(self, topic: str, jobs: int) -> None:
        self.finished_in[topic] += jobs

    def died(self, topic: str, cause: str) -> None:
        self.deaths.append((topic, cause))

    def locked(self, taken: bool) -> None:
        self.locks.append(taken)

    def signed(self, instances: int, timers: int) -> None:
        self.instances.append((instances, timers))

    def compared(self, ahead_s: float) -> None:
        self.ahead.append(ahead_s)

    def jumped(self, ahead_s: float) -> None:
        self.jumps.append(ahead_s)


@pytest.fixture
def notes(redis: Redis) -> Notes:
    """The notes of the pool's connection."""
    redis.meter = Notes()
    return redis.meter


async def one_bucket(redis: Redis, clock: HeldClock) -> Pool:
    return await Pool.open(redis, "one", buckets=1, clock=clock)


async def test_jobs_that_a_timer_makes_ready_are_told_with_how_late_it_is_to_the_microsecond(
    pool: Pool, clock: HeldClock, notes: Notes
) -> None:
    await add(pool, "a", delay_ms=1_000)
    await add(pool, "b", delay_ms=1_003)
    clock.now_us += 999_999
    await tick_all(pool)
    assert not notes.ready
    clock.now_us += 5_001
    await tick_all(pool)
    assert sorted(notes.ready) == [("t", 2_000, 1), ("t", 5_000, 1)]


async def test_a_job_that_is_ready_on_the_dot_is_not_late_at_all(pool: Pool, clock: HeldClock, notes: Notes) -> None:
    await add(pool, "a", delay_ms=1_000)
    clock.advance(1_000)
    await tick_all(pool)
    assert notes.ready == [("t", 0, 1)]


async def test_what_falls_due_together_is_told_together_by_topic(redis: Redis, clock: HeldClock, notes: Notes) -> None:
    pool = await one_bucket(redis, clock)
    await pool.add([NewJob(str(n), "tu"[n % 2], b"", delay_ms=1_000) for n in range(100)])
    clock.now_us += 1_000_250
    await tick_all(pool)
    assert sorted(notes.ready) == [("t", 250, 50), ("u", 250, 50)]
    assert notes.pages == [100]


async def test_every_job_of_a_burst_of_many_pages_is_told_once(redis: Redis, clock: HeldClock, notes: Notes) -> None:
    pool = await one_bucket(redis, clock)
    number = 2 * PAGE + 1
    await pool.add([NewJob(str(n), "t", b"", delay_ms=1_000) for n in range(number)])
    clock.now_us += 1_000_007
    await tick_all(pool)
    assert notes.ready == [("t", 7, PAGE), ("t", 7, PAGE), ("t", 7, 1)]
    assert notes.pages == [PAGE, PAGE, 1]


async def test_a_job_with_optional_fields_is_told_as_one_without(pool: Pool, clock: HeldClock, notes: Notes) -> None:
    await add(pool, "a", delay_ms=1_000, ttl_ms=60_000)
    clock.now_us += 1_000_042
    await tick_all(pool)
    assert notes.ready == [("t", 42, 1)]


async def test_a_lease_that_ended_counts_from_its_end_and_a_back_off_from_its_own(
    pool: Pool, clock: HeldClock, notes: Notes
) -> None:
    await add(pool, "a", ttr_ms=1_000)
    await add(pool, "b", "u", ttr_ms=1_000, backoff_ms=(5_000,))
    await pop_one(pool)
    await pop(pool, "u")
    clock.now_us += 1_000_300
    await tick_all(pool)
    assert notes.ready == [("t", 300, 1)]
    clock.now_us += 5_001_000
    await tick_all(pool)
    assert notes.ready == [("t", 300, 1), ("u", 300, 1)]  # its step began with the move, its time rounded up


async def test_what_does_not_become_ready_is_not_told(pool: Pool, clock: HeldClock, notes: Notes) -> None:
    await add(pool, "over", delay_ms=1_000, ttl_ms=5)
    await add(pool, "tried", "u", tries=1, ttr_ms=1_000)
    await add(pool, "unpopped", "v", ttl_ms=1_000)
    await pop(pool, "u")
    clock.advance(2_000)
    assert await tick_all(pool) == 3
    assert [await state(pool, each) for each in ("over", "tried", "unpopped")] == ["dead"] * 3
    assert not notes.ready
    assert sum(notes.pages) == 3


async def test_only_the_first_delivery_of_a_job_is_told_with_its_time_since_it_was_due(
    pool: Pool, clock: HeldClock, notes: Notes
) -> None:
    await add(pool, "a", delay_ms=1_000, ttr_ms=1_000)
    clock.advance(1_000)
    await tick_all(pool)
    clock.now_us += 70_001
    await pop_one(pool)
    assert (notes.deliveries, notes.again) == ([("t", 70_001)], {})
    clock.advance(2_000)
    await tick_all(pool)
    await pop_one(pool)
    assert (notes.deliveries, notes.again) == ([("t", 70_001)], {"t": 1})


async def test_a_lease_that_lies_before_the_due_time_is_no_lateness_below_zero(
    pool: Pool, clock: HeldClock, notes: Notes
) -> None:
    await add(pool, "a")
    clock.now_us -= 10_000_000  # Redis's host corrected its clock
    await pop_one(pool)
    assert notes.deliveries == [("t", 0)]


async def test_a_pop_whose_caller_is_gone_has_delivered_nothing(own_server: RedisServer) -> None:
    notes = Notes()
    redis = Redis(own_server.url, meter=notes)
    pool = await Pool.open(redis)
    await add(pool, "a")
    popping = asyncio.create_task(pool.pop(["t"]))
    await asyncio.sleep(0)
    popping.cancel()
    await asyncio.gather(popping, return_exceptions=True)
    await pool.close()
    assert notes.deliveries == []
    await pop_one(pool)
    assert len(notes.deliveries) == 1
    await redis.close()


async def test_new_jobs_are_told_by_topic_whichever_way_they_are_added(live_pool: Pool, notes: Notes) -> None:
    def new(job_id: str, topic: str = "t", **fields: Any) -> NewJob:
        return NewJob(job_id, topic, b"1", **fields)

    await live_pool.add([new("a"), new("b", "u"), new("c"), new("a", if_exists="reject")])
    assert notes.added_to == {"t": 2, "u": 1}
    # What exists or is moved is not new, a job that replaces another one is, and a refused one is not.
    await live_pool.add([new("a"), new("b", "u", if_exists="replace"), new("c", if_exists="reject"), new("d", "v")])
    await live_pool.add([new("e", delay_ms=60_000), new("e", delay_ms=90_000, if_exists="later")])
    assert notes.added_to == {"t": 3, "u": 2, "v": 1}
    notes.added_to.clear()
    await live_pool.add([new(str(number), "tuv"[number % 3]) for number in range(500)])
    assert notes.added_to == {"t": 167, "u": 167, "v": 166}
    notes.added_to.clear()
    await live_pool.add_groups([[new("g@x", "x"), new("g@y", "y")], [new("h@x", "x"), new("h@y", "y")]])
    await live_pool.add_groups([[new("g@x", "x"), new("g@y", "y")]])
    assert notes.added_to == {"x": 2, "y": 2}


async def test_occurrences_of_schedules_are_new_jobs_too(pool: Pool, clock: HeldClock, notes: Notes) -> None:
    scheduled = Scheduled(pool, clock)
    await scheduled.define("s", 10_000)
    clock.advance(10_000)
    await scheduled.tick()
    assert notes.added_to == {"t": 1}


async def test_finished_jobs_are_told_by_topic_whichever_way_they_end(live_pool: Pool, notes: Notes) -> None:
    number = 450
    await live_pool.add([NewJob(str(n), "tu"[n % 2], b"1") for n in range(number)])
    popped = [job for _ in range(3) for job in await pop(live_pool, "t", "u", count=number)]
    ends = [(job.id, job.lease) for job in popped]
    assert len(ends) == number
    await live_pool.finish(ends[:300])
    await live_pool.finish(ends)  # those before are finished already
    assert notes.finished_in == {"t": 225, "u": 225}
    notes.finished_in.clear()
    await live_pool.add([NewJob(f"w{n}", "t", b"1") for n in range(4)] + [NewJob("once", "once", b"1", ttr_ms=0)])
    await pop(live_pool, count=3)
    await live_pool.finish([("w0", None), ("w3", None), ("nobody", None)], within="t")
    await finish(live_pool, "w1", None, "t")
    await finish(live_pool, "w3", None, "t", settles=True)  # deleted, as it was never delivered
    await live_pool.release("w2")
    await finish(live_pool, "w2")  # by the complete path
    assert notes.finished_in == {"t": 3}
    assert len(await pop(live_pool, "once")) == 1
    assert notes.finished_in == {"t": 3, "once": 1}


async def test_deaths_are_told_with_their_topic_and_cause(pool: Pool, clock: HeldClock, notes: Notes) -> None:
    await add(pool, "a")
    await pool.bury((await pop_one(pool)).id)
    await add(pool, "b", "u", ttl_ms=1_000)
    clock.advance(2_000)
    await tick_all(pool)
    assert notes.deaths == [("t", "buried"), ("u", "ttl")]


async def test_each_call_is_told_by_the_name_of_its_script_or_command(pool: Pool, notes: Notes) -> None:
    await add(pool, "a")
    await pool.redis.read("ZRANGE", pool.keys[0].topics, 0, -1)
    assert notes.calls == [("add", None), ("zrange", None)]
    assert all(0 < each < 5 for each in notes.seconds)


async def test_a_refusal_is_no_error_but_a_command_that_redis_does_not_know_is(pool: Pool, notes: Notes) -> None:
    with pytest.raises(NotFound):
        await pool.touch("nobody")
    with pytest.raises(Exception, match="unknown command"):
        await pool.redis.read("NONSENSE")
    assert notes.calls == [("touch", None), ("nonsense", "INTERNAL")]


async def test_a_call_that_redis_does_not_answer_is_an_error_that_took_its_time(own_server: RedisServer) -> None:
    notes = Notes()
    redis = Redis(own_server.url, 1.0, notes)
    await redis.read("PING")
    own_server.freeze()
    with pytest.raises(Unavailable):
        await redis.read("PING")
    own_server.thaw()
    assert notes.calls == [("ping", None), ("ping", "UNAVAILABLE")]
    assert notes.seconds[1] > 0.5
    await redis.close()


async def test_what_is_asked_in_one_turn_is_one_write(redis_server: RedisServer) -> None:
    notes = Notes()
    own = Redis(redis_server.url, meter=notes)
    await own.read("PING")
    await asyncio.gather(*(own.read("PING") for _ in range(50)))
    assert notes.writes[-2:] == [1, 50]
    await own.close()


async def test_a_lock_is_told_when_it_is_taken_and_when_it_is_lost_and_not_in_between(
    live_pool: Pool, notes: Notes
) -> None:
    instance = Instance(live_pool)
    await instance.tick()
    await instance.tick()
    assert notes.locks == [True] * live_pool.buckets
    await take(live_pool, "zz")
    await sign(live_pool, "zz")
    await instance.tick()
    assert notes.locks == [True] * live_pool.buckets + [False] * live_pool.buckets
    assert notes.instances == [(1, 8), (2, 8)]


async def test_locks_that_are_given_up_in_order_are_lost(live_pool: Pool, notes: Notes) -> None:
    instance = Instance(live_pool)
    async with instance.running():
        await until(lambda: all(instance.held))
    assert notes.locks == [True] * live_pool.buckets + [False] * live_pool.buckets
