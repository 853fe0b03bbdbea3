"""The HTTP side of a service without its ports: requests are handed to it, on the fast or on the complete path."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from buckets import LOCAL, Durability, Durable, Notifier, Pollers, Pool, Topics, Waiting, Walk
from jobqueue.access.caller import CALLER, Cancellable
from jobqueue.access.grants import GRANT, OPEN
from jobqueue.engine.engine import Engine
from jobqueue.engine.new_jobs import Policies
from jobqueue.metrics.process import Metrics
from jobqueue.metrics.scrape import Scrape, Totals
from jobqueue.protocols import Reply
from jobqueue.settings import Settings
from jobqueue.web.fast_path import Head
from jobqueue.web.site import Web
from tests.jobqueue.entries import open_entry

PATIENCE_S = 10.0
MINE = Head(0, "mine", b"")
"""The head of a request with an id."""


class Client:
    """The client of one request. All of an address are the same to the service."""

    address = "127.0.0.1:7"
    host = "127.0.0.1"
    certificate_names = ()
    grant = OPEN
    trace = ""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Client) and other.address == self.address

    def __hash__(self) -> int:
        return hash(self.address)

    def __init__(self) -> None:
        self.is_connected = True
        self.is_behind = False
        self.hangs_up = False
        """Whether it has hung up, which only its socket knows."""
        self.task: asyncio.Task[None] | None = None
        self.in_flight: Cancellable | None = None
        self._reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()

    def has_hung_up(self) -> bool:
        return self.hangs_up

    def answer(self, body: bytes, request_id: str) -> None:
        assert request_id == "mine"
        self._reply.set_result(Reply(200, body))

    def complete(self, work: Coroutine[Any, Any, None]) -> None:
        assert self.task is None, "it is answered once"
        self.task = asyncio.create_task(self._carry_out(work))

    async def _carry_out(self, work: Coroutine[Any, Any, None]) -> None:
        CALLER.set(self)
        GRANT.set(self.grant)
        await work

    async def send(self, reply: Reply, request_id: str, *, has_jobs: bool) -> None:
        assert request_id == "mine"
        if not self.is_connected or (has_jobs and self.hangs_up):
            raise ConnectionResetError
        self._reply.set_result(reply)

    def leave(self) -> None:
        """Hang up; the service learns of it."""
        self.is_connected = False
        if self.task:
            asyncio.get_running_loop().call_soon(self.task.cancel)  # it has begun by then
        elif self.in_flight:
            self.in_flight.cancel()

    @property
    def is_answered(self) -> bool:
        return self._reply.done()

    async def reply(self) -> Reply:
        """The answer."""
        async with asyncio.timeout(PATIENCE_S):
            while not self._reply.done():
                if self.task and self.task.done():
                    self.task.result()
                await asyncio.wait([self._reply], timeout=0.01)
        return self._reply.result()


class Site:
    """The HTTP side of a service on a pool."""

    def __init__(self, pool: Pool, settings: Settings | None = None, durability: Durability = LOCAL) -> None:
        settings = settings or Settings()
        self.pool = pool
        self.metrics = Metrics()
        topics, self.waiting = Topics(pool), Waiting(pool, Notifier(pool))
        self.pollers = Pollers(pool, Notifier(pool), "ab")
        self.engine = Engine(
            pool, topics, Walk(pool), self.waiting, self.pollers, Policies(settings), Durable(pool, 1, 0.1), durability
        )
        scrape = Scrape(self.metrics, topics, self.waiting, self.pollers, Totals())
        self.web = Web(self.engine, settings, dict, self.metrics, scrape, open_entry())
        self.fast = self.complete = 0  # requests

    def begin(self, data: bytes) -> Client:
        """Begin to answer a request as a connection does."""
        client = Client()
        client.in_flight = self.web.begin(data, MINE, client)
        if client.in_flight is None:
            self.complete += 1
        else:
            self.fast += 1
        return client

    async def ask(self, data: bytes) -> Reply:
        """The answer to a request."""
        return await self.begin(data).reply()

    async def ask_completely(self, data: bytes) -> Reply:
        """The answer to a request on the complete path."""
        client = Client()
        client.complete(self.web.answer(data, "mine", client))
        return await client.reply()

    def counted(self) -> dict[tuple[str, ...], int]:
        """How many commands were answered, by protocol, command and code."""
        return dict(self.metrics._commands._numbers)

    def timed(self) -> dict[tuple[str, ...], float]:
        """How many commands' durations were counted, by protocol and command."""
        return {labels: sum(numbers[:-1]) for labels, numbers in self.metrics._command_seconds._numbers.items()}

    def polling(self) -> list[tuple[object, ...]]:
        """Who polls, and for how many jobs they answer."""
        leases = [id(poller) for poller, _ in self.pollers._leases.values()]
        rows = self.pollers._pollers.values()
        return sorted((each.worker, each.topics, each.waiting, leases.count(id(each))) for each in rows)
