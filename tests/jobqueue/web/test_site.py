"""What becomes of jobs whose answer reaches nobody, whichever way their request came."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from buckets import Durable, NewJob, Notifier, Pool, Topics, Waiting, Walk
from jobqueue.engine import Engine
from jobqueue.metrics.process import Metrics
from jobqueue.metrics.scrape import Scrape
from jobqueue.metrics.totals import Totals
from jobqueue.policies import Policies
from jobqueue.protocols.command.handler import Reply
from jobqueue.settings import Settings
from jobqueue.web.site import Web
from tests.waiting import until

POP = b'{"command":"pop","topic":"t"}'


@pytest.fixture
async def web(live_pool: Pool) -> AsyncIterator[Web]:
    """With one job that is ready."""
    settings, metrics, topics, waiting = (
        Settings(),
        Metrics(),
        Topics(live_pool),
        Waiting(live_pool, Notifier(live_pool)),
    )
    engine = Engine(live_pool, topics, Walk(live_pool), waiting, Policies(settings), Durable(live_pool, 1, 1))
    await live_pool.add([NewJob(id="a", topic="t", body=b"1")])
    yield Web(engine, settings, dict, metrics, Scrape(metrics, topics, waiting, Totals()))


async def ready_again(pool: Pool) -> bool:
    job = await pool.get("a")
    return job is not None and (job.state.word, job.attempts) == ("ready", 0)


async def test_a_job_whose_answer_cannot_be_sent_goes_back(web: Web, live_pool: Pool) -> None:
    asked: list[bytes] = []

    async def send(reply: Reply, request_id: str) -> None:
        asked.append(reply.body)
        raise ConnectionResetError

    await web.answer(POP, "", send)
    assert b'"id":"a"' in asked[0]
    await until(lambda: ready_again(live_pool))


@pytest.mark.parametrize("turns", [0, 1, 2, 3, 5, 8, 13, 21, None])
async def test_a_job_whose_client_hangs_up_goes_back(web: Web, live_pool: Pool, turns: int | None) -> None:
    """So many turns of the loop after its request, or while the answer waits for a client that does not read."""
    begun = asyncio.Event()

    async def send(reply: Reply, request_id: str) -> None:
        begun.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(web.answer(POP, "", send))
    if turns is None:
        await begun.wait()
    else:
        for _ in range(turns):
            await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert task.cancelled()
    await until(lambda: ready_again(live_pool))
