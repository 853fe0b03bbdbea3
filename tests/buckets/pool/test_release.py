"""buckets.pool.pool, release.lua: giving a job back."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from buckets.clock import HeldClock
from buckets.job import Cause, Job, State, Tag
from buckets.pool.pool import Moved, Pool
from buckets.redis.client import Redis
from buckets.topics.topics import Topics
from tests.buckets.books import check_books
from tests.buckets.conftest import NewPool
from tests.buckets.jobs import add, finish, get, pop, pop_one, popped_ids, state
from tests.kit.waiting import tick_all

PAYMENT = (15_000, 15_000, 30_000, 180_000)
TTR_MS = 1_000

End = Callable[[Pool, HeldClock, Job], Awaitable[None]]


async def its_ttr_ends(pool: Pool, clock: HeldClock, job: Job) -> None:
    clock.advance(TTR_MS)
    await tick_all(pool)


async def it_is_released(pool: Pool, clock: HeldClock, job: Job) -> None:
    await pool.release(job.id, job.lease)


async def it_is_released_as_no_try(pool: Pool, clock: HeldClock, job: Job) -> None:
    await pool.release(job.id, job.lease, counts=False)


async def test_a_released_job_goes_to_the_back_of_the_ready_list(redis: Redis, pool: Pool, clock: HeldClock) -> None:
    for job_id in "abc":
        await add(pool, job_id)
    lease = (await pop_one(pool)).lease
    clock.advance(3)
    assert await pool.release("a", lease) == Moved("ready", clock.now_us // 1000)
    await check_books(redis, pool)
    assert await popped_ids(pool) == ["b", "c", "a"]
    assert (await Topics(pool).stats("t")).totals == {"created": 3, "delivered": 4, "redelivered": 1}
    await check_books(redis, pool)


async def test_a_job_released_with_a_delay_is_due_after_it_and_not_before(
    redis: Redis, pool: Pool, clock: HeldClock
) -> None:
    added = await add(pool, "a")
    await pop_one(pool)
    clock.now_us += 1  # fractions of a millisecond are rounded up
    moved = await pool.release("a", delay_ms=5_000)
    assert moved == Moved("delayed", clock.now_us // 1000 + 5_001)
    await check_books(redis, pool)
    clock.advance(5_000)
    assert await tick_all(pool) == 0
    clock.advance(1)
    assert await tick_all(pool) == 1
    job = await pop_one(pool)
    assert (job.attempts, job.deliveries, job.due) == (2, 2, added.due)
    await check_books(redis, pool)


async def test_a_release_with_delay_zero_is_ready_at_once_whatever_the_ladder_says(pool: Pool) -> None:
    await add(pool, "a", backoff_ms=PAYMENT)
    await pop_one(pool)
    assert (await pool.release("a", delay_ms=0)).state == "ready"
    assert (await get(pool, "a")).kind.step == 0


async def test_a_hundred_releases_that_count_no_try_leave_the_tries_as_they_were(
    redis: Redis, pool: Pool, clock: HeldClock
) -> None:
    """Payment polling: a payment that is still open is not a failure."""
    await add(pool, "a", tries=1)
    for turn in range(100):
        job = await pop_one(pool)
        assert (job.attempts, job.deliveries) == (1, turn + 1)
        assert (await pool.release("a", job.lease, counts=False)).state == "ready"
        assert (await get(pool, "a")).attempts == 0
    await pop_one(pool)
    await pool.release("a")
    job = await get(pool, "a")
    assert (job.state, job.cause, job.attempts, job.deliveries) == (State.DEAD, Cause.TRIES, 1, 101)
    await check_books(redis, pool)


async def test_a_release_that_counts_ends_in_death_when_the_tries_are_used_up(
    subtests: pytest.Subtests, redis: Redis, new_pool: NewPool, clock: HeldClock
) -> None:
    for delay_ms, tries in itertools.product((None, 0, 5_000), (1, 3)):
        with subtests.test(delay_ms=delay_ms, tries=tries):
            pool = await new_pool()
            await add(pool, "a", tries=tries)
            for attempt in range(1, tries + 1):
                assert (await pop_one(pool)).attempts == attempt
                moved = await pool.release("a", delay_ms=delay_ms)
                if attempt < tries:
                    clock.advance(delay_ms or 0)
                    await tick_all(pool)
            assert moved == Moved("dead", clock.now_us // 1000)
            job = await get(pool, "a")
            assert (job.cause, job.attempts, job.body) == (Cause.TRIES, tries, b'"body"')
            assert (await Topics(pool).stats("t")).totals["died_tries"] == 1
            await check_books(redis, pool)


async def test_zero_tries_are_no_limit_to_releases(pool: Pool) -> None:
    await add(pool, "a", tries=0)
    for attempt in range(1, 40):
        assert (await pop_one(pool)).attempts == attempt
        assert (await pool.release("a")).state == "ready"


@pytest.mark.parametrize("end", [its_ttr_ends, it_is_released, it_is_released_as_no_try])
async def test_the_payment_ladder_fires_at_exactly_its_delays(
    redis: Redis, pool: Pool, clock: HeldClock, end: End
) -> None:
    await add(pool, "a", tries=0, ttr_ms=TTR_MS, backoff_ms=PAYMENT)
    for delay in (*PAYMENT, 180_000, 180_000):
        await end(pool, clock, await pop_one(pool))
        job = await get(pool, "a")
        assert (job.state, job.next) == (State.DELAYED, clock.now_us // 1000 + delay)
        clock.advance(delay - 1)
        assert await tick_all(pool) == 0
        clock.advance(1)
        assert await tick_all(pool) == 1
        assert await state(pool, "a") == "ready"
        await check_books(redis, pool)


async def test_each_end_goes_a_step_on_and_only_a_release_with_its_own_delay_does_not(
    pool: Pool, clock: HeldClock
) -> None:
    await add(pool, "a", tries=0, ttr_ms=TTR_MS, backoff_ms=PAYMENT)
    ends: list[tuple[End, int]] = [
        (its_ttr_ends, 15_000),
        (it_is_released_after_two_seconds, 2_000),
        (it_is_released_as_no_try, 15_000),
        (it_is_released_after_two_seconds, 2_000),
        (it_is_released, 30_000),
        (its_ttr_ends, 180_000),
        (it_is_released, 180_000),
    ]
    for end, delay in ends:
        await end(pool, clock, await pop_one(pool))
        assert (await get(pool, "a")).next == clock.now_us // 1000 + delay, end.__name__
        clock.advance(delay)
        await tick_all(pool)


async def it_is_released_after_two_seconds(pool: Pool, clock: HeldClock, job: Job) -> None:
    await pool.release(job.id, job.lease, delay_ms=2_000)


LADDER = (1_000, 5_000, 60_000)


async def released_to(pool: Pool, clock: HeldClock, ladder_ms: Sequence[int] = LADDER, **how: Any) -> int:
    """Pop and release "a" by a default ladder, and wait until it is ready again; how long that took."""
    await pop_one(pool)
    span = (await pool.release("a", ladder_ms=ladder_ms, **how)).due - clock.now_us // 1000
    clock.advance(span)
    await tick_all(pool)
    assert await state(pool, "a") == "ready"
    return span


async def test_a_release_of_a_job_without_a_ladder_waits_by_the_default_one_and_a_little_longer(
    redis: Redis, pool: Pool, clock: HeldClock
) -> None:
    await add(pool, "a", tries=0)
    for step, delay in enumerate((*LADDER, 60_000, 60_000)):
        # Up to a tenth, by the first 16 bits of the SHA-1 of id and step.
        digest = hashlib.sha1(f"a:{step}".encode(), usedforsecurity=False).hexdigest()
        share = int(digest[:4], 16) / 65_536
        assert await released_to(pool, clock, counts=step % 2 == 0) == delay + int(delay * share / 10)
        job = await get(pool, "a")
        assert (job.kind.step, job.backoff) == (step + 1, ())
        await check_books(redis, pool)


async def test_jobs_that_fail_together_do_not_come_back_together(pool: Pool, clock: HeldClock) -> None:
    for number in range(200):
        await add(pool, f"j{number}")
    now = clock.now_us // 1000
    spans = [(await pool.release(job_id, ladder_ms=(60_000,))).due - now for job_id in await popped_ids(pool)]
    assert 60_000 <= min(spans) < 60_200 and 65_800 < max(spans) < 66_000
    assert len(set(spans)) > 190


async def test_only_a_release_without_a_delay_takes_a_step_of_the_default_ladder(pool: Pool, clock: HeldClock) -> None:
    await add(pool, "a", tries=0, ttr_ms=TTR_MS)
    await pop_one(pool)
    clock.advance(TTR_MS)
    await tick_all(pool)
    assert await state(pool, "a") == "ready"  # its worker died: another one may have it at once
    assert await released_to(pool, clock, delay_ms=2_000) == 2_000
    assert (await get(pool, "a")).kind.step == 0
    assert 1_000 <= await released_to(pool, clock) < 1_100
    await pop_one(pool)
    await pool.bury("a")
    await pool.kick(["a"])
    assert 1_000 <= await released_to(pool, clock) < 1_100


async def test_a_job_with_a_ladder_of_its_own_keeps_to_it_exactly(pool: Pool, clock: HeldClock) -> None:
    await add(pool, "a", backoff_ms=(15_000,))
    assert await released_to(pool, clock) == 15_000
    await add(pool, "a", backoff_ms=(0,), if_exists="replace")
    assert await released_to(pool, clock) == 0


async def test_an_empty_default_ladder_is_at_once(pool: Pool, clock: HeldClock) -> None:
    await add(pool, "a")
    assert await released_to(pool, clock, ()) == 0
    assert 5_000 <= await released_to(pool, clock) < 5_500


@pytest.mark.parametrize("delay_ms", [None, 5_000])
async def test_a_job_released_when_its_ttl_is_over_is_dead(
    redis: Redis, pool: Pool, clock: HeldClock, delay_ms: int | None
) -> None:
    await add(pool, "a", ttl_ms=1_000, tries=1)
    await pop_one(pool)
    clock.advance(1_000)
    assert (await pool.release("a", delay_ms=delay_ms)).state == "dead"
    assert (await get(pool, "a")).cause is Cause.TTL
    await check_books(redis, pool)


async def test_a_release_in_the_last_millisecond_of_a_ttl_is_no_death_and_its_timer_still_ends_it(
    redis: Redis, pool: Pool, clock: HeldClock
) -> None:
    await add(pool, "a", ttl_ms=1_000)
    await pop_one(pool)
    clock.advance(999)
    assert (await pool.release("a")).state == "ready"
    await check_books(redis, pool)
    clock.advance(1)
    await tick_all(pool)
    assert (await get(pool, "a")).cause is Cause.TTL


async def test_a_job_delayed_past_its_ttl_is_dead_when_it_would_be_due(pool: Pool, clock: HeldClock) -> None:
    await add(pool, "a", ttl_ms=1_000)
    await pop_one(pool)
    assert (await pool.release("a", delay_ms=5_000)).state == "delayed"
    clock.advance(5_000)
    await tick_all(pool)
    assert (await get(pool, "a")).cause is Cause.TTL
    assert await popped_ids(pool) == []


@pytest.mark.parametrize("size", [0, 90, 200_000])
async def test_the_reason_is_kept_with_all_that_the_job_has(redis: Redis, pool: Pool, size: int) -> None:
    body = b"x" * size
    await add(pool, "a", body=body, backoff_ms=PAYMENT, headers=b'{"a":"b"}')
    await pop_one(pool, worker="w")
    await pool.release("a", delay_ms=0, reason="not paid yet: ü")
    for job in (await get(pool, "a"), await pop_one(pool)):
        assert (job.text(Tag.REASON), job.text(Tag.WORKER), job.text(Tag.HEADERS)) == (
            "not paid yet: ü",
            "w",
            '{"a":"b"}',
        )
        assert (job.body, job.backoff) == (body, PAYMENT)
    await check_books(redis, pool)


async def test_a_reason_stays_until_the_next_one_and_says_why_the_job_died(pool: Pool) -> None:
    await add(pool, "a", tries=3)
    for reason, kept in (("x" * 1_000, "x" * 1_000), ("", "x" * 1_000), ("short", "short")):
        await pop_one(pool)
        await pool.release("a", reason=reason)
        assert (await get(pool, "a")).text(Tag.REASON) == kept
    job = await get(pool, "a")
    assert (job.state, job.cause, job.body) == (State.DEAD, Cause.TRIES, b'"body"')


async def test_a_release_ends_the_lease(redis: Redis, pool: Pool, clock: HeldClock) -> None:
    await add(pool, "a", ttr_ms=TTR_MS)
    first = await pop_one(pool)
    await pool.release("a", first.lease, delay_ms=60_000)
    clock.advance(TTR_MS)
    assert await tick_all(pool) == 0
    assert await finish(pool, "a", first.lease) == "finished"  # done after all: the newest lease counts
    await check_books(redis, pool)


async def test_the_ttr_that_a_pop_asked_for_ends_with_a_release(pool: Pool) -> None:
    await add(pool, "a", ttr_ms=TTR_MS)
    assert (await pop_one(pool, ttr_ms=9_000)).ttr == 9_000
    await pool.release("a", reason="r")
    assert (await pop_one(pool)).ttr == TTR_MS


async def test_a_released_job_keeps_its_priority(pool: Pool) -> None:
    await add(pool, "a", priority=9)
    await add(pool, "b")
    await pop_one(pool)
    await pool.release("a")
    assert await popped_ids(pool) == ["a", "b"]


async def test_a_note_goes_with_the_job_byte_for_byte(
    subtests: pytest.Subtests, redis: Redis, new_pool: NewPool
) -> None:
    for note, retention_ms in itertools.product((b"n", b"\xff" * 64, b"=", b"\0"), (0, 60_000)):
        with subtests.test(note=note, retention_ms=retention_ms):
            pool = await new_pool()
            await add(pool, "a", note=note, retention_ms=retention_ms)
            assert (await get(pool, "a")).note == note
            job = await pop_one(pool)
            assert (job.note, job.body) == (note, b'"body"')
            await pool.release("a", delay_ms=0)
            job = await pop_one(pool, worker="w")
            assert (job.note, job.body) == (note, b'"body"')
            assert await finish(pool, "a", job.lease) == "finished"
            assert await state(pool, "a") == ("finished" if retention_ms else "unknown")
            await check_books(redis, pool)


async def test_a_release_and_a_bury_may_replace_the_note(redis: Redis, pool: Pool) -> None:
    await add(pool, "a", headers=b'{"a":1}')
    for given, kept in ((None, b""), (b"one", b"one"), (None, b"one"), (b"two", b"two"), (b"", b"")):
        await pop_one(pool, worker="w")
        await pool.release("a", delay_ms=0, reason="why", note=given)
        job = await get(pool, "a")
        assert (job.note, job.optional[Tag.HEADERS], job.text(Tag.REASON)) == (kept, b'{"a":1}', "why")
        await pool.take("a")
        await pool.bury("a", note=given and given + b"!")
        assert (await get(pool, "a")).note == (given + b"!" if given else kept)
        await pool.take("a")
        await pool.release("a", delay_ms=0, note=kept)
    assert (await get(pool, "a")).body == b'"body"'
    await check_books(redis, pool)


async def test_a_note_that_is_taken_away_leaves_no_trace(pool: Pool) -> None:
    await add(pool, "a", note=b"n")
    await pop_one(pool)
    await pool.release("a", delay_ms=0, note=b"")
    job = await get(pool, "a")
    assert (job.optional, job.body, len(job.raw)) == ({}, b'"body"', 47 + len("t") + len('"body"'))


@pytest.mark.parametrize("delay_ms", [0, 5_000])
async def test_a_release_may_change_the_priority(redis: Redis, pool: Pool, clock: HeldClock, delay_ms: int) -> None:
    for job_id in ("first", "a"):
        await add(pool, job_id)
    await pool.take("a")
    await pool.release("a", delay_ms=delay_ms, priority=9)
    clock.advance(delay_ms)
    await tick_all(pool)
    await check_books(redis, pool)
    assert [(job.id, job.priority) for job in await pop(pool, count=2)] == [("a", 9), ("first", 4)]
    await pool.release("a", delay_ms=0)
    assert (await get(pool, "a")).priority == 9


async def test_a_released_job_whose_due_is_beyond_a_day_is_counted_by_the_hour(redis: Redis, pool: Pool) -> None:
    await add(pool, "a")
    await pop_one(pool)
    await pool.release("a", delay_ms=90_000_000)
    assert (await Topics(pool).stats("t")).due["under_7d"] == 1
    await check_books(redis, pool)
