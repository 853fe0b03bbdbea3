"""buckets.pool.pool, finish.lua, delete.lua, get.lua: how jobs end, and their tombstones."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from buckets.clock import HeldClock
from buckets.errors import JobQueueError, NotFound, NotReserved, Refused, StaleLease, Unavailable, WrongState
from buckets.job import State
from buckets.pool.pool import Pool
from buckets.redis.client import Redis
from buckets.topics.topics import Bounds, Topics
from tests.buckets.books import check_books
from tests.buckets.conftest import NewPool
from tests.buckets.jobs import add, delete, finish, get, kick, pop_one, popped_ids, state
from tests.buckets.lives import (
    Bring,
    dead,
    delayed_again,
    deleted,
    finished,
    never_popped_dead,
    never_popped_delayed,
    never_popped_ready,
    ready_again,
    reserved,
    unknown,
)
from tests.buckets.topics.walks import purge
from tests.kit.redis_server import RedisServer
from tests.kit.waiting import PATIENCE_S, tick_all, until

# The table of protocol.md, row by row: without a lease, with the newest, with an older one.
FINISH: list[tuple[Bring, str, list[type[Refused] | None]]] = [
    (reserved, "reserved", [None, None, StaleLease]),
    (delayed_again, "delayed", [None, None, StaleLease]),
    (ready_again, "ready", [None, None, StaleLease]),
    (dead, "dead", [None, None, StaleLease]),
    (never_popped_delayed, "delayed", [NotReserved, NotReserved, NotReserved]),
    (never_popped_ready, "ready", [NotReserved, NotReserved, NotReserved]),
    (never_popped_dead, "dead", [NotReserved, NotReserved, NotReserved]),
    (finished, "finished", [None, None, None]),
    (deleted, "deleted", [NotFound, NotFound, NotFound]),
    (unknown, "unknown", [NotFound, NotFound, NotFound]),
]


async def finish_within(pool: Pool, job_id: str, lease: int | None) -> str:
    return await finish(pool, job_id, lease, "t")


async def test_finish_answers_as_the_table_says(
    subtests: pytest.Subtests, redis: Redis, new_pool: NewPool, clock: HeldClock
) -> None:
    leases: list[str] = ["without a lease", "with the newest lease", "with an older lease"]
    for end, lease, (bring, was, answers) in itertools.product((finish, finish_within), leases, FINISH):
        with subtests.test(end=end, lease=lease, bring=bring.__name__, was=was):
            pool = await new_pool()
            newest, older = await bring(pool, clock)
            assert await state(pool, "a") == was
            column = ["without a lease", "with the newest lease", "with an older lease"].index(lease)
            shown = (None, newest, older)[column]
            refusal = answers[column]
            if refusal is None:
                assert await end(pool, "a", shown) == "finished"
                assert await state(pool, "a") == "finished"
            else:
                before = await pool.get("a")
                with pytest.raises(refusal) as refused:
                    await end(pool, "a", shown)
                assert refused.value.state == (None if was == "unknown" else was)
                assert await pool.get("a") == before
            clock.advance(86_400_000)
            await tick_all(pool)
            assert await popped_ids(pool) == ([] if refusal is None or was in ("deleted", "dead", "unknown") else ["a"])
            await check_books(redis, pool)


async def test_delete_cancels_in_any_live_state_and_says_which(
    subtests: pytest.Subtests, redis: Redis, new_pool: NewPool, clock: HeldClock
) -> None:
    cases: list[Bring] = [row[0] for row in FINISH if row[1] not in ("finished", "unknown")]
    for bring in cases:
        with subtests.test(bring=bring.__name__):
            pool = await new_pool()
            await bring(pool, clock)
            was = await state(pool, "a")
            assert await delete(pool, "a") == was
            assert await delete(pool, "a") == "deleted"
            assert await state(pool, "a") == "deleted"
            clock.advance(86_400_000)
            await tick_all(pool)
            assert await popped_ids(pool) == []
            assert (await Topics(pool).stats("t")).totals["deleted"] == 1
            await check_books(redis, pool)


async def test_delete_does_not_undo_a_finish(pool: Pool, clock: HeldClock) -> None:
    await finished(pool, clock)
    with pytest.raises(WrongState) as refusal:
        await delete(pool, "a")
    assert refusal.value.state == "finished"


async def test_delete_of_an_id_that_nobody_has_is_told(pool: Pool) -> None:
    with pytest.raises(NotFound):
        await delete(pool, "a")


async def test_a_batch_of_finishes_is_answered_in_its_order(pool: Pool) -> None:
    for job_id in "abc":
        await add(pool, job_id)
    await pop_one(pool)
    results = await pool.finish([("b", None), ("a", None), ("a", None), ("none", None)])
    assert [r.code if isinstance(r, JobQueueError) else r for r in results] == [
        *("NOT_RESERVED", "finished", "finished", "NOT_FOUND")
    ]
    results = await pool.delete(["c", "a", "none", "c", "b"])
    assert [r.code if isinstance(r, JobQueueError) else r for r in results] == [
        *("ready", "WRONG_STATE", "NOT_FOUND", "deleted", "ready")
    ]


async def test_a_tombstone_has_no_body_and_stays_for_the_retention(pool: Pool, clock: HeldClock) -> None:
    await add(pool, "a", retention_ms=3_600_000, body=b"x" * 1000)
    await delete(pool, "a")
    job = await get(pool, "a")
    assert (job.state, job.body, job.topic) == (State.DELETED, b"", "t")
    clock.advance(3_599_999)
    assert await state(pool, "a") == "deleted"
    clock.advance(1)
    assert await pool.get("a") is None
    with pytest.raises(NotFound):
        await finish(pool, "a")
    assert (await add(pool, "a")).result == "created"


async def settle(pool: Pool, job_id: str) -> str:
    return await finish(pool, job_id, None, "t", settles=True)


async def cancel(pool: Pool, job_id: str) -> str:
    return await delete(pool, job_id, "t")


ENDS: list[Callable[[Pool, str], Awaitable[str]]] = [finish, delete, settle, cancel]


async def test_a_tombstone_keeps_the_body_where_the_add_asked_for_it(
    subtests: pytest.Subtests, redis: Redis, new_pool: NewPool, clock: HeldClock
) -> None:
    for is_popped, end in itertools.product((True, False), ENDS):
        with subtests.test(is_popped=is_popped, end=end):
            pool = await new_pool()
            more: dict[str, Any] = {"headers": b'{"a":"b"}', "note": b"n", "retention_ms": 90_000, "ttl_ms": 600_000}
            await add(pool, "a", body=b"x" * 3_000, keeps_body=True, **more)
            if is_popped or end is finish:
                await pop_one(pool, worker="w")
            before = await get(pool, "a")
            await end(pool, "a")
            job = await get(pool, "a")
            assert job.state in (State.FINISHED, State.DELETED)
            assert (job.body, job.optional, job.deliveries) == (before.body, before.optional, before.deliveries)
            await end(pool, "a")
            assert await get(pool, "a") == job
            await check_books(redis, pool)
            clock.advance(90_000)
            assert await pool.get("a") is None
            assert (await add(pool, "a")).result == "created"


@pytest.mark.parametrize("ttr_ms", [None, 0])
async def test_a_job_popped_at_most_once_keeps_its_body_too(redis: Redis, pool: Pool, ttr_ms: int | None) -> None:
    await add(pool, "a", ttr_ms=60_000 if ttr_ms == 0 else 0, keeps_body=True, note=b"n")
    popped = await pop_one(pool, ttr_ms=ttr_ms, worker="w")
    assert (popped.state, popped.body, popped.note) == (State.FINISHED, b'"body"', b"n")
    job = await get(pool, "a")
    assert (job.state, job.body, job.note, job.deliveries) == (State.FINISHED, b'"body"', b"n", 1)
    await check_books(redis, pool)


async def test_redis_forgets_a_tombstone_with_its_body_by_itself(redis: Redis, live_pool: Pool) -> None:
    for job_id, end in zip("abcd", ENDS, strict=True):
        await add(live_pool, job_id, retention_ms=90_000, keeps_body=True)
        await pop_one(live_pool)
        await end(live_pool, job_id)
        assert 60_000 < await redis.read("PTTL", live_pool.keys[0].job(job_id)) <= 90_000


@pytest.mark.parametrize("how", ["replace", "renew"])
async def test_a_new_life_has_nothing_of_a_tombstone_with_its_body(redis: Redis, pool: Pool, how: str) -> None:
    await add(pool, "a", body=b"1" * 500, keeps_body=True, note=b"n")
    await pop_one(pool)
    await finish(pool, "a")
    assert (await add(pool, "a", body=b"2", if_exists=how)).result == "replaced"
    assert await redis.read("PTTL", pool.keys[0].job("a")) == -1
    job = await get(pool, "a")
    assert (job.state, job.body, job.optional) == (State.READY, b"2", {})
    await delete(pool, "a")
    assert (await get(pool, "a")).body == b""
    await check_books(redis, pool)


async def test_a_body_is_kept_through_all_that_happens_before_the_end(
    redis: Redis, pool: Pool, clock: HeldClock
) -> None:
    await add(pool, "a", keeps_body=True, delay_ms=1_000, backoff_ms=(1_000,), ttr_ms=1_000)
    await pool.update("a", body=b"new", priority=9)
    clock.advance(1_000)
    await tick_all(pool)
    await pool.unpop([await pop_one(pool)])
    await pop_one(pool, worker="w", ttr_ms=500)
    await pool.touch("a")
    clock.advance(500)
    await tick_all(pool)
    await pool.run("a")
    await pop_one(pool)
    await pool.release("a", delay_ms=0, reason="why")
    await pop_one(pool)
    await pool.bury("a", reason="poison")
    await kick(pool, "a")
    await pool.take("a")
    assert await finish(pool, "a") == "finished"
    assert (await get(pool, "a")).body == b"new"
    await check_books(redis, pool)


async def test_a_purge_and_a_limit_of_dead_letters_free_the_bodies(redis: Redis, pool: Pool) -> None:
    for job_id, delay_ms in (("dead", 0), ("ready", 0), ("delayed", 60_000)):
        await add(pool, job_id, keeps_body=True, delay_ms=delay_ms)
    await pop_one(pool)
    await pool.bury("dead")
    assert await Topics(pool).bound(0, lambda topic: Bounds(0, 0)) == 1
    assert await purge(pool, None) == 2
    for job_id in ("dead", "ready", "delayed"):
        job = await get(pool, job_id)
        assert (job.state, job.body) == (State.DELETED, b"")
    await check_books(redis, pool)


@pytest.mark.parametrize("end", [finish, delete])
async def test_an_end_that_is_repeated_does_not_prolong_the_tombstone(
    pool: Pool, clock: HeldClock, end: Callable[[Pool, str], Awaitable[str]]
) -> None:
    await add(pool, "a")
    await pop_one(pool)
    await end(pool, "a")
    tombstone = await get(pool, "a")
    clock.advance(30_000)
    await end(pool, "a")
    assert await get(pool, "a") == tombstone


async def test_the_retention_is_a_minute_unless_the_job_says_otherwise(pool: Pool, clock: HeldClock) -> None:
    await add(pool, "a")
    await delete(pool, "a")
    clock.advance(59_999)
    assert await state(pool, "a") == "deleted"
    clock.advance(1)
    assert await state(pool, "a") == "unknown"


async def test_redis_forgets_a_tombstone_by_itself(redis: Redis, live_pool: Pool) -> None:
    await add(live_pool, "a", retention_ms=90_000)
    await add(live_pool, "b", retention_ms=90_000)
    await pop_one(live_pool)
    await finish(live_pool, "a")
    await delete(live_pool, "b")
    for job_id in ("a", "b"):
        assert 60_000 < await redis.read("PTTL", live_pool.keys[0].job(job_id)) <= 90_000


async def test_a_tombstone_does_not_expire_by_redis_while_a_test_holds_the_clock(
    redis: Redis, pool: Pool, clock: HeldClock
) -> None:
    await add(pool, "a", retention_ms=1)
    await add(pool, "b", retention_ms=1)
    await pop_one(pool)
    await finish(pool, "a")
    await delete(pool, "b")
    for job_id in ("a", "b"):
        assert await redis.read("PTTL", pool.keys[0].job(job_id)) > 60_000
        assert await pool.get(job_id)
    clock.advance(1)
    assert [await pool.get(job_id) for job_id in ("a", "b")] == [None, None]


async def test_a_new_life_does_not_end_with_the_old_tombstone(redis: Redis, pool: Pool) -> None:
    await add(pool, "a")
    await delete(pool, "a")
    await add(pool, "a", if_exists="replace", delay_ms=5)
    assert await redis.read("PTTL", pool.keys[0].job("a")) == -1


@pytest.mark.parametrize("fields", [{}, {"note": b"n"}, {"keeps_body": True}])
@pytest.mark.parametrize("end", [finish, delete])
async def test_without_retention_nothing_is_left(
    redis: Redis, pool: Pool, end: Callable[[Pool, str], Awaitable[str]], fields: dict[str, Any]
) -> None:
    await add(pool, "a", retention_ms=0, **fields)
    await pop_one(pool)
    await end(pool, "a")
    assert await redis.read("EXISTS", pool.keys[0].job("a")) == 0
    with pytest.raises(NotFound):
        await end(pool, "a")
    assert (await add(pool, "a")).result == "created"
    await check_books(redis, pool)


async def test_an_at_most_once_job_without_retention_leaves_nothing(redis: Redis, pool: Pool) -> None:
    await add(pool, "a", retention_ms=0, ttr_ms=0)
    assert (await pop_one(pool)).body == b'"body"'
    assert await pool.get("a") is None
    await check_books(redis, pool)


async def test_finishing_a_ready_job_takes_it_out_of_its_place(redis: Redis, pool: Pool, clock: HeldClock) -> None:
    await ready_again(pool, clock)
    await add(pool, "b")
    await finish(pool, "a")
    assert await popped_ids(pool) == ["b"]
    await check_books(redis, pool)


async def test_a_worker_of_an_earlier_life_with_its_lease_does_not_end_the_new_one(
    pool: Pool, clock: HeldClock
) -> None:
    newest, _ = await ready_again(pool, clock)
    await add(pool, "a", if_exists="replace")
    await pop_one(pool)
    with pytest.raises(StaleLease):
        await finish(pool, "a", newest)


async def test_an_unknown_id_is_nobody(pool: Pool) -> None:
    assert await pool.get("nobody") is None


@pytest.mark.parametrize("shards", [1, 4])
async def test_a_finish_reports_that_it_is_sent_before_redis_answers(own_server: RedisServer, shards: int) -> None:
    redis = Redis(own_server.url)
    pool = await Pool.open(redis, shards=shards)
    own_server.freeze()
    few, many = asyncio.Event(), asyncio.Event()
    finishing = [
        asyncio.create_task(pool.finish([(f"{number}", None) for number in range(20)], few.set)),
        asyncio.create_task(pool.finish([(f"{number}", None) for number in range(2_000)], many.set)),
    ]
    async with asyncio.timeout(PATIENCE_S):
        await few.wait()
    assert not any(task.done() for task in finishing)
    own_server.thaw()
    results = await asyncio.gather(*finishing)
    assert {type(result) for each in results for result in each} == {NotFound}
    assert not many.is_set()  # they take several scripts: a pop behind them waits for their answers
    await pool.close()
    await redis.close()


async def test_a_finish_that_finds_no_redis_is_never_reported_as_sent(own_server: RedisServer) -> None:
    redis = Redis(own_server.url, timeout_s=1.0)
    pool = await Pool.open(redis)
    link = await redis.link_to(pool.keys[0].meta)
    own_server.kill()
    await until(lambda: link.lost)
    sent = asyncio.Event()
    (result,) = await pool.finish([("a", None)], sent.set)
    assert isinstance(result, Unavailable)
    assert not sent.is_set()
    await pool.close()
    await redis.close()
