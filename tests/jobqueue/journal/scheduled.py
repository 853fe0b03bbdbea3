"""Schedules of an engine: defined, and met by their timers."""

from __future__ import annotations

from typing import Any

from msgspec import Raw

from buckets.pool.pool import Pool
from buckets.schedules.occurrences import Occurrences
from buckets.schedules.schedules import Schedules
from jobqueue.engine.new_jobs import Policies
from jobqueue.engine.schedules.definition import defined, encoded
from jobqueue.engine.schedules.scheduling import Planning
from jobqueue.schema import params
from jobqueue.settings import Settings
from tests.buckets.events.scheduled import HOUR, there

_POLICIES = Policies(Settings())


async def define(
    pool: Pool, name: str, topic: str = "t", body: bytes = b'{"n":1}', *, in_ms: int = HOUR, **options: Any
) -> str:
    """Define a schedule whose next time is so far from now; each hour unless `options`, those of the command, say
    something else."""
    timing = options if options.keys() & {"every", "cron"} else {"every": 3600.0, **options}
    definition = encoded(defined(params.Schedule(name=name, topic=topic, body=Raw(body), **timing)))
    schedules = Schedules(pool)
    seen = await schedules.see(name)
    next_ms = seen.now + in_ms
    return await schedules.define(name, seen, definition, next_ms - HOUR, next_ms)


async def meet(pool: Pool, name: str) -> None:
    """Do what the timer of a schedule does."""
    schedules = Schedules(pool)
    bucket = (await there(pool))[name].bucket
    await Occurrences(schedules, Planning(lambda: _POLICIES).plan).make(schedules.shard(name), bucket, [name])
