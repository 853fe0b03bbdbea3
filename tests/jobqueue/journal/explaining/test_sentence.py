"""jobqueue.journal.explaining.sentence: where a job stands, in one sentence from facts alone."""

from __future__ import annotations

from typing import Any

import pytest

from buckets.clock import HeldClock
from buckets.job import State, Verb
from buckets.pool.limits import Closed, Limit
from buckets.pool.pool import Pool
from buckets.pool.standing import Standing, standing
from buckets.redis.client import Redis
from buckets.topics.topics import Bounds, Topics
from buckets.waiting.pollers import Polling
from jobqueue.journal.explaining.sentence import Now, reasons, sentence
from jobqueue.journal.explaining.told import History, Meanwhile, Newest, Told
from tests.buckets.jobs import add, delete, finish, get, pop_one
from tests.jobqueue.journal.explaining.lives import NOON, Life, us
from tests.kit.waiting import tick_all

D, R, V, F = State.DELAYED, State.READY, State.RESERVED, State.FINISHED


@pytest.fixture
def clock() -> HeldClock:
    return HeldClock(us(0))


async def said(pool: Pool, history: History | None = None, job_id: str = "a", **now: Any) -> str:
    return sentence(Now(await standing(pool, job_id), **now), history)


async def why(pool: Pool, **now: Any) -> list[str]:
    return reasons(Now(await standing(pool, "a"), **now))


def polled(waiting: int = 0, jobs: int = 0, blocked: str = "") -> Polling:
    """A worker that polls the topic."""
    return Polling("w", ["t"], "i", "", us(0) // 1000, us(0) // 1000, waiting, jobs, blocked)


async def test_a_delayed_job_waits_as_it_was_added(pool: Pool) -> None:
    await add(pool, "a", delay_ms=1_800_000)
    assert (
        await said(pool) == "delayed until 2026-11-25 12:30:00.000 UTC (in 30 min): as it was added, or changed since"
    )
    told = Life().told(Verb.ADD, 0, D, 1800)
    assert (await said(pool, told.history())).endswith("(in 30 min): as it was added")
    told.told(Verb.UPDATE, 0, D, 1800, actor="anna")
    assert (await said(pool, told.history())).endswith("(in 30 min): its time was changed by anna")
    told.told(Verb.UPDATE, 0, D, 1900)  # that the record does not have: it is newer than the journal
    assert (await said(pool, told.history())).endswith("as it was added, or changed since")


async def test_a_delayed_job_of_a_paused_topic_says_so(pool: Pool) -> None:
    await add(pool, "a", delay_ms=60_000)
    await Topics(pool).pause("t", 3_600_000)
    assert (await said(pool)).endswith("; its topic is paused until 2026-11-25 13:00:00.000 UTC")


async def test_a_job_in_back_off_says_at_which_step(pool: Pool, clock: HeldClock) -> None:
    await add(pool, "a", ttr_ms=1000, backoff_ms=(5000, 10_000, 20_000))
    await pop_one(pool)
    clock.advance(1000)
    await tick_all(pool)
    assert await said(pool) == (
        "delayed until 2026-11-25 12:00:06.000 UTC (in 5 s): in back-off, step 1 of 3, since its lease ended at "
        "2026-11-25 12:00:01.000 UTC"
    )
    clock.advance(5000)
    await tick_all(pool)
    await pool.release((await pop_one(pool, worker="w1")).id, reason="no connection")
    assert (await said(pool)).endswith(
        ": given back by worker w1, attempt 2 of 16, in back-off, step 2 of 3: no connection"
    )


async def test_a_job_that_its_worker_gave_back_says_so(pool: Pool) -> None:
    await add(pool, "a", tries=0)
    await pop_one(pool)
    await pool.release("a", delay_ms=7000)
    assert (await said(pool)).endswith("(in 7 s): given back by its worker, attempt 1")


async def test_a_due_job_that_is_not_moved_names_its_timer(redis: Redis, pool: Pool, clock: HeldClock) -> None:
    await add(pool, "a", delay_ms=1000)
    bucket = (await get(pool, "a")).bucket
    clock.advance(10_214)
    late = "due since 2026-11-25 12:00:01.000 UTC and not moved for 9.214 s: "
    assert await said(pool) == f"{late}no instance runs the timer of bucket {bucket} of shard 0"
    await redis.read("SET", pool.keys[0].lock(bucket), "0123abcd")
    where = f"{late}the timer of bucket {bucket} of shard 0 is run by"
    assert await said(pool, timer="queue1:8000/2") == f"{where} queue1:8000/2"
    assert await said(pool) == f"{where} an instance of unknown name (0123abcd)"
    await redis.read("ZADD", pool.keys[0].bucket(bucket), clock.now_us // 1000 - 10_000, "b")
    assert (await said(pool, timer="q")).endswith("is run by q, and 1 job of it is due with it or before")
    await redis.read("ZADD", pool.keys[0].bucket(bucket), clock.now_us // 1000 - 10_000, "c")
    assert (await said(pool, timer="q")).endswith("is run by q, and 2 jobs of it are due with it or before")
    await redis.read("DEL", pool.keys[0].bucket(bucket))
    assert await said(pool) == f"{late}bucket {bucket} of shard 0 does not list it; `jobqueue fsck --repair` mends that"


async def test_a_ready_job_says_what_is_before_it(pool: Pool, clock: HeldClock) -> None:
    await add(pool, "b0")
    await add(pool, "a")
    clock.advance(9214)
    assert await said(pool) == "Ready for 9.214 s, and not popped."
    assert await why(pool) == ["ready for 9.214 s", "1 job of its priority is before it"]
    await add(pool, "b1", priority=9)
    assert await why(pool, polling=[]) == [
        "ready for 9.214 s",
        "1 job of its priority and 1 job of a higher one are before it",
        "no pop of the topic waits",
    ]
    await pop_one(pool)
    await pop_one(pool)
    since = Meanwhile(us(0), us(9.214), pauses=[], delivered=2)
    assert await why(pool, polling=[polled(waiting=2)], last_delivery=us(0), since_ready=since) == [
        "ready for 9.214 s",
        "no job of its priority is before it",
        "2 pops of the topic wait",
        "a job of the topic was last delivered in the minute of 2026-11-25 12:00 UTC",
        "since it is ready: 2 jobs of the topic went before it, no pause",
    ]
    await pop_one(pool)
    assert await why(pool) == []


async def test_a_ready_job_says_what_keeps_it_and_what_to_do(
    pool: Pool, clock: HeldClock, subtests: pytest.Subtests
) -> None:
    topic = "order close"
    await add(pool, "a", topic)
    clock.advance(49 * 60_000)
    cases: list[tuple[str, dict[str, Any]]] = [
        ("Nobody has polled order close since 12:00 UTC: start its workers.", {"polling": []}),
        (
            "Nobody has polled order close since 12:30 UTC: start its workers.",
            {"polling": [], "last_delivery": us(1800)},
        ),
        (
            "Nobody has polled order close since 12:00 UTC: start its workers.",
            {"polling": [], "last_delivery": us(-1800)},
        ),
        (
            "Its sink stream: no answer: mend what it delivers to; see jobqueue workers 'order close'.",
            {"polling": [polled(blocked="sink stream: no answer")]},
        ),
        (
            "The workers of order close are busy, with 3 jobs in hand: start more; see jobqueue workers 'order close'.",
            {"polling": [polled(jobs=2), polled(jobs=1), polled(blocked="sink stream: no answer")]},
        ),
        (
            "The workers of order close do not wait for jobs: see jobqueue workers 'order close'.",
            {"polling": [polled()]},
        ),
        (
            "Workers of order close wait for jobs and do not get this one: jobqueue check.",
            {"polling": [polled(jobs=2), polled(waiting=1)]},
        ),
        (
            "Its topic has reached its rate of 5 a second, for another 200 ms.",
            {"polling": [], "limit": Limit(5.0, 0), "closed": Closed(topic, "rate", 200_000)},
        ),
        (
            "Its topic has reached its concurrency of 2: jobqueue peek 'order close' --state reserved shows who works.",
            {"polling": [], "limit": Limit(0.0, 2), "closed": Closed(topic, "concurrency", 0)},
        ),
    ]
    for words, now in cases:
        with subtests.test(words):
            assert await said(pool, **now) == words
            assert len(words.split()) <= 20
    clock.advance(24 * 3_600_000)
    assert "since 2026-11-25 12:00 UTC:" in await said(pool, polling=[])
    await add(pool, "next", topic)
    soon = "Workers of order close wait for jobs: it is delivered when its turn comes."
    assert await said(pool, job_id="next", polling=[polled(waiting=1)]) == soon


async def test_a_job_that_waits_for_its_key_names_the_one_that_has_it(redis: Redis, pool: Pool) -> None:
    for job_id in ("first", "b", "a"):
        await add(pool, job_id, key="7", key_gap_us=5_000_000)
    await pop_one(pool)
    assert await said(pool) == "2 jobs of its key 7 are before it; first has the key."
    assert await said(pool, job_id="b") == "1 job of its key 7 is before it; first has the key."
    await finish(pool, "first")
    paced = "The rate of its key 7 allows the next delivery at 2026-11-25 12:00:05.000 UTC (in 5 s)"
    assert await said(pool) == f"{paced}; 1 job is before it."
    assert await said(pool, job_id="b") == f"{paced}."
    await redis.read("DEL", pool.keys[0].holders("t"))
    free = "Its key 7 is free, and it was not made ready for pops: jobqueue fsck --repair."
    assert await said(pool) == free
    await redis.read("ZADD", pool.keys[0].holders("t"), 0, "7@gone")
    assert await said(pool) == free


async def test_a_ready_job_of_a_paused_topic_says_so(pool: Pool) -> None:
    await add(pool, "a")
    await Topics(pool).pause("t")
    paused = "Its topic is paused until somebody resumes it: jobqueue resume t."
    assert await said(pool, polling=[polled(waiting=1)]) == paused
    await Topics(pool).pause("t", 3_600_000)
    assert await said(pool) == "Its topic is paused until 2026-11-25 13:00:00.000 UTC: jobqueue resume t."


async def test_a_job_that_is_ready_again_says_when_its_lease_ended(pool: Pool, clock: HeldClock) -> None:
    await add(pool, "a", ttr_ms=1000)
    await pop_one(pool)
    clock.advance(1000)
    await tick_all(pool)
    clock.advance(500)
    assert (await why(pool))[0] == "ready for 500 ms, since its lease ended at 2026-11-25 12:00:01.000 UTC"


async def test_a_reserved_job_says_who_has_it(pool: Pool, clock: HeldClock) -> None:
    await add(pool, "a", ttr_ms=60_000)
    await pop_one(pool, worker="billing-3")
    clock.advance(20_000)
    assert await said(pool) == (
        "reserved by worker billing-3 since 2026-11-25 12:00:00.000 UTC, until 2026-11-25 12:01:00.000 UTC (in 40 s), "
        "attempt 1 of 16"
    )
    clock.advance(41_000)
    bucket = (await get(pool, "a")).bucket
    assert (await said(pool)).endswith(
        f"; its lease ended 1 s ago and it was not moved: no instance runs the timer of bucket {bucket} of shard 0"
    )


async def test_a_dead_letter_says_why_and_until_when_it_is_kept(pool: Pool, clock: HeldClock) -> None:
    await add(pool, "a", tries=1)
    await pop_one(pool)
    await pool.release("a", reason="no connection")
    dead = "dead since 2026-11-25 12:00:00.000 UTC (0 ms ago): its tries are used up (no connection)"
    assert await said(pool) in (dead, dead.replace("0 ms ago", "in 0 ms"))
    clock.advance(1000)
    dead = dead.replace("0 ms", "1 s")
    assert await said(pool) == dead
    kept = f"{dead}; it will be deleted at 2026-11-25 13:00:00.000 UTC"
    assert await said(pool, bounds=Bounds(3_600_000)) == kept
    assert await said(pool, bounds=Bounds(3_600_000, 3)) == f"{kept} or once 3 jobs more of the topic have died"
    await add(pool, "b", ttl_ms=1)
    clock.advance(1)
    await tick_all(pool)
    assert "its ttl was over" in await said(pool, job_id="b")


async def test_an_ended_job_says_how_as_far_as_that_is_known(pool: Pool, clock: HeldClock) -> None:
    await add(pool, "a")
    await pop_one(pool)
    clock.advance(700)
    await finish(pool, "a")
    assert await said(pool) == (
        "finished, last delivered at 2026-11-25 12:00:00.000 UTC, attempt 1 of 16; it is remembered until "
        "2026-11-25 12:01:00.700 UTC (in 60 s)"
    )
    told = Life(after=V).told(Verb.FINISH, 0.7, F, 60.7)
    assert (await said(pool, told.history())).startswith("finished at 2026-11-25 12:00:00.700 UTC, last delivered at ")
    await add(pool, "b")
    await delete(pool, "b")
    assert (await said(pool, job_id="b")).startswith("deleted, never delivered; it is remembered until ")
    life = (await get(pool, "b")).created
    told = Life(life=life).told(Verb.DELETE, 0.7, State.DELETED, 60.7, actor="ops/anna")
    assert (await said(pool, told.history(), "b")).startswith(
        "deleted by ops/anna at 2026-11-25 12:00:00.700 UTC, never"
    )
    told = Life(life=life).told(Verb.PURGE, 0.7, State.DELETED, 60.7, actor="ops")
    assert (await said(pool, told.history(), "b")).startswith("deleted by a purge at ")


async def test_a_record_that_cannot_be_read_is_said(redis: Redis, pool: Pool) -> None:
    await redis.read("SET", pool.keys[0].job("a"), "?")
    await redis.read("HSET", pool.keys[0].aside, "b", "?")
    assert await said(pool) == "its record cannot be read; `jobqueue fsck --repair` sets it aside"
    assert (await said(pool, job_id="b")).startswith("set aside: its record could not be read")


NEWEST = Newest(NOON, "t", D, 4, 0, NOON, NOON + 60_000, 16, 0, 0, None, None, us(0), None)
NOBODY = Standing(us(90), 0, is_told=True, job=None)


def newest(**fields: Any) -> History:
    made = Newest(**{name: getattr(NEWEST, name) for name in Newest.__slots__} | fields)
    return History([], newest=made, since=us(-60), until=us(86_400))


def last(event: Told) -> History:
    return History([event])


@pytest.mark.parametrize(
    ("history", "words"),
    [
        (newest(), "by the journal it was delayed at 2026-11-25 12:00:00.000 UTC, and Redis no longer knows it"),
        (
            newest(state=F, ended=us(1)),
            "finished at 2026-11-25 12:00:01.000 UTC, and Redis no longer remembers it",
        ),
        (
            newest(state=0),
            "gone since 2026-11-25 12:00:00.000 UTC: set aside as unreadable, or missing from Redis when the journal "
            "looked",
        ),
        (
            last(Life(after=V).told(Verb.FINISH, 3, F).events[0]),
            "finished at 2026-11-25 12:00:03.000 UTC, and Redis no longer remembers it",
        ),
        (History(), "nothing was recorded about it"),
    ],
)
def test_what_redis_does_not_know_is_said_by_the_journal(history: History, words: str) -> None:
    assert sentence(Now(NOBODY), history) == words


@pytest.mark.parametrize(
    ("history", "words"),
    [
        (newest(), "delayed since 2026-11-25 12:00:00.000 UTC, by the journal, due 2026-11-25 12:01:00.000 UTC"),
        (newest(state=R), "ready since 2026-11-25 12:00:00.000 UTC, by the journal"),
        (newest(state=F, ended=us(1)), "finished at 2026-11-25 12:00:01.000 UTC"),
    ],
)
def test_the_journal_alone_says_what_it_knows(history: History, words: str) -> None:
    assert sentence(Now(None), history) == words
