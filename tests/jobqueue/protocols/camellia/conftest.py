"""The dialect on a real pool whose clock stands still, so that every byte of an answer is known."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

import pytest
from multidict import CIMultiDict

from buckets import Durable, Job, Meter, Notifier, Pollers, Pool, Topics, Waiting, Walk
from buckets.clock import HeldClock
from jobqueue.access.connections import ConnectionLimits
from jobqueue.access.grants import GRANT, OPEN, Grant
from jobqueue.commands.carrying_out import Commands
from jobqueue.dialect_settings import Camellia
from jobqueue.engine.engine import Engine
from jobqueue.engine.new_jobs import Policies
from jobqueue.metrics.process import Metrics
from jobqueue.protocols import Reply, Request, Tools
from jobqueue.protocols.camellia.dialect import CamelliaDialect
from jobqueue.settings import Settings
from tests.jobqueue.entries import open_entry

FORM = "application/x-www-form-urlencoded; charset=utf-8"
Make = Callable[..., "Server"]


class Server:
    """The dialect as a client sees it, without a network between them."""

    def __init__(self, pool: Pool, clock: HeldClock, settings: Settings, options: Camellia) -> None:
        self.pool = pool
        self.clock = clock
        self.metrics = Metrics()
        pool.redis.meter = self.metrics
        self.is_ready = True
        self.grant: Grant = OPEN
        notifier = Notifier(pool)
        engine = Engine(
            *(pool, Topics(pool), Walk(pool), Waiting(pool, notifier)),
            Pollers(pool, notifier, "ab"),
            Policies(settings),
            Durable(pool, 1, 1),
        )
        commands = Commands(engine, self.metrics, 5.0, "camellia")
        limits = ConnectionLimits(10, 10)
        tools = Tools(commands, settings, limits, engine.give_back, open_entry(), lambda: self.is_ready, time.time)
        self.dialect = CamelliaDialect(tools, options)

    async def exchange(self, request: Request) -> Reply:
        """A request and its reply, as the service makes it of them."""
        reserved: list[Job] = []
        GRANT.set(self.grant)
        try:
            return await self.dialect.handle(request, reserved)
        except Exception as error:
            return self.dialect.refuse(error, request)

    async def post(self, path: str, body: bytes = b"", query: str = "", content_type: str = FORM) -> Reply:
        headers = CIMultiDict({"Content-Type": content_type})
        return await self.exchange(Request("POST", path, query, headers, body))

    async def get(self, path: str, query: str = "") -> Reply:
        return await self.exchange(Request("GET", path, query, CIMultiDict[str](), b"last=body"))

    async def ask(self, operation: str, namespace: str = "", **parameters: Any) -> Any:
        """What an operation of the SDK answers, which must be HTTP 200."""
        path, form = f"{namespace}/camellia/delayQueue/{operation}", urlencode(parameters)
        reply = await (
            self.get(path, form) if operation.startswith(("getTopic", "getMon")) else self.post(path, form.encode())
        )
        assert reply.status == 200, reply.body
        return json.loads(reply.body)

    async def send(self, **parameters: Any) -> Any:
        """The message that was sent."""
        form: dict[str, Any] = {"topic": "t", "msg": "x", "delayMillis": 0}
        answer = await self.ask("sendMsg", **(form | parameters))
        assert answer["code"] == 200, answer
        return answer["delayMsg"]

    async def pull(self, **parameters: Any) -> Any:
        """The messages that were pulled."""
        return (await self.ask("pullMsg", **({"topic": "t"} | parameters)))["delayMsgList"]

    async def read(self, msg_id: str, topic: str = "t") -> Any:
        """A message by its id."""
        return (await self.ask("getMsg", topic=topic, msgId=msg_id))["delayMsg"]

    async def pass_ms(self, ms: int) -> None:
        """Let time pass, and the timers move what is due then."""
        self.clock.advance(ms)
        for bucket in range(self.pool.buckets):
            while (await self.pool.due(0, bucket))[0]:
                pass


@pytest.fixture
def make(pool: Pool, clock: HeldClock) -> Make:
    """Makes the dialect with these options of its own, and `settings` of the service."""

    def make(settings: Settings | None = None, **options: Any) -> Server:
        return Server(pool, clock, settings or Settings(), Camellia(**({"port": 8080} | options)))

    return make


@pytest.fixture
def camellia(make: Make) -> Server:
    """The dialect with its defaults."""
    return make()


__all__ = ["FORM", "Make", "Meter", "Server"]
