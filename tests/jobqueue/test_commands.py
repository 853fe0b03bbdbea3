"""jobqueue.commands: the commands of one request, in their order."""

from __future__ import annotations

from typing import Any

import pytest

from buckets import Bell, Durable, NewJob, Pool, Topics, Walk
from jobqueue.commands import Commands
from jobqueue.engine import Engine
from jobqueue.metrics.process import Metrics
from jobqueue.policies import Policies
from jobqueue.schema import params
from jobqueue.settings import Settings


@pytest.fixture
def engine(live_pool: Pool) -> Engine:
    return Engine(
        live_pool, Topics(live_pool), Walk(live_pool), Bell(live_pool), Policies(Settings()), Durable(live_pool, 1, 1)
    )


async def answers(engine: Engine, *commands: Any) -> list[dict[str, Any]]:
    return await Commands(engine, Metrics(), 5.0).answer(commands, [])


async def released(engine: Engine, pool: Pool, *ids: str) -> None:
    """Jobs that were handed out, and are ready again: their finish still counts."""
    await pool.add([NewJob(job_id, "t", b"1") for job_id in ids])
    for job in (await pool.pop(["t"], len(ids))).jobs:
        await pool.release(job.id, job.lease)


@pytest.mark.parametrize("number", [1, 3, 250])
async def test_a_pop_behind_finishes_does_not_hand_out_what_they_finish(
    engine: Engine, live_pool: Pool, number: int
) -> None:
    ids = [f"{n:03}" for n in range(number)]
    await released(engine, live_pool, *ids)
    *finished, popped = await answers(engine, *(params.Finish(id=each) for each in ids), params.Pop(topic="t", count=5))
    assert [each["state"] for each in finished] == ["finished"] * number
    assert popped["jobs"] == []


async def test_a_job_that_is_finished_twice_before_a_pop_is_not_handed_out(engine: Engine, live_pool: Pool) -> None:
    await released(engine, live_pool, "a", "b")
    finish, wait = params.Finish(id="a"), params.Pop(topic="t")
    assert [each.get("id") for each in await answers(engine, finish, finish, wait)] == ["a", "a", "b"]


async def test_the_answers_stand_in_the_order_of_their_commands(engine: Engine, live_pool: Pool) -> None:
    await released(engine, live_pool, "a", "b", "c")
    got = await answers(
        engine,
        params.Pop(topic="t"),
        params.Finish(id="b"),
        params.Finish(id="x"),
        params.Pop(topic="t"),
        params.Finish(id="a"),
        params.Pop(topic="t"),
    )
    assert [each.get("id") for each in got] == ["a", "b", "x", "c", "a", None]
    assert [each["success"] for each in got] == [True, True, False, True, True, True]
