"""Schedules without an engine: of each hour, their definition is any bytes."""

from __future__ import annotations

from buckets.job import NewJob
from buckets.pool.pool import Pool
from buckets.schedules.occurrences import Occurrences, Plan, Time
from buckets.schedules.record import Schedule, unpack_schedule
from buckets.schedules.schedules import Schedules
from buckets.shards import Shards

HOUR = 3_600_000


async def define(pool: Pool, name: str, definition: bytes = b'{"topic":"t"}') -> str:
    """Define a schedule whose next time is in an hour."""
    schedules = Schedules(pool)
    seen = await schedules.see(name)
    return await schedules.define(name, seen, definition, seen.now, seen.now + HOUR)


async def undefine(pool: Pool, name: str) -> None:
    schedules = Schedules(pool)
    seen = (await schedules.see(name)).schedule
    assert seen and await schedules.undefine(seen) is not None


async def meet(pool: Pool, name: str, *, skips: bool = False) -> None:
    """Do what the timer of a schedule does."""

    async def plan(schedule: Schedule, now: int) -> Plan:
        copies = [("", NewJob(schedule.name, "t", b'{"n":1}'))]
        return Plan(schedule.next + HOUR, [Time(schedule.next, schedule.next)], "t", copies, skips)

    schedules = Schedules(pool)
    bucket = (await there(pool))[name].bucket
    await Occurrences(schedules, plan).make(schedules.shard(name), bucket, [name])


async def there(pool: Shards) -> dict[str, Schedule]:
    """All schedules of Redis, by name."""
    found: dict[str, Schedule] = {}
    for keys in pool.keys:
        flat = await pool.redis.read("HGETALL", keys.schedules)
        names = [name.decode() for name in flat[::2]]
        found |= {name: unpack_schedule(name, raw) for name, raw in zip(names, flat[1::2], strict=True)}
    return found


def content(schedules: dict[str, Schedule]) -> dict[str, Schedule]:
    """All of them but what their indexes give them."""
    return {name: schedule._replace(bucket=0) for name, schedule in schedules.items()}
