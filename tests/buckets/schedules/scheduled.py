"""Schedules with a simple planner, on a clock that a test advances; what the timers do, it does by hand."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from buckets.clock import HeldClock
from buckets.job import NewJob
from buckets.pool.pool import Pool
from buckets.schedules.occurrences import Occurrences, Plan, Time
from buckets.schedules.record import Schedule
from buckets.schedules.schedules import Schedules

MOST = 1000
IN_TIME_MS = 60_000


def definition_of(every_ms: int = 1_000, **options: Any) -> bytes:
    """What a schedule of these tests is: `topic` (t), `body`, `catch_up` (last), `caught_up`: how many at most,
    `jitter_ms`, `skips`, `paused`; `copies`: the topics of a virtual topic; `most`: the most pending jobs of a topic
    in a shard; `fields`: of the jobs. Equal options are equal bytes, in whatever order they are given."""
    return json.dumps({"every_ms": every_ms, **options}, sort_keys=True).encode()


def times_of(said: Mapping[str, Any], next_ms: int, now_ms: int) -> list[int]:
    """The times until now for which an occurrence is to be made."""
    found, catch_up = range(next_ms, now_ms + 1, said["every_ms"]), said.get("catch_up", "last")
    if catch_up == "none":
        return [each for each in found[-1:] if now_ms - each <= IN_TIME_MS]
    return list(found[-said.get("caught_up", MOST) :] if catch_up == "all" else found[-1:])


def after(said: Mapping[str, Any], next_ms: int, now_ms: int) -> int:
    """The first time later than now."""
    every_ms: int = said["every_ms"]
    return next_ms + ((now_ms - next_ms) // every_ms + 1) * every_ms


def copies_of(said: Mapping[str, Any], name: str) -> list[tuple[str, NewJob]]:
    """What an occurrence becomes, as in a `Plan`."""
    homes = [(f"@{each}", each) for each in said.get("copies", [])] or [("", said.get("topic", "t"))]
    fields = {"most_pending": said.get("most", 0), **said.get("fields", {})}
    return [(suffix, NewJob(name, home, said.get("body", "").encode(), **fields)) for suffix, home in homes]


async def plan(schedule: Schedule, now_ms: int) -> Plan:
    """A planner."""
    said = json.loads(schedule.definition)
    times = times_of(said, schedule.next, now_ms)
    return Plan(
        next=after(said, schedule.next, now_ms),
        times=[Time(each, each + said.get("jitter_ms", 0)) for each in times],
        topic=said.get("topic", "t"),
        copies=copies_of(said, schedule.name),
        skips=bool(said.get("skips")),
        missed=schedule.next if times[:1] != [schedule.next] else 0,
    )


class Scheduled:
    """The schedules of a pool, as one process serves them."""

    def __init__(self, pool: Pool, clock: HeldClock) -> None:
        self.pool = pool
        self.clock = clock
        self.schedules = Schedules(pool)
        self.occurrences = Occurrences(self.schedules, plan)

    async def define(self, name: str, every_ms: int = 1_000, **options: Any) -> str:
        """Define a schedule; its first occurrence is one interval from now."""
        seen = await self.schedules.see(name)
        raw = definition_of(every_ms, **options)
        next_ms = 0 if options.get("paused") else seen.now + every_ms
        return await self.schedules.define(name, seen, raw, seen.now, next_ms)

    async def record(self, name: str) -> Schedule:
        schedule = (await self.schedules.see(name)).schedule
        assert schedule is not None, name
        return schedule

    async def met(self) -> list[tuple[int, int, str]]:
        """Tick all timers until nothing is due; returns the schedules that they met, with shard and bucket."""
        met: list[tuple[int, int, str]] = []
        for shard in range(len(self.pool.keys)):
            for bucket in range(self.pool.buckets):
                wait = 0
                while wait == 0:
                    names: list[str] = []
                    _, wait, _ = await self.pool.due(shard, bucket, met=names)
                    met += [(shard, bucket, name) for name in names]
        return met

    async def tick(self) -> None:
        """What timers do now, until nothing is due."""
        while met := await self.met():
            for shard, bucket, name in met:
                await self.occurrences.make(shard, bucket, [name])

    async def advance(self, ms: int, steps: int = 1) -> None:
        """Let time pass, with a tick after each of the steps."""
        for _ in range(steps):
            self.clock.advance(ms)
            await self.tick()

    async def times(self, name: str) -> list[int]:
        """The times of those occurrences that are remembered, in ms from the start of the schedule."""
        start = (await self.record(name)).start
        keys = self.pool.keys[self.schedules.shard(name)]
        found = await self.pool.redis.read("ZRANGE", keys.occurrences(name), 0, -1, "WITHSCORES")
        return [int(ms) - start for ms in found[1::2]]

    async def entry(self, name: str) -> int | None:
        """When its timer will meet it (ms)."""
        keys = self.pool.keys[self.schedules.shard(name)]
        found = await self.pool.redis.read("ZSCORE", keys.bucket((await self.record(name)).bucket), f"~{name}")
        return None if found is None else int(found)
