"""A worker leaves, over two instances: it ends its own waiting pops; those of others only with the right operate."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from jobqueue.access.issuing import Issued
from tests.kit.guarded import Guarded, guarded
from tests.kit.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

_WORKER = "w"


@pytest_asyncio.fixture(scope="module", loop_scope="module", name="guarded")
async def two_instances() -> AsyncIterator[Guarded]:
    """Two instances, shared by the tests."""
    with tempfile.TemporaryDirectory(prefix="jq-") as name:
        async with guarded(Path(name), instances=2) as services:
            yield services


class Pops:
    """A waiting pop of a worker at each instance."""

    def __init__(self, guarded: Guarded, issued: Issued, topic: str, worker: str) -> None:
        pop = {"command": "pop", "topic": topic, "wait": 50, "worker": worker}
        asked = [guarded.ask(issued, pop, service.url) for service in guarded.services]
        self.tasks = [asyncio.create_task(each) for each in asked]

    @property
    def all_wait(self) -> bool:
        return not any(task.done() for task in self.tasks)

    async def answers(self) -> list[Any]:
        async with asyncio.timeout(10):
            return [answer for _, answer in await asyncio.gather(*self.tasks)]


@asynccontextmanager
async def waiting(guarded: Guarded, *whose: Issued, topic: str, worker: str = _WORKER) -> AsyncIterator[list[Pops]]:
    """Pops of some tokens, which all wait."""
    pops = [Pops(guarded, issued, topic, worker) for issued in whose]
    try:
        for service in guarded.services:
            await until(lambda: service.parked(len(whose)))  # noqa: B023 - it ends in this round
        yield pops
    finally:
        tasks = [task for each in pops for task in each.tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for service in guarded.services:
            await until(lambda: service.parked(0))  # noqa: B023 - as above


async def leave(guarded: Guarded, issued: Issued, worker: str = _WORKER) -> Any:
    return (await guarded.ask(issued, {"command": "leave", "worker": worker}))[1]


async def test_a_token_ends_only_pops_that_showed_it_in_every_instance(guarded: Guarded) -> None:
    mine, others = await guarded.token("consume"), await guarded.token("consume", "produce")
    async with waiting(guarded, mine, others, topic="a") as (leaving, staying):
        assert (await leave(guarded, mine, "another"))["success"]
        assert leaving.all_wait
        assert (await leave(guarded, mine))["success"]
        assert [(answer["success"], answer["id"]) for answer in await leaving.answers()] == [(True, None)] * 2
        for service in guarded.services:
            assert await service.parked(1)
        added = [(await guarded.ask(others, {"command": "add", "topic": "a", "body": 1}))[1]["id"] for _ in range(2)]
        assert sorted(answer["id"] for answer in await staying.answers()) == sorted(added)


async def test_with_operate_a_token_ends_the_pops_of_all(guarded: Guarded) -> None:
    some, others = await guarded.token("consume"), await guarded.token("pop")
    operator = await guarded.token("consume", "operate")
    async with waiting(guarded, some, others, topic="b") as pops:
        assert (await leave(guarded, operator))["success"]
        for each in pops:
            assert [answer["id"] for answer in await each.answers()] == [None, None]


async def test_without_the_right_to_leave_nothing_ends(guarded: Guarded) -> None:
    some, operator = await guarded.token("consume"), await guarded.token("operate", "produce", "look")
    async with waiting(guarded, some, topic="c") as (pops,):
        refused = await leave(guarded, operator)
        assert (refused["code"], refused["right"]) == ("FORBIDDEN", "consume")
        await guarded.ask(some, {"command": "leave", "worker": "another"})  # all that went before it was heard by now
        assert pops.all_wait
