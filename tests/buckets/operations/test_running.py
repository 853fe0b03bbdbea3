"""buckets.operations.runner: one instance carries operations out, others go on, and people halt them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from buckets.errors import WrongState
from buckets.operations.store import Asked, Filter, Operation, Operations
from buckets.pool.pool import Pool
from buckets.topics.topics import Topics
from tests.buckets.jobs import add, popped_ids
from tests.buckets.operations.operating import bury, carried_out, planned, reached, started
from tests.kit.waiting import until


async def dead(pool: Pool, topic: str = "t") -> int:
    return (await Topics(pool).counts(topic))["dead"]


async def bury_many(pool: Pool, number: int, topic: str = "t") -> None:
    for begin in range(0, number, 200):
        await bury(pool, [f"{topic}:{each}" for each in range(begin, min(begin + 200, number))], topic)


async def test_a_paused_operation_rests_and_is_resumed(pool: Pool) -> None:
    await bury_many(pool, 600)
    operations = Operations(pool)
    async with carried_out(pool):
        operation = await started(pool, "kick", rate=100)

        async def has_begun() -> bool:
            return await dead(pool) < 600

        await until(has_begun)
        assert await operations.pause(operation.id) == "running"
        await asyncio.sleep(1)  # a page that was under way has ended by then
        left = await dead(pool)
        assert left > 0
        await asyncio.sleep(1)
        assert await dead(pool) == left
        assert await operations.resume(operation.id) == "paused"
        done = await reached(pool, operation.id, "done")
    assert (done.done, done.skipped) == (600, 0)


async def test_a_cancelled_operation_stops(pool: Pool) -> None:
    await bury_many(pool, 400)
    operations = Operations(pool)
    async with carried_out(pool):
        operation = await started(pool, "kick", rate=100)
        await reached(pool, operation.id, "running")
        now = await pool.now_ms()
        await operations.change(operation.id, ["running"], state="cancelled", ended=now)
        await asyncio.sleep(1)
        left = await dead(pool)
        await asyncio.sleep(1)
        assert await dead(pool) == left > 0
        assert await operations.resume(operation.id) == "cancelled"


async def test_what_a_cancelled_operation_has_done_is_told_exactly(pool: Pool) -> None:
    await bury_many(pool, 2000)
    operations = Operations(pool)
    async with carried_out(pool):
        operation = await started(pool, "kick", rate=2000)

        async def is_under_way() -> bool:
            return await dead(pool) < 1500

        await until(is_under_way)
        assert await operations.change(operation.id, ["running"], state="cancelled") == "running"

        async def is_told() -> bool:
            known = await operations.get(operation.id)
            return known is not None and known.done == 2000 - await dead(pool)

        await until(is_told)
    assert await dead(pool) > 0


class Late(Operations):
    """Its lists are older than what happened to what is in them."""

    async def page(self, states: Sequence[str] = (), count: int = 1000) -> list[Operation]:
        return [replace(each, state="running") for each in await super().page()]


@pytest.mark.parametrize("state", ["paused", "cancelled"])
async def test_what_was_halted_since_it_was_listed_is_not_carried_out(pool: Pool, state: str) -> None:
    await bury_many(pool, 3)
    operations = Operations(pool)
    async with carried_out(pool):
        operation = await planned(pool, "kick")
    await operations.start(operation.id, 1000, "ann")
    await operations.change(operation.id, ["waiting"], state=state)
    async with carried_out(pool, operations=Late(pool)):
        await asyncio.sleep(1)
    assert await dead(pool) == 3


async def test_another_instance_goes_on_where_one_has_died(pool: Pool) -> None:
    await bury_many(pool, 1000)
    async with carried_out(pool) as held:
        operation = await started(pool, "kick", rate=400)

        async def is_under_way() -> bool:
            return await dead(pool) < 900

        await until(is_under_way)
        held.clear()
        await asyncio.sleep(1)
        left = await dead(pool)
        assert left > 0
    async with carried_out(pool):
        done = await reached(pool, operation.id, "done")
    assert (done.done, done.skipped) == (1000, 0)


async def test_two_instances_at_once_change_each_job_once(pool: Pool) -> None:
    await bury_many(pool, 800)
    async with carried_out(pool), carried_out(pool):
        operation = await started(pool, "kick")
        done = await reached(pool, operation.id, "done")
    assert (done.done, done.skipped) == (800, 0)
    assert len(await popped_ids(pool)) == 800


async def test_one_change_of_a_kind_runs_at_a_time_and_others_run_beside_it(pool: Pool) -> None:
    await bury_many(pool, 60)
    await bury_many(pool, 3, "u")
    await add(pool, "delayed", "v", delay_ms=60_000)
    operations = Operations(pool)
    async with carried_out(pool):
        first = await started(pool, "kick", rate=10)
        await reached(pool, first.id, "running")
        second = await started(pool, "kick", Filter(topic="u"))
        other = await started(pool, "run", Filter(topic="v"))
        await reached(pool, other.id, "done")
        waiting = await operations.get(second.id)
        assert waiting and waiting.state == "waiting"
        await operations.pause(first.id)
        await reached(pool, second.id, "done")
        assert await dead(pool) > 0


async def test_a_rate_is_kept_and_halved_while_others_come_late(pool: Pool) -> None:
    await bury_many(pool, 400)
    loop = asyncio.get_running_loop()
    async with carried_out(pool, is_late=lambda: True):
        begun = loop.time()
        operation = await started(pool, "kick", rate=100)

        async def is_slowed() -> bool:
            known = await Operations(pool).get(operation.id)
            return bool(known and known.slowed)

        await until(is_slowed)
        done = await reached(pool, operation.id, "done")
        assert loop.time() - begun > 5  # at the full rate: 4 s; at half of it after the first second: 7 s
    assert (done.done, done.slowed) == (400, False)


async def test_a_find_by_prefix_alone_meets_live_jobs_of_every_topic(pool: Pool) -> None:
    await add(pool, "order:1")
    await add(pool, "order:2", "u", delay_ms=60_000)
    await bury(pool, ["order:3"], "v")
    await add(pool, "order:4", retention_ms=60_000)
    await pool.delete(["order:4"])
    await add(pool, "mail:1")
    operations = Operations(pool)
    async with carried_out(pool):
        operation = await operations.plan(Asked("find", Filter(prefix="order:"), 0, within="t v"))
        found = await reached(pool, operation.id, "done")
        assert found.samples == ["order:1", "order:3"] and found.exact
        operation = await operations.plan(Asked("find", Filter(topic="u", prefix="order:"), 0))
        assert (await reached(pool, operation.id, "done")).samples == ["order:2"]


async def test_a_find_ends_at_a_thousand_jobs_and_says_so(pool: Pool) -> None:
    for number in range(1010):
        await add(pool, f"a:{number}")
    operations = Operations(pool)
    async with carried_out(pool):
        for wanted in (Filter(prefix="a:"), Filter(topic="t")):
            operation = await operations.plan(Asked("find", wanted, 0))
            found = await reached(pool, operation.id, "done")
            assert (len(found.samples), found.count, found.exact) == (1000, 1000, False)


async def test_the_newest_operations_are_kept(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("buckets.operations.store.MOST", 3)
    operations = Operations(pool)
    plans = [await operations.plan(Asked("kick", Filter(topic="t"), 0)) for _ in range(3)]
    with pytest.raises(WrongState):
        await operations.plan(Asked("kick", Filter(topic="t"), 0))
    await operations.change(plans[1].id, ["planning"], state="cancelled")
    newest = await operations.plan(Asked("kick", Filter(topic="t"), 0))
    assert {each.id for each in await operations.page()} == {plans[0].id, plans[2].id, newest.id}


async def test_a_plan_that_nobody_starts_is_forgotten(pool: Pool) -> None:
    async with carried_out(pool):
        plan = await planned(pool, "kick")
    ends_in = await pool.redis.read("PTTL", pool.keys[0].operation(plan.id))
    assert 14 * 60_000 < ends_in <= 15 * 60_000
