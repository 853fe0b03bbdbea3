"""Bring a job "a" into each state; each returns the lease of its newest delivery and that of an older one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from buckets.clock import HeldClock
from buckets.pool.pool import Pool
from tests.buckets.jobs import add, delete, finish, pop_one
from tests.kit.waiting import tick_all

TTR_MS = 1_000
Leases = tuple[int, int]  # the newest and an older one


async def deliver_twice(pool: Pool, clock: HeldClock, **fields: Any) -> Leases:
    await add(pool, "a", ttr_ms=TTR_MS, **fields)
    first = await pop_one(pool)
    await end_lease(pool, clock)
    return (await pop_one(pool)).lease, first.lease


async def end_lease(pool: Pool, clock: HeldClock) -> None:
    clock.advance(TTR_MS)
    await tick_all(pool)


async def reserved(pool: Pool, clock: HeldClock) -> Leases:
    return await deliver_twice(pool, clock)


async def ready_again(pool: Pool, clock: HeldClock) -> Leases:
    leases = await deliver_twice(pool, clock)
    await end_lease(pool, clock)
    return leases


async def delayed_again(pool: Pool, clock: HeldClock) -> Leases:
    leases = await deliver_twice(pool, clock, backoff_ms=(0, 60_000))
    await end_lease(pool, clock)
    return leases


async def dead(pool: Pool, clock: HeldClock) -> Leases:
    leases = await deliver_twice(pool, clock, tries=2)
    await end_lease(pool, clock)
    return leases


async def finished(pool: Pool, clock: HeldClock) -> Leases:
    leases = await deliver_twice(pool, clock)
    await finish(pool, "a")
    return leases


async def deleted(pool: Pool, clock: HeldClock) -> Leases:
    leases = await deliver_twice(pool, clock)
    await delete(pool, "a")
    return leases


async def never_popped_ready(pool: Pool, clock: HeldClock) -> Leases:
    await add(pool, "a")
    return 0, 1


async def never_popped_delayed(pool: Pool, clock: HeldClock) -> Leases:
    await add(pool, "a", delay_ms=60_000)
    return 0, 1


async def never_popped_dead(pool: Pool, clock: HeldClock) -> Leases:
    await add(pool, "a", ttl_ms=1)
    clock.advance(1)
    await tick_all(pool)
    return 0, 1


async def unknown(pool: Pool, clock: HeldClock) -> Leases:
    return 0, 1


Bring = Callable[[Pool, HeldClock], Awaitable[Leases]]
