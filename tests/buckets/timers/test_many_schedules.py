"""Many schedules whose time has come at once: whoever makes their occurrences does other work in between."""

from __future__ import annotations

import asyncio
from collections import Counter

from buckets.pool.pool import Pool
from buckets.schedules.occurrences import Occurrences, Plan
from buckets.schedules.record import Schedule
from buckets.schedules.schedules import Schedules, Seen

NUMBER = 300
MOST_IN_A_TURN = 50


async def test_plans_are_made_in_several_turns_of_the_event_loop(pool: Pool) -> None:
    schedules = Schedules(pool)
    now, _ = await schedules.read(0, ["none"])
    names = [f"schedule-{number}" for number in range(NUMBER)]
    for name in names:
        await schedules.define(name, Seen(now, None), b"{}", now - 1000, now)
    turn = 0
    plans: Counter[int] = Counter()

    async def turns() -> None:
        nonlocal turn
        while True:
            turn += 1
            await asyncio.sleep(0)

    async def plan(schedule: Schedule, now: int) -> Plan:
        plans[turn] += 1
        return Plan(schedule.next + 60_000)

    counting = asyncio.create_task(turns())
    await Occurrences(schedules, plan).make(0, 0, names)
    counting.cancel()
    assert plans.total() == NUMBER
    assert max(plans.values()) <= MOST_IN_A_TURN
    _, found = await schedules.read(0, names)
    assert all(each and each.next == now + 60_000 for each in found)
