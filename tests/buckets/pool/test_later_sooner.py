"""add.lua: adds that move a delayed job to another time, in one direction only."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from buckets.clock import HeldClock
from buckets.errors import AlreadyExists, JobQueueError, NoBody, Refused, Reserved, TooLate, TopicFull
from buckets.job import Cause, NewJob
from buckets.pool.codec import Added
from buckets.pool.pool import Pool
from buckets.redis.client import Redis
from buckets.topics.topics import Topics
from tests.buckets.books import check_books
from tests.buckets.conftest import NewPool
from tests.buckets.jobs import add, delete, finish, get, pop_one, popped_ids, state
from tests.buckets.pool.test_add import STATES, bring
from tests.buckets.pool.test_groups import add_group, group, results
from tests.kit.waiting import tick_all, until

BOTH = pytest.mark.parametrize("how", ["later", "sooner"])
ENDED = ["finished", "deleted"]


@pytest.mark.parametrize(("how", "delay_ms"), [("later", 60_001), ("later", 90_000_000), ("sooner", 59_999)])
async def test_a_delayed_job_is_moved_in_the_right_direction(
    redis: Redis, pool: Pool, clock: HeldClock, how: str, delay_ms: int
) -> None:
    await add(pool, "a", body=b"old", delay_ms=60_000)
    before = await get(pool, "a")
    due = clock.now_us // 1000 + delay_ms
    assert await add(pool, "a", body=b"new", delay_ms=delay_ms, if_exists=how) == Added("moved", "delayed", due)
    job = await get(pool, "a")
    assert (job.body, job.due, job.next, job.created) == (b"new", due, due, before.created)
    await check_books(redis, pool)
    clock.now_us = due * 1000 - 1
    assert await tick_all(pool) == 0
    clock.now_us += 1
    assert await tick_all(pool) == 1
    assert await popped_ids(pool) == ["a"]
    assert (await Topics(pool).stats("t")).totals == {"created": 1, "delivered": 1}


@pytest.mark.parametrize(("how", "delay_ms"), [("later", 59_999), ("later", 0), ("sooner", 60_001)])
async def test_in_the_other_direction_it_stays_as_it_is(pool: Pool, how: str, delay_ms: int) -> None:
    await add(pool, "a", body=b"old", delay_ms=60_000)
    before = await get(pool, "a")
    assert await add(pool, "a", body=b"new", delay_ms=delay_ms, if_exists=how) == Added(
        "existing", "delayed", before.due
    )
    assert await get(pool, "a") == before


@BOTH
async def test_at_the_same_time_it_keeps_its_body(pool: Pool, how: str) -> None:
    due = (await add(pool, "a", body=b"old", delay_ms=60_000)).due
    assert (await add(pool, "a", body=b"new", due_ms=due, if_exists=how)).result == "existing"
    assert (await get(pool, "a")).body == b"old"


async def test_what_comes_sooner_than_now_is_ready(redis: Redis, pool: Pool, clock: HeldClock) -> None:
    await add(pool, "a", delay_ms=60_000, ttl_ms=5_000)
    clock.advance(7)
    now = clock.now_us // 1000
    assert await add(pool, "a", due_ms=now - 5, if_exists="sooner") == Added("moved", "ready", now)
    await check_books(redis, pool)
    clock.advance(5_000)  # its ttl counts from there
    await tick_all(pool)
    assert await state(pool, "a") == "dead"


async def test_a_move_changes_nothing_but_time_and_body(pool: Pool) -> None:
    own: dict[str, Any] = {"priority": 7, "tries": 3, "ttl_ms": 9_000, "headers": b'{"a":"b"}', "backoff_ms": (5,)}
    await add(pool, "a", body=b"old", delay_ms=1_000, **own)
    before = await get(pool, "a")
    others: dict[str, Any] = {"priority": 1, "tries": 9, "ttl_ms": 1, "tags": b'["x"]', "headers": b"{}"}
    moved = await add(pool, "a", body=b"a longer one", delay_ms=2_000, if_exists="later", **others)
    job = await get(pool, "a")
    assert (job.body, job.due) == (b"a longer one", moved.due)
    same = ("topic", "priority", "tries", "ttl", "ttr", "optional", "created", "bucket", "number")
    assert {name: getattr(job, name) for name in same} == {name: getattr(before, name) for name in same}


@BOTH
async def test_without_a_body_the_old_one_stays(pool: Pool, how: str) -> None:
    await add(pool, "a", body=b"x" * 300, delay_ms=1_000, headers=b"{}")
    assert (await add(pool, "a", body=b"", delay_ms=2_000 if how == "later" else 500, if_exists=how)).result == "moved"
    job = await get(pool, "a")
    assert (job.body, job.state.word) == (b"x" * 300, "delayed")


@BOTH
@pytest.mark.parametrize(("old", "error"), [("ready", TooLate), ("reserved", Reserved)])
async def test_a_job_that_has_fired_is_left_alone(
    pool: Pool, clock: HeldClock, how: str, old: str, error: type[Refused]
) -> None:
    await bring(pool, clock, "a", old)
    before = await get(pool, "a")
    for body in (b"new", b""):
        with pytest.raises(error) as refusal:
            await add(pool, "a", body=body, delay_ms=5, if_exists=how)
        assert refusal.value.state == old
    assert await get(pool, "a") == before


@BOTH
async def test_what_is_dead_or_has_ended_begins_a_new_life(
    subtests: pytest.Subtests, redis: Redis, new_pool: NewPool, clock: HeldClock, how: str
) -> None:
    for old in ("dead", *ENDED):
        with subtests.test(old=old):
            pool = await new_pool()
            await bring(pool, clock, "a", old)
            clock.advance(7)
            due = clock.now_us // 1000 + 5_000
            added = await add(pool, "a", body=b"new", delay_ms=5_000, priority=9, if_exists=how)
            assert added == Added("replaced", "delayed", due)
            job = await get(pool, "a")
            assert (job.body, job.priority, job.due, job.attempts, job.cause) == (b"new", 9, due, 0, Cause.NONE)
            await check_books(redis, pool)


@BOTH
async def test_a_new_life_without_a_body_has_that_of_the_dead_letter(pool: Pool, clock: HeldClock, how: str) -> None:
    await bring(pool, clock, "a", "dead")
    assert (await add(pool, "a", body=b"", priority=9, if_exists=how)).result == "replaced"
    job = await pop_one(pool)
    assert (job.body, job.priority) == (b'"body"', 9)


@BOTH
@pytest.mark.parametrize("old", ENDED)
async def test_a_new_life_without_a_body_has_that_of_a_tombstone_that_kept_it(pool: Pool, how: str, old: str) -> None:
    await add(pool, "a", body=b"x" * 300, keeps_body=True)
    await (finish(pool, (await pop_one(pool)).id) if old == "finished" else delete(pool, "a"))
    assert (await add(pool, "a", body=b"", if_exists=how)).result == "replaced"
    assert (await pop_one(pool)).body == b"x" * 300


@BOTH
async def test_without_a_body_and_none_to_keep_nothing_is_added(
    subtests: pytest.Subtests, redis: Redis, new_pool: NewPool, clock: HeldClock, how: str
) -> None:
    for old in ("unknown", *ENDED):
        with subtests.test(old=old):
            pool = await new_pool()
            if old != "unknown":
                await bring(pool, clock, "a", old)
            before = await pool.get("a")
            first, refused, last = await pool.add(
                [NewJob(job_id, "t", body, 5, if_exists=how) for job_id, body in (("b", b"1"), ("a", b""), ("c", b"2"))]
            )
            assert isinstance(refused, NoBody)
            assert [each.result for each in (first, last) if isinstance(each, Added)] == ["created", "created"]
            assert await pool.get("a") == before
            await check_books(redis, pool)


@BOTH
async def test_a_job_of_another_topic_is_left_alone(
    subtests: pytest.Subtests, new_pool: NewPool, clock: HeldClock, how: str
) -> None:
    for old in STATES:
        with subtests.test(old=old):
            pool = await new_pool()
            await bring(pool, clock, "a", old)
            before = await get(pool, "a")
            for body in (b"new", b""):
                with pytest.raises(AlreadyExists) as refusal:
                    await add(pool, "a", "t2", body=body, delay_ms=90_000 if how == "later" else 0, if_exists=how)
                assert refusal.value.state == old
            assert await get(pool, "a") == before


async def test_a_job_in_back_off_is_moved_and_its_deliveries_still_count(
    redis: Redis, pool: Pool, clock: HeldClock
) -> None:
    await add(pool, "a", tries=2, ttr_ms=1_000, backoff_ms=(5_000, 60_000))
    await pop_one(pool)
    clock.advance(1_000)
    await tick_all(pool)
    waiting = await get(pool, "a")
    assert (waiting.state.word, waiting.cause, waiting.next - waiting.due) == ("delayed", Cause.LEASE, 6_000)
    assert (await add(pool, "a", delay_ms=4_999, if_exists="later")).result == "existing"  # it waits until 5,000
    moved = await add(pool, "a", body=b"new", delay_ms=5_001, if_exists="later")
    job = await get(pool, "a")
    assert (moved.result, moved.due, job.due, job.next) == ("moved", job.next, moved.due, moved.due)
    assert (job.attempts, job.deliveries, job.kind.step, job.lease) == (1, 1, 1, waiting.lease)
    assert job.cause is Cause.NONE  # its time is no longer that of its back-off
    await check_books(redis, pool)
    clock.advance(5_001)
    await tick_all(pool)
    assert (await pop_one(pool)).body == b"new"
    clock.advance(1_000)
    await tick_all(pool)
    assert await state(pool, "a") == "dead"  # the second of its two tries


async def test_a_move_needs_no_room_in_a_full_topic_and_a_new_life_does(pool: Pool, clock: HeldClock) -> None:
    await bring(pool, clock, "dead", "dead")
    await add(pool, "a", delay_ms=5_000)
    assert (await add(pool, "a", delay_ms=6_000, if_exists="later", most_pending=1)).result == "moved"
    for job_id in ("dead", "new"):
        with pytest.raises(TopicFull):
            await add(pool, job_id, delay_ms=6_000, if_exists="later", most_pending=1)


async def test_the_timer_of_a_bucket_hears_of_a_job_that_is_moved_before_all_others(
    redis: Redis, clock: HeldClock
) -> None:
    pool = await Pool.open(redis, "sooner", buckets=1, clock=clock)
    heard: list[str] = []
    ready = asyncio.Event()
    listening = asyncio.create_task(redis.listen(pool.keys[0].bell, heard.append, ready.set))
    await ready.wait()
    await pool.add([NewJob("a", "t", b"", delay_ms=8_000), NewJob("b", "t", b"", delay_ms=9_000)])
    await redis.read("SPUBLISH", pool.keys[0].bell, "later")
    await add(pool, "a", delay_ms=10_000, if_exists="later")
    await redis.read("SPUBLISH", pool.keys[0].bell, "sooner")
    await add(pool, "a", delay_ms=5_000, if_exists="sooner")
    await redis.read("SPUBLISH", pool.keys[0].bell, "ready")
    await add(pool, "a", if_exists="sooner")
    await redis.read("SPUBLISH", pool.keys[0].bell, "end")
    await until(lambda: "end" in heard)
    assert heard == ["due 0", "later", "sooner", "due 0", "ready", "ready 1 t", "end"]
    listening.cancel()


async def test_all_copies_of_a_group_are_moved_each_in_its_topic(redis: Redis, pool: Pool) -> None:
    await add_group(pool, "cart", "mail", "crm", delay_ms=1_000)
    moved = await add_group(pool, "cart", "mail", "crm", "new", delay_ms=2_000, if_exists="later")
    assert results(moved) == ["moved", "moved", "created"]
    assert results(await add_group(pool, "cart", "mail", "crm", delay_ms=500, if_exists="later")) == ["existing"] * 2
    await check_books(redis, pool)


@pytest.mark.parametrize(("spoil", "error"), [("pop", Reserved), ("run", TooLate), ("finish", NoBody)])
async def test_a_group_is_moved_whole_or_not_at_all(
    redis: Redis, pool: Pool, spoil: str, error: type[JobQueueError]
) -> None:
    await add_group(pool, "cart", "mail", "crm", delay_ms=1_000)
    await pool.run("cart@crm")
    if spoil != "run":
        await pop_one(pool, "crm")
    if spoil == "finish":
        await finish(pool, "cart@crm")
    before = await get(pool, "cart@mail")
    without_body = [replace(each, body=b"") for each in group("cart", "mail", "crm", delay_ms=9, if_exists="sooner")]
    (refused,) = await pool.add_groups([without_body])
    assert isinstance(refused, error)
    assert await get(pool, "cart@mail") == before
    await check_books(redis, pool)
