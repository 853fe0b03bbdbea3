"""buckets.pool.pool, add.lua: adding jobs."""

from __future__ import annotations

import asyncio
import itertools
import re
import struct
from dataclasses import replace
from typing import Any

import pytest

from buckets.clock import HeldClock
from buckets.errors import AlreadyExists, JobQueueError, Reserved, Unfit
from buckets.job import NewJob, State, Tag
from buckets.pool.codec import Added
from buckets.pool.pool import Pool
from buckets.redis.client import Redis
from buckets.topics.topics import Topics
from tests.buckets.books import check_books
from tests.buckets.conftest import NewPool
from tests.buckets.jobs import add, delete, finish, get, pop, pop_one, popped_ids, state
from tests.kit.waiting import tick_all, until

STATES = ["delayed", "ready", "reserved", "dead", "finished", "deleted"]


async def bring(pool: Pool, clock: HeldClock, job_id: str, to: str) -> None:
    """Make a job and bring it into a state."""
    await add(pool, job_id, delay_ms=60_000 if to == "delayed" else 0, tries=1, ttr_ms=1_000)
    if to in ("reserved", "finished", "dead"):
        await pop_one(pool)
    if to == "finished":
        await finish(pool, job_id)
    elif to == "deleted":
        await delete(pool, job_id)
    elif to == "dead":
        clock.advance(1_000)
        await tick_all(pool)
    assert await state(pool, job_id) == to


async def test_a_job_without_a_delay_is_ready_and_due_at_once(pool: Pool, clock: HeldClock) -> None:
    now = clock.now_us // 1000
    assert await add(pool, "a") == Added("created", "ready", now)
    assert await popped_ids(pool) == ["a"]


async def test_a_delayed_job_is_not_ready_a_microsecond_before_it_is_due(pool: Pool, clock: HeldClock) -> None:
    added = await add(pool, "a", delay_ms=1_000)
    assert added == Added("created", "delayed", clock.now_us // 1000 + 1_000)
    clock.now_us += 999_999
    assert await tick_all(pool) == 0
    assert await popped_ids(pool) == []
    clock.now_us += 1
    assert await tick_all(pool) == 1
    assert await popped_ids(pool) == ["a"]


async def test_a_due_time_within_a_millisecond_is_rounded_up(pool: Pool, clock: HeldClock) -> None:
    clock.now_us += 1
    assert (await add(pool, "a", delay_ms=1_000)).due == clock.now_us // 1000 + 1_001
    clock.now_us += 1_000_998
    assert await tick_all(pool) == 0
    clock.now_us += 1
    assert await tick_all(pool) == 1


async def test_an_absolute_due_time_is_taken_as_it_is(pool: Pool, clock: HeldClock) -> None:
    at = clock.now_us // 1000 + 5_000
    clock.now_us += 999
    assert await add(pool, "a", due_ms=at, delay_ms=99) == Added("created", "delayed", at)


async def test_a_due_time_in_the_past_is_now(pool: Pool, clock: HeldClock) -> None:
    now = clock.now_us // 1000
    assert await add(pool, "a", due_ms=now - 5_000) == Added("created", "ready", now)
    assert await add(pool, "b", due_ms=1) == Added("created", "ready", now)


async def test_a_delay_of_ten_years_fits(pool: Pool, clock: HeldClock) -> None:
    years = 10 * 365 * 86_400_000
    await add(pool, "a", delay_ms=years, ttl_ms=years)
    clock.advance(years - 1)
    assert await tick_all(pool) == 0
    clock.advance(1)
    await tick_all(pool)
    assert await popped_ids(pool) == ["a"]


KEPT = [(old, "keep") for old in STATES if old not in ("dead", "deleted")] + [
    (old, "renew") for old in ("delayed", "ready", "reserved")
]


async def test_keep_changes_nothing_and_renew_nothing_of_a_live_job(
    subtests: pytest.Subtests, new_pool: NewPool, clock: HeldClock
) -> None:
    for old, how in KEPT:
        with subtests.test(old=old, how=how):
            pool = await new_pool()
            await bring(pool, clock, "a", old)
            before = await get(pool, "a")
            stats = await Topics(pool).stats("t")
            added = await add(pool, "a", "t2", b"other", delay_ms=5, if_exists=how)
            assert added == Added("existing", old, before.due)
            assert await get(pool, "a") == before
            assert await Topics(pool).stats("t") == stats
            assert await Topics(pool).names(0) == ["t"]


async def test_reject_refuses_and_names_the_state(
    subtests: pytest.Subtests, new_pool: NewPool, clock: HeldClock
) -> None:
    for old in STATES:
        with subtests.test(old=old):
            pool = await new_pool()
            await bring(pool, clock, "a", old)
            before = await get(pool, "a")
            with pytest.raises(AlreadyExists) as refusal:
                await add(pool, "a", "t2", if_exists="reject")
            assert refusal.value.state == old
            assert await get(pool, "a") == before


async def test_a_delayed_copy_of_an_old_add_does_not_revive_what_was_cancelled(pool: Pool, clock: HeldClock) -> None:
    await add(pool, "a", retention_ms=5_000)
    await delete(pool, "a")
    before = await get(pool, "a")
    clock.advance(4_999)
    with pytest.raises(AlreadyExists, match=r"was deleted .* with if_exists renew or replace$") as refusal:
        await add(pool, "a", "t2")
    assert refusal.value.state == "deleted"
    assert await get(pool, "a") == before
    clock.advance(1)  # the end of its retention
    assert (await add(pool, "a")).result == "created"


async def test_an_add_that_finds_the_job_dead_is_refused_and_says_what_would_run_it(
    pool: Pool, clock: HeldClock
) -> None:
    await bring(pool, clock, "a", "dead")
    before = await get(pool, "a")
    with pytest.raises(AlreadyExists, match=r"is dead; kick it, or add it with if_exists renew or replace$") as refusal:
        await add(pool, "a", "t2")
    assert refusal.value.state == "dead"
    assert await get(pool, "a") == before


RENEWED = [(old, "replace") for old in STATES if old != "reserved"] + [
    (old, "renew") for old in ("dead", "finished", "deleted")
]


async def test_replace_begins_a_new_life_and_so_does_renew_of_a_dead_or_ended_job(
    subtests: pytest.Subtests, redis: Redis, new_pool: NewPool, clock: HeldClock
) -> None:
    for to, (old, how) in itertools.product(("delayed", "ready"), RENEWED):
        with subtests.test(to=to, old=old, how=how):
            pool = await new_pool()
            await bring(pool, clock, "a", old)
            number, lease = (before := await get(pool, "a")).number, before.lease
            clock.advance(7)
            now = clock.now_us // 1000
            delay = 5_000 if to == "delayed" else 0
            added = await add(pool, "a", "t2", b"new", delay_ms=delay, priority=9, tries=3, if_exists=how)
            assert added == Added("replaced", to, now + delay)
            job = await get(pool, "a")
            assert (job.topic, job.body, job.priority, job.tries, job.created) == ("t2", b"new", 9, 3, now)
            assert (job.attempts, job.deliveries, job.kind.step, job.cause) == (0, 0, 0, 0)
            assert job.lease == lease  # the next lease is higher
            assert job.number >= number
            assert await popped_ids(pool, "t") == []
            clock.advance(5_000)
            await tick_all(pool)
            assert await popped_ids(pool, "t2") == ["a"]
            await check_books(redis, pool)


async def test_replace_waits_for_the_worker(pool: Pool, clock: HeldClock) -> None:
    await bring(pool, clock, "a", "reserved")
    before = await get(pool, "a")
    with pytest.raises(Reserved) as refusal:
        await add(pool, "a", if_exists="replace")
    assert refusal.value.state == "reserved"
    assert await get(pool, "a") == before


@pytest.mark.parametrize("if_exists", ["reject", "replace"])
async def test_an_id_that_nobody_has_is_created_in_every_mode(pool: Pool, if_exists: str) -> None:
    assert (await add(pool, "a", if_exists=if_exists)).result == "created"


async def test_a_batch_is_answered_in_its_order_and_one_refusal_does_not_spoil_the_rest(pool: Pool) -> None:
    await add(pool, "b")
    jobs = [NewJob("a", "t", b"1"), NewJob("b", "t", b"2", if_exists="reject"), NewJob("c", "t", b"3", delay_ms=9)]
    first, second, third = await pool.add(jobs)
    assert isinstance(first, Added)
    assert isinstance(second, AlreadyExists)
    assert isinstance(third, Added)
    assert (first.state, second.state, third.state) == ("ready", "ready", "delayed")
    assert await popped_ids(pool) == ["b", "a"]


async def test_a_batch_with_one_id_twice_is_as_if_one_came_after_the_other(redis: Redis, pool: Pool) -> None:
    jobs = [
        NewJob("a", "t", b"1"),
        NewJob("a", "t", b"2", if_exists="replace"),
        NewJob("a", "t", b"3"),
        NewJob("a", "t", b"4", if_exists="reject"),
    ]
    results = await pool.add(jobs)
    words = [result.code if isinstance(result, JobQueueError) else result.result for result in results]
    assert words == ["created", "replaced", "existing", "ALREADY_EXISTS"]
    assert [job.body for job in await pop(pool, count=9)] == [b"2"]
    await check_books(redis, pool)


async def test_a_large_batch_is_kept_whole_and_in_order(redis: Redis, pool: Pool) -> None:
    jobs = [NewJob(f"{n:04}", "t", b"x" * (n % 7) * 1000) for n in range(1000)]
    assert all(isinstance(result, Added) for result in await pool.add(jobs))
    assert await popped_ids(pool, count=1000) == [job.id for job in jobs]
    await check_books(redis, pool)


async def test_jobs_of_one_batch_have_each_its_own_options(pool: Pool, clock: HeldClock) -> None:
    """Fields that jobs of a batch share travel once; fields that differ must not be lost by that."""
    first = NewJob("first", "t", b"1", delay_ms=1_000)
    options: list[dict[str, Any]] = [
        *({}, {"ttr_ms": 1}, {"priority": 9}, {"tries": 3}, {"backoff_ms": (5,)}, {"ttl_ms": 7}, {"retention_ms": 0}),
        *({"headers": b'{"a":"b"}'}, {"tags": b'["a"]'}, {"delay_ms": 0}, {"delay_ms": 90_000_000}, {"due_ms": 1}),
    ]
    jobs = [replace(first, id=f"{n}", body=b"%d" % n, **each) for n, each in enumerate(options)]
    added = await pool.add([each for job in jobs for each in (job, replace(first, id=f"{job.id} first"))])
    for job, told in zip(jobs, added[::2], strict=True):
        assert isinstance(told, Added)
        kept, now = await get(pool, job.id), clock.now_us // 1000
        due = max(job.due_ms, now) if job.due_ms else now + job.delay_ms + (clock.now_us % 1000 > 0 < job.delay_ms)
        assert (kept.due, kept.state.word) == (told.due, told.state) == (due, "delayed" if due > now else "ready")
        assert (kept.body, kept.ttr, kept.priority, kept.tries) == (job.body, job.ttr_ms, job.priority, job.tries)
        assert (kept.backoff, kept.ttl, kept.retention) == (job.backoff_ms, job.ttl_ms, job.retention_ms)
        assert kept.optional.get(Tag.HEADERS, b"") == job.headers
        assert kept.optional.get(Tag.TAGS, b"") == job.tags
        assert (await get(pool, f"{job.id} first")).body == b"1"
    await check_books(pool.redis, pool)


async def test_the_timer_of_a_bucket_hears_of_the_first_job_of_a_batch(redis: Redis, clock: HeldClock) -> None:
    pool = await Pool.open(redis, "early", buckets=1, clock=clock)
    heard: list[str] = []
    ready = asyncio.Event()
    listening = asyncio.create_task(redis.listen(pool.keys[0].bell, heard.append, ready.set))
    await ready.wait()
    await add(pool, "second", delay_ms=8_000)
    await pool.add([NewJob("first", "t", b"", delay_ms=5_000), NewJob("third", "t", b"", delay_ms=10_000)])
    await redis.read("SPUBLISH", pool.keys[0].bell, "then")
    await add(pool, "beside the first", delay_ms=5_000)
    await redis.read("SPUBLISH", pool.keys[0].bell, "end")
    await until(lambda: "end" in heard)
    assert heard == ["due 0", "due 0", "then", "end"]
    listening.cancel()


async def test_calls_go_round_all_buckets(pool: Pool, clock: HeldClock) -> None:
    """Jobs that are added together may become due together, and are then moved by one script."""
    clock.now_us -= clock.now_us % pool.buckets
    seen = []
    for call in range(pool.buckets * 2):
        ids = [f"{call}-{each}" for each in range(1 + call % 3)]
        await pool.add([NewJob(job_id, "t", b"", delay_ms=60_000) for job_id in ids])
        (bucket,) = {(await get(pool, job_id)).bucket for job_id in ids}
        seen.append(bucket)
    assert sorted(seen) == sorted([*range(pool.buckets)] * 2)


async def test_single_jobs_take_the_buckets_strictly_in_turn(pool: Pool, clock: HeldClock) -> None:
    seen = []
    for call in range(2 * pool.buckets):
        clock.now_us += 7919  # as without a held clock
        await add(pool, str(call), delay_ms=60_000)
        seen.append((await get(pool, str(call))).bucket)
    assert seen == [(seen[0] + call) % pool.buckets for call in range(2 * pool.buckets)]


async def test_a_batch_of_large_jobs_is_split_by_its_bytes(redis: Redis, pool: Pool) -> None:
    """A long script blocks everybody."""
    await redis.read("CONFIG", "RESETSTAT")
    await pool.add([NewJob(str(number), "t", b"x" * 400_000) for number in range(6)])
    said = (await redis.read("INFO", "commandstats")).decode()
    assert re.search(r"cmdstat_evalsha:calls=3,", said)


@pytest.mark.parametrize("bad", [{"priority": 300}, {"delay_ms": -1}, {"due_ms": 1 << 48}, {"retention_ms": 1 << 32}])
async def test_a_job_that_no_record_can_hold_is_refused_and_costs_no_other_its_place(
    pool: Pool, bad: dict[str, Any]
) -> None:
    good = [NewJob(str(number), "t", b"1") for number in range(3)]
    kept, refused = await asyncio.gather(
        pool.add(good), pool.add([replace(good[0], id="bad", **bad)]), return_exceptions=True
    )
    assert isinstance(kept, list) and all(isinstance(each, Added) for each in kept)
    assert isinstance(refused, ValueError | OverflowError | struct.error)
    with pytest.raises((ValueError, OverflowError, struct.error)):
        await pool.add([*(replace(good[0], id=f"more{number}") for number in range(250)), replace(good[0], **bad)])
    assert await popped_ids(pool) == ["0", "1", "2"]


async def test_who_adds_one_job_and_many_by_turns_fills_no_bucket_more_than_others(
    pool: Pool, clock: HeldClock
) -> None:
    """With strict round robin, all of the many would go into every second bucket."""
    for call in range(50):
        clock.now_us += 7919  # as without a held clock: any microsecond
        await pool.add([NewJob(f"{call}-{each}", "t", b"", delay_ms=60_000) for each in range(10)])
        await add(pool, f"{call}", delay_ms=60_000)
    sizes = [await pool.redis.read("ZCARD", pool.keys[0].bucket(each)) for each in range(pool.buckets)]
    assert max(sizes) < 2 * min(sizes)


@pytest.mark.parametrize("state", ["delayed", "reserved", "ready"])
async def test_a_repeated_add_repairs_a_job_that_no_bucket_holds(
    redis: Redis, pool: Pool, clock: HeldClock, state: str
) -> None:
    """As after a crash that lost the index. A ready job with a ttl has an entry in a bucket as well."""
    await add(pool, "a", ttl_ms=60_000, ttr_ms=5_000, delay_ms=5_000 if state == "delayed" else 0)
    if state == "reserved":
        await pop_one(pool)
    for bucket in range(pool.buckets):
        await redis.read("ZREM", pool.keys[0].bucket(bucket), "a")
    assert (await add(pool, "a", ttl_ms=60_000)).state == state
    await check_books(redis, pool)
    clock.advance(5_000)
    await tick_all(pool)
    assert (await get(pool, "a")).state is State.READY
    clock.advance(60_000)
    await tick_all(pool)
    assert (await get(pool, "a")).state is State.DEAD


async def test_the_namespace_keeps_its_numbers_of_shards_and_buckets(redis: Redis) -> None:
    first = await Pool.open(redis, "shop", shards=2, buckets=3)
    second = await Pool.open(redis, "shop", shards=5, buckets=9)
    assert (len(second.keys), second.buckets) == (len(first.keys), first.buckets) == (2, 3)


@pytest.mark.parametrize(
    ("field", "value"), [("format", "3"), ("format", "1"), ("slices", "0"), ("hash", "murmur"), ("events", "on")]
)
async def test_a_namespace_of_a_version_that_this_one_does_not_know_is_refused(
    redis: Redis, field: str, value: str
) -> None:
    pool = await Pool.open(redis, "shop")
    await redis.read("HSET", pool.keys[0].meta, field, value)
    with pytest.raises(Unfit, match="another version"):
        await Pool.open(redis, "shop")


async def test_a_namespace_with_a_brace_is_refused(redis: Redis) -> None:
    with pytest.raises(Unfit, match="namespace"):
        await Pool.open(redis, "a}b")


async def test_two_namespaces_on_one_redis_do_not_see_each_other(redis: Redis) -> None:
    one, two = await Pool.open(redis, "one"), await Pool.open(redis, "two")
    await add(one, "a", body=b"1")
    assert await popped_ids(two) == []
    assert (await add(two, "a", body=b"2")).result == "created"
    assert (await pop_one(one)).body == b"1"


async def test_a_delay_is_the_time_between_a_jobs_creation_and_its_due_time(pool: Pool, clock: HeldClock) -> None:
    clock.now_us += 400  # within a millisecond
    for how, body in (("keep", b"1"), ("replace", b"2")):  # the fast path, and the complete one
        await pool.add(
            [NewJob("later", "t", body, delay_ms=1500, if_exists=how), NewJob("now", "t", body, if_exists=how)]
        )
        for job_id, delay in (("later", 1500), ("now", 0)):
            job = await pool.get(job_id)
            assert job and job.body == body and job.due - job.created == delay
        clock.advance(1)


async def test_lives_of_an_id_differ_in_their_creation_within_a_millisecond_too(pool: Pool, clock: HeldClock) -> None:
    created = []
    for delay in (0, 1500, 1500):
        await pool.add([NewJob("a", "t", b"1", delay_ms=delay, if_exists="replace")])
        job = await pool.get("a")
        assert job
        created.append(job.created)
        assert not delay or job.due - job.created == delay
    assert created[0] < created[1] < created[2] <= created[0] + 3
