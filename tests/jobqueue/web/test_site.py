"""Jobs whose answer reaches nobody go back, whichever path their request took."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

import pytest

from buckets import Durable, Job, NewJob, Notifier, Poller, Pollers, Pool, Topics, Waiting, Walk
from jobqueue.access.connections import ConnectionLimits
from jobqueue.access.grants import GRANT, OPEN
from jobqueue.engine.engine import Engine
from jobqueue.engine.new_jobs import Policies
from jobqueue.metrics.process import Metrics
from jobqueue.metrics.scrape import Scrape, Totals
from jobqueue.protocols import Reply
from jobqueue.settings import Settings
from jobqueue.web.peer import Peer
from jobqueue.web.ports import Runner
from jobqueue.web.site import Web
from tests.jobqueue.entries import open_entry
from tests.jobqueue.web.guards import guard
from tests.kit.waiting import until

POP = b'{"command":"pop","topic":"t"}'
ADD = b'{"command":"add","topic":"t","id":"behind","body":1}'


@pytest.fixture
async def web(live_pool: Pool) -> AsyncIterator[Web]:
    """With one job that is ready."""
    settings, metrics, topics, waiting = (
        Settings(),
        Metrics(),
        Topics(live_pool),
        Waiting(live_pool, Notifier(live_pool)),
    )
    pollers, policies = Pollers(live_pool, Notifier(live_pool), "ab"), Policies(settings)
    engine = Engine(live_pool, topics, Walk(live_pool), waiting, pollers, policies, Durable(live_pool, 1, 1))
    await live_pool.add([NewJob(id="a", topic="t", body=b"1")])
    yield Web(engine, settings, dict, metrics, Scrape(metrics, topics, waiting, pollers, Totals()), open_entry())


async def ready_again(pool: Pool) -> bool:
    job = await pool.get("a")
    return job is not None and (job.state.word, job.attempts) == ("ready", 0)


class Sink:
    """A client whose answer goes to a function."""

    def __init__(self, send: Callable[[Reply], Awaitable[None]]) -> None:
        self._send = send

    async def send(self, reply: Reply, request_id: str, *, has_jobs: bool) -> None:
        await self._send(reply)


async def test_a_job_whose_answer_cannot_be_sent_goes_back(web: Web, live_pool: Pool) -> None:
    asked: list[bytes] = []

    async def send(reply: Reply) -> None:
        asked.append(reply.body)
        raise ConnectionResetError

    GRANT.set(OPEN)
    await web.answer(POP, "", Sink(send))
    assert b'"id":"a"' in asked[0]
    await until(lambda: ready_again(live_pool))


@pytest.mark.parametrize("turns", [0, 1, 2, 3, 5, 8, 13, 21, None])
async def test_a_job_whose_client_hangs_up_goes_back(web: Web, live_pool: Pool, turns: int | None) -> None:
    """That many turns of the loop after its request, or while the answer waits for a client that does not read."""
    begun = asyncio.Event()

    async def send(reply: Reply) -> None:
        begun.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(web.answer(POP, "", Sink(send)))
    if turns is None:
        await begun.wait()
    else:
        for _ in range(turns):
            await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert task.cancelled()
    await until(lambda: ready_again(live_pool))


def posted(body: bytes, path: str) -> bytes:
    """A request on the fast or the complete path."""
    more = b"" if path == "fast" else b"X-Odd:1\r\n"
    return b"POST /command HTTP/1.1\r\nHost: t\r\n%bContent-Length: %d\r\n\r\n%b" % (more, len(body), body)


@pytest.mark.parametrize("path", ["fast", "complete"])
@pytest.mark.parametrize("ends", [socket.socket.close, lambda end: end.shutdown(socket.SHUT_WR)])
async def test_a_job_whose_client_hung_up_unnoticed_by_the_loop_goes_back(
    web: Web, live_pool: Pool, monkeypatch: pytest.MonkeyPatch, path: str, ends: Callable[[socket.socket], None]
) -> None:
    """The loop does not turn between the hang-up and the answer, which the socket would take. No request behind it is
    begun."""
    loop = asyncio.get_running_loop()
    limits = ConnectionLimits(60, 10)
    runner = Runner(web.application(), web, limits, guard())
    await runner.open("127.0.0.1", 0)
    with socket.create_connection(runner.addresses[0]) as client:
        client.setblocking(False)
        end, hung_up = Pollers.end, asyncio.Event()

        def end_and_hang_up(pollers: Pollers, poller: Poller, jobs: Sequence[Job]) -> None:
            """A pop has found jobs, and is about to be answered."""
            assert jobs
            end(pollers, poller, jobs)
            ends(client)
            hung_up.set()

        monkeypatch.setattr(Pollers, "end", end_and_hang_up)
        await loop.sock_sendall(client, posted(POP, path) + posted(ADD, path))
        await hung_up.wait()
        await until(lambda: ready_again(live_pool))
        await until(lambda: not limits.joined(Peer))
        assert await live_pool.get("behind") is None
    await runner.close()
