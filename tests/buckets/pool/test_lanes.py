"""buckets.pool.lanes: what comes in one turn goes to Redis together, in the right order, and no answer is lost."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from buckets.errors import JobQueueError, NotFound, Unanswered
from buckets.job import NewJob, Tag
from buckets.pool.add_codec import Added, Prepared
from buckets.pool.lanes import Lanes
from buckets.pool.pool import Pool
from buckets.pool.pop_search import Ask, Popped
from buckets.redis.client import Redis
from tests.buckets.jobs import add, get, pop_one
from tests.buckets.redis.links import link_of
from tests.redis_server import RedisServer

ROOM = 8 << 20


def ask(*topics: str, worker: str = "") -> Ask:
    return Ask(topics or ("t",), "", ROOM, "pop", worker)


def prepared(pool: Pool, job_id: str, **fields: Any) -> Prepared:
    return pool._preparing.job(NewJob(job_id, "t", b'"body"', **fields))


async def opened(pool: Pool) -> Lanes:
    """The lanes, once Redis is connected."""
    await pool.redis.read("PING")
    assert pool.lanes.is_open
    return pool.lanes


class Outcomes:
    """What callers were told, in order."""

    def __init__(self) -> None:
        self._told: asyncio.Queue[Any] = asyncio.Queue()

    def take(self, outcome: Any) -> None:
        self._told.put_nowait(outcome)

    async def next(self) -> Any:
        async with asyncio.timeout(10):
            return await self._told.get()

    @property
    def is_empty(self) -> bool:
        return self._told.empty()


async def calls(redis: Redis, command: str = "evalsha") -> int:
    stats = (await redis.read("INFO", "commandstats")).decode()
    lines = [line for line in stats.splitlines() if line.startswith(f"cmdstat_{command}:")]
    return int(lines[0].partition("calls=")[2].partition(",")[0]) if lines else 0


async def test_the_jobs_of_one_turn_share_a_script_and_each_caller_gets_its_own(redis: Redis, pool: Pool) -> None:
    lanes, told = await opened(pool), Outcomes()
    before = await calls(redis)
    for n in range(5):
        assert lanes.add([prepared(pool, f"a{n}"), prepared(pool, f"b{n}", delay_ms=1000)], told.take)
    assert told.is_empty, "never within the call"
    for _ in range(5):
        now, later = await told.next()
        assert (now.result, now.state, later.state) == ("created", "ready", "delayed")
    assert await calls(redis) == before + 1


async def test_an_id_that_comes_twice_in_a_turn_is_added_once(pool: Pool) -> None:
    lanes, told = await opened(pool), Outcomes()
    assert lanes.add([prepared(pool, "a")], told.take)
    assert lanes.add([prepared(pool, "a")], told.take)
    assert [(await told.next())[0].result for _ in range(2)] == ["created", "existing"]
    assert not lanes.add([prepared(pool, "b"), prepared(pool, "b")], told.take)
    assert not lanes.finish([("b", None), ("b", None)], told.take)


async def test_more_than_a_script_may_take_is_not_taken_and_less_is_spread(redis: Redis, pool: Pool) -> None:
    lanes, told = await opened(pool), Outcomes()
    assert not lanes.add([prepared(pool, str(n)) for n in range(201)], told.take)
    assert not lanes.pop(ask(), 201, told.take)
    before = await calls(redis)
    for n in range(3):
        assert lanes.add([prepared(pool, f"{n}-{m}") for m in range(100)], told.take)
    assert [len(await told.next()) for _ in range(3)] == [100, 100, 100]
    assert await calls(redis) == before + 2
    large = NewJob("large", "t", b"1" * ((1 << 20) + 1))
    assert not lanes.add([pool._preparing.job(large)], told.take)


async def test_a_pop_comes_behind_the_finishes_and_adds_of_its_turn(pool: Pool) -> None:
    lanes, told = await opened(pool), Outcomes()
    await add(pool, "a")
    job = await pop_one(pool)
    lanes.pop(ask(), 1, told.take)
    lanes.add([prepared(pool, "b")], told.take)
    lanes.finish([("a", job.lease)], told.take)
    finished, added, popped = [await told.next() for _ in range(3)]
    assert (finished, added[0].result, popped.jobs[0].id) == (["finished"], "created", "b")


async def test_a_refusal_is_told_to_the_caller_whose_job_it_is(pool: Pool) -> None:
    lanes, told = await opened(pool), Outcomes()
    await add(pool, "a")
    job = await pop_one(pool)
    lanes.finish([("none", None)], told.take)
    lanes.finish([("a", job.lease)], told.take)
    (missing,), (state,) = await told.next(), await told.next()
    assert (type(missing), state) == (NotFound, "finished")


async def test_like_pops_are_served_in_their_order_and_by_one_script(redis: Redis, pool: Pool) -> None:
    lanes, told = await opened(pool), Outcomes()
    for job_id in "abc":
        await add(pool, job_id)
    before = await calls(redis)
    for worker in ("x", "y", "z", "w"):
        lanes.pop(ask(worker=worker), 1, told.take)
    popped: list[Popped] = [await told.next() for _ in range(4)]
    assert [[job.id for job in each.jobs] for each in popped] == [["a"], ["b"], ["c"], []]
    assert await calls(redis) == before + 1
    assert [(await get(pool, job_id)).text(Tag.WORKER) for job_id in "abc"] == ["x", "y", "z"]


async def test_pops_that_come_while_one_is_in_flight_leave_together(own_server: RedisServer) -> None:
    redis = Redis(own_server.url)
    pool = await Pool.open(redis, "jq")
    lanes, told = await opened(pool), Outcomes()
    before = await calls(redis)
    own_server.freeze()
    lanes.pop(ask(), 1, told.take)
    await asyncio.sleep(0)  # the first has left
    for _ in range(3):
        lanes.pop(ask(), 1, told.take)
        await asyncio.sleep(0)
    own_server.thaw()
    assert [(await told.next()).jobs for _ in range(4)] == [[]] * 4
    assert await calls(redis) == before + 2
    await pool.close()
    await redis.close()


async def test_a_server_that_does_not_know_the_script_sends_all_the_complete_way(redis: Redis, pool: Pool) -> None:
    lanes, told = await opened(pool), Outcomes()
    await redis.read("SCRIPT", "FLUSH")
    lanes.add([prepared(pool, "a")], told.take)
    lanes.finish([("a", None)], told.take)
    lanes.pop(ask(), 1, told.take)
    assert [await told.next() for _ in range(3)] == [None, None, None]


async def test_a_lost_connection_lets_be_repeated_only_what_may_be(own_server: RedisServer) -> None:
    redis = Redis(own_server.url)
    pool = await Pool.open(redis, "jq")
    lanes, told = await opened(pool), Outcomes()
    own_server.freeze()
    lanes.finish([("a", None)], told.take)
    lanes.add([prepared(pool, "a")], told.take)
    lanes.add([prepared(pool, "b", retention_ms=0)], told.take)
    lanes.pop(ask(), 1, told.take)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    (await link_of(redis)).lose()
    finished, kept, once, popped = [await told.next() for _ in range(4)]
    assert (finished, kept) == (None, None)
    assert isinstance(once, Unanswered) and isinstance(popped, Unanswered)
    own_server.thaw()
    await pool.close()
    await redis.close()


async def test_a_redis_that_stays_silent_fails_all_of_them_at_the_time_out(own_server: RedisServer) -> None:
    redis = Redis(own_server.url, timeout_s=0.3)
    pool = await Pool.open(redis, "jq")
    lanes, told = await opened(pool), Outcomes()
    own_server.freeze()
    lanes.finish([("a", None)], told.take)
    lanes.add([prepared(pool, "a")], told.take)
    lanes.pop(ask(), 1, told.take)
    for _ in range(3):
        outcome = await told.next()
        assert isinstance(outcome, JobQueueError) and outcome.code == "UNAVAILABLE"
    assert not lanes.is_open
    own_server.thaw()
    await pool.close()
    await redis.close()


async def test_a_caller_with_a_bug_keeps_nothing_from_the_others(pool: Pool, caplog: pytest.LogCaptureFixture) -> None:
    lanes, told = await opened(pool), Outcomes()

    def fail(outcome: Any) -> None:
        raise RuntimeError("a bug")

    lanes.add([prepared(pool, "a")], fail)
    lanes.add([prepared(pool, "b")], told.take)
    assert isinstance((await told.next())[0], Added)
    assert "answer.failed" in caplog.text
    assert lanes.is_open


async def test_closing_waits_for_what_is_in_flight_and_takes_no_more(pool: Pool) -> None:
    lanes, told = await opened(pool), Outcomes()
    lanes.add([prepared(pool, "a")], told.take)
    lanes.pop(ask(), 1, told.take)
    await pool.close()
    (added,), popped = await told.next(), await told.next()
    assert (added.result, [job.id for job in popped.jobs]) == ("created", ["a"])
    assert not lanes.add([prepared(pool, "b")], told.take)


async def test_a_look_gets_what_a_pop_would_get_by_either_way(pool: Pool) -> None:
    lanes, told = await opened(pool), Outcomes()
    for job_id in "abcd":
        await add(pool, job_id)
    pool.look(ask(), 1, told.take)
    assert [job.id for job in (await told.next()).jobs] == ["a"]
    lanes.closed = True
    pool.look(ask(), 1, told.take)
    pool.look(ask(), 2, told.take)
    popped = [await told.next(), await told.next()]
    assert sorted(job.id for each in popped for job in each.jobs) == ["b", "c", "d"]


async def test_the_lanes_of_several_shards_are_closed(redis: Redis) -> None:
    pool = await Pool.open(redis, "many", shards=3)
    assert not pool.lanes.is_open
    await pool.close()
