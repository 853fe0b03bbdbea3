"""buckets.pool.pool, bury.lua, kick.lua: jobs that a worker buries, and the way back."""

from __future__ import annotations

import pytest

from buckets.clock import HeldClock
from buckets.errors import JobQueueError, NotFound, WrongState
from buckets.job import Cause, NewJob, State, Tag
from buckets.pool.pool import Pool
from buckets.redis.client import Redis
from buckets.topics.topics import Topics
from tests.buckets import lives
from tests.buckets.books import check_books
from tests.buckets.conftest import NewPool
from tests.buckets.jobs import add, finish, get, kick, pop, pop_one, popped_ids, state
from tests.buckets.lives import Bring
from tests.kit.waiting import tick_all

NOT_DEAD: list[tuple[Bring, type[JobQueueError]]] = [
    (lives.reserved, WrongState),
    (lives.ready_again, WrongState),
    (lives.delayed_again, WrongState),
    (lives.never_popped_ready, WrongState),
    (lives.never_popped_delayed, WrongState),
    (lives.finished, WrongState),
    (lives.deleted, NotFound),
    (lives.unknown, NotFound),
]


async def bury_all(pool: Pool, clock: HeldClock, ids: list[str], topic: str = "t") -> None:
    """Bury jobs one after the other, a millisecond apart."""
    await pool.add([NewJob(job_id, topic, b"", priority=4) for job_id in ids])
    for job in await pop(pool, topic, count=len(ids)):
        clock.advance(1)
        await pool.bury(job.id)


async def test_a_buried_job_is_dead_at_once_whatever_tries_it_has_left(
    redis: Redis, pool: Pool, clock: HeldClock
) -> None:
    await add(pool, "a", tries=0, backoff_ms=(5_000,), ttl_ms=60_000)
    popped = await pop_one(pool)
    clock.advance(10)
    assert await pool.bury("a", popped.lease) == "dead"
    job = await get(pool, "a")
    assert (job.state, job.cause, job.next, job.body) == (State.DEAD, Cause.BURIED, clock.now_us // 1000, b'"body"')
    assert (job.attempts, job.deliveries, job.kind.step, job.due) == (1, 1, 0, popped.due)
    stats = await Topics(pool).stats("t")
    assert (stats.counts["dead"], stats.totals) == (1, {"created": 1, "delivered": 1, "died_buried": 1})
    clock.advance(86_400_000)
    assert await tick_all(pool) == 0
    await check_books(redis, pool)


@pytest.mark.parametrize("size", [0, 90, 200_000])
async def test_the_reason_of_a_burial_is_kept_with_all_that_the_job_has(redis: Redis, pool: Pool, size: int) -> None:
    await add(pool, "a", body=b"x" * size, tags=b'["t"]')
    await pop_one(pool, worker="w")
    await pool.bury("a", reason="poison: ü")
    job = await get(pool, "a")
    assert (job.text(Tag.REASON), job.text(Tag.WORKER), job.text(Tag.TAGS)) == ("poison: ü", "w", '["t"]')
    assert (job.state, job.body) == (State.DEAD, b"x" * size)
    await check_books(redis, pool)


async def test_a_kicked_job_begins_anew_and_is_due_now(redis: Redis, pool: Pool, clock: HeldClock) -> None:
    added = await add(pool, "a", tries=2, backoff_ms=(5_000, 9_000), ttr_ms=1_000)
    for _ in range(2):
        await pop_one(pool)
        clock.advance(1_000)
        await tick_all(pool)
        clock.advance(5_000)
        await tick_all(pool)
    dead = await get(pool, "a")
    assert (dead.cause, dead.attempts, dead.kind.step) == (Cause.TRIES, 2, 1)
    clock.advance(60_000)
    assert await kick(pool, "a") == "ready"
    job, now = await get(pool, "a"), clock.now_us // 1000
    assert (job.state, job.cause, job.attempts, job.kind.step) == (State.READY, Cause.NONE, 0, 0)
    assert (job.due, job.next, job.created, job.deliveries) == (now, now, added.due, 2)
    await check_books(redis, pool)
    for attempt, delay in ((1, 5_000), (2, None)):
        assert (await pop_one(pool)).attempts == attempt
        clock.advance(1_000)
        await tick_all(pool)
        if delay:
            assert (await get(pool, "a")).next == clock.now_us // 1000 + delay
            clock.advance(delay)
            await tick_all(pool)
    assert (await get(pool, "a")).cause is Cause.TRIES
    assert (await Topics(pool).stats("t")).totals["died_tries"] == 2
    await check_books(redis, pool)


async def test_a_kicked_job_has_its_ttl_anew(redis: Redis, pool: Pool, clock: HeldClock) -> None:
    await lives.never_popped_dead(pool, clock)
    await add(pool, "b", ttl_ms=1_000)
    clock.advance(5_000)
    await tick_all(pool)
    await kick(pool, "b")
    await check_books(redis, pool)
    clock.advance(999)
    assert await tick_all(pool) == 0
    clock.advance(1)
    assert await tick_all(pool) == 1
    assert (await get(pool, "b")).cause is Cause.TTL
    await check_books(redis, pool)


async def test_a_kicked_job_keeps_its_reason_for_who_looks(pool: Pool) -> None:
    await add(pool, "a")
    await pop_one(pool)
    await pool.bury("a", reason="why")
    await kick(pool, "a")
    assert (await pop_one(pool)).text(Tag.REASON) == "why"


async def test_what_is_not_dead_is_not_kicked(
    subtests: pytest.Subtests, redis: Redis, new_pool: NewPool, clock: HeldClock
) -> None:
    for bring, refusal in NOT_DEAD:
        with subtests.test(bring=bring.__name__, refusal=refusal):
            pool = await new_pool()
            await bring(pool, clock)
            before = await pool.get("a")
            with pytest.raises(refusal) as refused:
                await kick(pool, "a")
            assert refused.value.state == (before.state.word if before else None)
            assert await pool.get("a") == before
            await check_books(redis, pool)


async def test_some_of_a_list_are_kicked_and_each_answer_stands_in_its_place(
    redis: Redis, pool: Pool, clock: HeldClock
) -> None:
    await bury_all(pool, clock, ["a", "b"])
    await add(pool, "c", delay_ms=9)
    answers = await pool.kick(["b", "nobody", "a", "c", "a"])
    codes = [answer.code if isinstance(answer, JobQueueError) else answer for answer in answers]
    assert codes == ["ready", "NOT_FOUND", "ready", "WRONG_STATE", "WRONG_STATE"]
    assert await popped_ids(pool) == ["b", "a"]
    await check_books(redis, pool)


async def test_kicked_jobs_keep_their_priority(pool: Pool, clock: HeldClock) -> None:
    await bury_all(pool, clock, ["a"])
    await add(pool, "low", priority=0)
    await kick(pool, "a")
    assert await popped_ids(pool) == ["a", "low"]


async def test_a_late_worker_may_still_finish_a_buried_job(redis: Redis, pool: Pool) -> None:
    await add(pool, "a")
    lease = (await pop_one(pool)).lease
    await pool.bury("a")
    assert await finish(pool, "a", lease) == "finished"
    assert await Topics(pool).kick("t", 9) == 0
    await check_books(redis, pool)


async def test_a_topics_dead_letters_are_kicked_in_the_order_of_their_deaths_up_to_so_many(
    redis: Redis, pool: Pool, clock: HeldClock
) -> None:
    await bury_all(pool, clock, ["c", "a", "d", "b"])
    await bury_all(pool, clock, ["other"], "u")
    assert await Topics(pool).kick("t", 3) == 3
    assert await popped_ids(pool) == ["c", "a", "d"]
    assert await state(pool, "b") == "dead"
    await check_books(redis, pool)
    assert await Topics(pool).kick("t", 3) == 1
    assert await Topics(pool).kick("t", 3) == 0
    assert await state(pool, "other") == "dead"


async def test_a_thousand_dead_letters_are_kicked_at_once_over_all_shards(redis: Redis, clock: HeldClock) -> None:
    pool = await Pool.open(redis, "many", shards=3, clock=clock)
    ids = [f"{n:04}" for n in range(1_010)]
    await pool.add([NewJob(job_id, "t", b"", ttl_ms=1) for job_id in ids])
    clock.advance(1)
    await tick_all(pool)
    assert await Topics(pool).kick("t", 1_000) == 1_000
    assert (await Topics(pool).stats("t")).counts == {"delayed": 0, "ready": 1_000, "reserved": 0, "dead": 10}
    await check_books(redis, pool)


async def test_dead_letters_that_the_pool_does_not_bear_out_are_no_obstacle_to_those_behind_them(
    redis: Redis, pool: Pool, clock: HeldClock
) -> None:
    await bury_all(pool, clock, ["gone", "foreign", "b"])
    await add(pool, "alive", delay_ms=60_000)
    await bury_all(pool, clock, ["of u"], "u")
    await redis.read("ZADD", pool.keys[0].dead("t"), 1, "alive", 2, "of u", 3, "nobody")
    await redis.read("DEL", pool.keys[0].job("gone"))
    await redis.read("SET", pool.keys[0].job("foreign"), "from another program")
    assert await Topics(pool).kick("t", 1) == 1
    assert await redis.read("EXISTS", pool.keys[0].dead("t")) == 0
    assert [await state(pool, job_id) for job_id in ("alive", "b", "of u")] == ["delayed", "ready", "dead"]


async def test_trouble_with_redis_is_told_and_not_counted_as_nothing_to_kick(
    redis: Redis, pool: Pool, clock: HeldClock
) -> None:
    await bury_all(pool, clock, ["a"])
    await redis.read("SET", pool.keys[0].dead("t"), "broken")
    with pytest.raises(JobQueueError, match="WRONGTYPE"):
        await Topics(pool).kick("t", 1)
