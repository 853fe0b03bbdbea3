"""Real brokers for tests. This is what tests need of each.

A broker has a folder of its own and keeps its data there over a restart. A module here has one class, which `BROKERS`
names by its kind.
"""

from __future__ import annotations

import asyncio
import importlib
import time
from abc import abstractmethod
from typing import Any, NamedTuple

from tests.kit.program import PATIENCE_S, Program

BROKERS = {
    "amqp": "tests.kit.brokers.rabbitmq:RabbitMq",
    "http": "tests.kit.brokers.http_receiver:HttpReceiver",
    "kafka": "tests.kit.brokers.kafka:Kafka",
    "nats": "tests.kit.brokers.nats_server:NatsServer",
    "sql-sqlite": "tests.kit.brokers.databases:SQLite",
    "sql-postgresql": "tests.kit.brokers.databases:PostgreSQL",
    "sql-mariadb": "tests.kit.brokers.databases:MariaDB",
    "stomp": "tests.kit.brokers.stomp_servers:RabbitMqStomp",
    "stomp-activemq": "tests.kit.brokers.stomp_servers:ActiveMq",
    "redis-stream": "tests.kit.brokers.redis_streams:RedisStreams",
}
RESTARTED = [kind for kind in BROKERS if kind != "kafka"]
"""Those that may be killed, and start again on the same port with what they had."""


class Received(NamedTuple):
    """A message as a receiver of the broker got it."""

    key: str
    headers: dict[str, str]
    body: bytes


class Broker(Program):
    """One server process on a TCP port of 127.0.0.1, started and restarted on the same one."""

    most_body = 256 << 10
    """Bytes of the largest body that it takes; larger ones are poison."""
    drops_repetitions = False
    """Whether it drops messages whose key it has had."""
    is_kept = False
    """Whether it starts so slowly that the tests of a process share it."""

    @abstractmethod
    async def answers(self) -> bool:
        """Whether it can be used."""

    @abstractmethod
    async def prepare(self, topics: list[str]) -> None:
        """Make what messages of these topics go to: streams, queues, exchanges. It is empty, and durable."""

    @abstractmethod
    def table(self) -> dict[str, Any]:
        """The settings of a sink, but for `topics`."""

    @abstractmethod
    async def received(self) -> list[Received]:
        """All messages that are there, in their order; they stay, or are kept by this object."""

    async def clear(self) -> None:
        """Remove what an earlier test has left in one that is kept."""
        raise NotImplementedError

    async def start(self) -> None:
        """Start it, unless it runs, and wait until it can be used."""
        if not self.runs:
            self.begin()
        end = time.monotonic() + PATIENCE_S
        while not await self.answers():
            if not self.runs or time.monotonic() > end:
                raise self.failure()
            await asyncio.sleep(0.05)


def new_broker(kind: str) -> Broker:
    module, _, name = BROKERS[kind].partition(":")
    broker: Broker = getattr(importlib.import_module(module), name)()
    return broker
