"""Operations in tests: a process that carries them out, and shorthands."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from buckets.operations.candidates import Candidates
from buckets.operations.carrying_out import CarryingOut
from buckets.operations.runner import Runner
from buckets.operations.store import Asked, Filter, Operation, Operations
from buckets.pool.pool import Pool
from buckets.topics.topics import Topics
from buckets.topics.walk import Walk
from buckets.waiting.notifier import Notifier
from tests.buckets.instances import ended
from tests.buckets.jobs import add, pop
from tests.kit.waiting import until


@contextlib.asynccontextmanager
async def carried_out(
    pool: Pool, is_late: Callable[[], bool] = lambda: False, operations: Operations | None = None
) -> AsyncIterator[asyncio.Event]:
    """A process carries out operations; gives what is set while it holds the lock."""
    notifier, held, operations = Notifier(pool), asyncio.Event(), operations or Operations(pool)
    held.set()
    carrying_out = CarryingOut(operations, Candidates(Topics(pool), Walk(pool)), is_late)
    runner = Runner(operations, notifier, held, carrying_out)
    tasks = [asyncio.create_task(notifier.run()), asyncio.create_task(runner.run())]
    await notifier.connected.wait()
    try:
        yield held
    finally:
        await ended(tasks)


async def planned(pool: Pool, kind: Any, wanted: Filter | None = None, **asked: Any) -> Operation:
    """Plan an operation that takes jobs of the topic `t`, and wait until it is planned."""
    operation = await Operations(pool).plan(Asked(kind, wanted or Filter(topic="t"), 0, **asked))
    return await reached(pool, operation.id, "planned")


async def started(pool: Pool, kind: Any, wanted: Filter | None = None, rate: int = 20_000, **asked: Any) -> Operation:
    """Plan an operation and start it."""
    operation = await planned(pool, kind, wanted, **asked)
    assert await Operations(pool).start(operation.id, rate, "ann") == "planned"
    return operation


async def reached(pool: Pool, operation: str, *states: str) -> Operation:
    """An operation as it is once it has one of some states."""
    found: list[Operation] = []

    async def is_there() -> bool:
        known = await Operations(pool).get(operation)
        assert known, "the operation is gone"
        assert known.state != "failed" or "failed" in states, known.error
        found.append(known)
        return known.state in states

    await until(is_there)
    return found[-1]


async def carry_out(pool: Pool, kind: Any, wanted: Filter | None = None, **asked: Any) -> Operation:
    """Plan an operation, start it, and wait for its end."""
    return await reached(pool, (await started(pool, kind, wanted, **asked)).id, "done")


async def bury(pool: Pool, ids: Sequence[str], topic: str = "t", **fields: Any) -> None:
    """Add jobs and bury them."""
    for job_id in ids:
        await add(pool, job_id, topic, **fields)
    for job in await pop(pool, topic, count=len(ids)):
        await pool.bury(job.id)
