"""buckets.pool.pool, touch.lua, and the leases that touch, release and bury check."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from buckets.clock import HeldClock
from buckets.errors import NotFound, NotReserved, Refused, StaleLease
from buckets.job import State
from buckets.pool.pool import Pool
from buckets.redis.client import Redis
from buckets.topics.topics import Topics
from tests.buckets import lives
from tests.buckets.books import check_books
from tests.buckets.conftest import NewPool
from tests.buckets.jobs import add, finish, get, is_stored, kick, pop_one, popped_ids, state
from tests.buckets.lives import TTR_MS, Bring
from tests.kit.waiting import tick_all

Ask = Callable[[Pool, str, int | None], Awaitable[Any]]
ASKS: list[Ask] = [Pool.touch, Pool.release, Pool.bury]
# By the state of the job: the answers without a lease, with the newest, with an older one.
LEASED: list[tuple[Bring, list[type[Refused] | None]]] = [
    (lives.reserved, [None, None, StaleLease]),
    (lives.delayed_again, [NotReserved, NotReserved, StaleLease]),
    (lives.ready_again, [NotReserved, NotReserved, StaleLease]),
    (lives.dead, [NotReserved, NotReserved, StaleLease]),
    (lives.never_popped_delayed, [NotReserved, NotReserved, NotReserved]),
    (lives.never_popped_ready, [NotReserved, NotReserved, NotReserved]),
    (lives.never_popped_dead, [NotReserved, NotReserved, NotReserved]),
    (lives.finished, [NotReserved, NotReserved, StaleLease]),
    (lives.deleted, [NotFound, NotFound, NotFound]),
    (lives.unknown, [NotFound, NotFound, NotFound]),
]


async def test_only_the_worker_that_has_the_job_is_heard(
    subtests: pytest.Subtests, redis: Redis, new_pool: NewPool, clock: HeldClock
) -> None:
    for ask, column, (bring, answers) in itertools.product(ASKS, range(3), LEASED):
        with subtests.test(ask=ask.__name__, column=column, bring=bring.__name__):
            pool = await new_pool()
            newest, older = await bring(pool, clock)
            lease = (None, newest, older)[column]
            refusal, before = answers[column], await pool.get("a")
            if refusal is None:
                await ask(pool, "a", lease)
                assert await pool.get("a") == before or ask is not Pool.touch  # no time has passed
            else:
                with pytest.raises(refusal) as refused:
                    await ask(pool, "a", lease)
                assert refused.value.state == (before.state.word if before else None)
                assert await pool.get("a") == before
            await check_books(redis, pool)


@pytest.mark.parametrize("ask", [*ASKS, finish], ids=["touch", "release", "bury", "finish"])
async def test_a_worker_that_stopped_past_its_ttr_does_nothing_to_the_job_of_the_second(
    redis: Redis, pool: Pool, clock: HeldClock, ask: Ask
) -> None:
    await add(pool, "a", ttr_ms=1_000)
    stopped = await pop_one(pool, worker="stopped")
    clock.advance(1_000)
    await tick_all(pool)
    second = await pop_one(pool, worker="second")
    clock.advance(500)
    with pytest.raises(StaleLease) as refusal:
        await ask(pool, "a", stopped.lease)
    assert refusal.value.state == "reserved"
    assert await is_stored(pool, second)
    clock.advance(499)
    assert await tick_all(pool) == 0
    assert await finish(pool, "a", second.lease) == "finished"
    await check_books(redis, pool)


@pytest.mark.parametrize("ask", ASKS, ids=[ask.__name__ for ask in ASKS])
async def test_a_lease_of_an_earlier_life_is_stale(pool: Pool, ask: Ask) -> None:
    await add(pool, "a", ttr_ms=60_000)
    old = await pop_one(pool)
    await pool.delete(["a"])
    await add(pool, "a", if_exists="replace")
    with pytest.raises(NotReserved):  # nobody has had the new job
        await ask(pool, "a", old.lease)
    await pop_one(pool)
    with pytest.raises(StaleLease):
        await ask(pool, "a", old.lease)


@pytest.mark.parametrize("ask", ASKS, ids=[ask.__name__ for ask in ASKS])
async def test_a_lease_that_redis_forgot_in_a_failover_is_stale(pool: Pool, ask: Ask) -> None:
    await add(pool, "a", ttr_ms=60_000)
    known = await pop_one(pool)
    with pytest.raises(StaleLease):
        await ask(pool, "a", known.lease + 1)
    assert await is_stored(pool, known)


async def test_a_lease_that_ran_out_but_was_not_moved_yet_is_still_the_workers(
    redis: Redis, pool: Pool, clock: HeldClock
) -> None:
    await add(pool, "a", ttr_ms=1_000)
    lease = (await pop_one(pool)).lease
    clock.advance(1_500)
    assert await pool.touch("a", lease) == clock.now_us // 1000 + 1_000
    assert await tick_all(pool) == 0
    assert await state(pool, "a") == "reserved"
    await check_books(redis, pool)


async def test_a_touch_lets_the_lease_run_anew_from_now(redis: Redis, pool: Pool, clock: HeldClock) -> None:
    await add(pool, "a", ttr_ms=1_000)
    popped = await pop_one(pool)
    for _ in range(5):
        clock.advance(999)
        until = await pool.touch("a", popped.lease)
        assert until == clock.now_us // 1000 + 1_000
        assert await tick_all(pool) == 0
        await check_books(redis, pool)
    job = await get(pool, "a")
    assert (job.state, job.attempts, job.deliveries, job.lease) == (State.RESERVED, 1, 1, popped.lease)
    clock.advance(1_000)
    assert await tick_all(pool) == 1
    assert await state(pool, "a") == "ready"
    assert (await Topics(pool).stats("t")).totals == {"created": 1, "delivered": 1}


async def test_a_touch_within_a_millisecond_is_rounded_up(pool: Pool, clock: HeldClock) -> None:
    await add(pool, "a", ttr_ms=1_000)
    await pop_one(pool)
    clock.now_us += 1
    await pool.touch("a")
    clock.now_us += 1_000_000
    assert await tick_all(pool) == 0
    clock.now_us += 999
    assert await tick_all(pool) == 1


@pytest.mark.parametrize("ttr_ms", [100, 5_000, 86_400_000])
async def test_a_touch_may_ask_for_a_shorter_or_a_longer_lease(
    redis: Redis, pool: Pool, clock: HeldClock, ttr_ms: int
) -> None:
    await add(pool, "a", ttr_ms=1_000)
    await pop_one(pool)
    assert await pool.touch("a", ttr_ms=ttr_ms) == clock.now_us // 1000 + ttr_ms
    await check_books(redis, pool)
    clock.advance(ttr_ms - 1)
    assert await tick_all(pool) == 0
    clock.advance(1)
    assert await tick_all(pool) == 1


async def test_the_ttr_of_a_touch_holds_for_that_touch_and_that_of_the_pop_for_the_others(
    pool: Pool, clock: HeldClock
) -> None:
    await add(pool, "a", ttr_ms=1_000)
    await pop_one(pool, ttr_ms=2_000)
    now = clock.now_us // 1000
    assert await pool.touch("a", ttr_ms=7_000) == now + 7_000
    assert await pool.touch("a") == now + 2_000
    clock.advance(2_000)
    await tick_all(pool)
    assert (await pop_one(pool)).ttr == 1_000


async def test_a_lease_may_be_touched_past_the_ttl(redis: Redis, pool: Pool, clock: HeldClock) -> None:
    """A ttl ends deliveries; a running lease can still finish."""
    await add(pool, "a", ttl_ms=1_500, ttr_ms=1_000)
    lease = (await pop_one(pool)).lease
    for _ in range(4):
        clock.advance(900)
        await pool.touch("a", lease)
        await tick_all(pool)
    assert await state(pool, "a") == "reserved"
    await check_books(redis, pool)
    assert await finish(pool, "a", lease) == "finished"


async def test_a_touch_does_not_go_a_step_on_the_ladder(pool: Pool, clock: HeldClock) -> None:
    await add(pool, "a", ttr_ms=1_000, backoff_ms=(5_000, 9_000))
    await pop_one(pool)
    await pool.touch("a")
    assert (await get(pool, "a")).kind.step == 0
    clock.advance(1_000)
    await tick_all(pool)
    assert (await get(pool, "a")).next == clock.now_us // 1000 + 5_000


async def test_a_job_that_was_kicked_knows_its_old_lease_as_its_newest(pool: Pool, clock: HeldClock) -> None:
    newest, older = await lives.dead(pool, clock)
    await kick(pool, "a")
    for lease, refusal in ((newest, NotReserved), (older, StaleLease)):
        with pytest.raises(refusal):
            await pool.touch("a", lease)
    assert await popped_ids(pool) == ["a"]
    with pytest.raises(StaleLease):
        await pool.touch("a", newest)
    assert await pool.touch("a") == clock.now_us // 1000 + TTR_MS
