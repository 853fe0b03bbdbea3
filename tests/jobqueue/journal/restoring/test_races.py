"""Jobs that are finished while a run is at work, and leave no trace in Redis, do not run again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from buckets.events.restoring import Asked, Restoring
from buckets.pool.pool import Pool
from jobqueue.journal.reading.entries import Writer
from jobqueue.journal.restoring.reading import Choice
from jobqueue.journal.restoring.restore import Restore
from jobqueue.journal.restoring.runs import Run
from tests.buckets.jobs import add, finish, pop_one, state
from tests.jobqueue.journal.restoring.lost import World

HOUR = 3_600_000


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """While it is not set, the journal writes nothing."""
    opened, write = asyncio.Event(), Writer.write
    opened.set()

    async def held(self: Writer, *arguments: Any, **options: Any) -> Any:
        await opened.wait()
        return await write(self, *arguments, **options)

    monkeypatch.setattr(Writer, "write", held)
    return opened


class Meanwhile(Restoring):
    """Something happens before and after jobs are asked about."""

    def __init__(self, pool: Pool, before: Callable[[], Awaitable[None]], after: Callable[[], Awaitable[None]]) -> None:
        super().__init__(pool, "restore:1")
        self._before, self._after = before, after

    async def ask(self, ids: Sequence[str]) -> list[Asked]:
        if not ids:
            return await super().ask(ids)
        await self._before()
        asked = await super().ask(ids)
        await self._after()
        return asked


async def nothing() -> None:
    pass


async def restore(world: World, restoring: Restoring) -> dict[str, int]:
    run = await Run.begin(world.reading, world.pool, Choice())
    sums = await Restore(world.reading, restoring, Choice(), run).carry_out()
    return {name: number for name, number in sums.counts.items() if number}


async def test_a_finish_that_the_journal_does_not_have_yet_is_waited_for(world: World, gate: asyncio.Event) -> None:
    await add(world.pool, "a", retention_ms=0)
    await world.drained()

    async def finish_unread() -> None:
        gate.clear()
        await finish(world.pool, (await pop_one(world.pool)).id)
        asyncio.get_running_loop().call_later(0.3, gate.set)

    assert await restore(world, Meanwhile(world.pool, finish_unread, nothing)) == {"looked": 1, "ended": 1}
    assert await state(world.pool, "a") == "unknown"


async def test_a_life_that_began_and_ended_while_the_run_waited_is_not_put(world: World, gate: asyncio.Event) -> None:
    await add(world.pool, "a", retention_ms=0)
    await world.drained()
    await world.lose()

    async def live_and_end() -> None:
        await add(world.pool, "a", retention_ms=0)
        await world.drained()
        gate.clear()
        await finish(world.pool, (await pop_one(world.pool)).id)

    assert await restore(world, Meanwhile(world.pool, nothing, live_and_end)) == {"looked": 1, "known": 1}
    gate.set()
    assert await state(world.pool, "a") == "unknown"
