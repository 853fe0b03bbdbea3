"""Real brokers, and one suite over all kinds of sinks. This is what the suite needs of a broker.

A broker has a folder of its own and keeps its data there over a restart. A module here has one class, which `BROKERS`
names by its kind.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, NamedTuple

BROKERS = {
    "amqp": "tests.jobqueue.sinks.brokers.rabbitmq:RabbitMq",
    "http": "tests.jobqueue.sinks.brokers.http_receiver:HttpReceiver",
    "kafka": "tests.jobqueue.sinks.brokers.kafka:Kafka",
    "nats": "tests.jobqueue.sinks.brokers.nats_server:NatsServer",
    "sql-sqlite": "tests.jobqueue.sinks.brokers.databases:SQLite",
    "sql-postgresql": "tests.jobqueue.sinks.brokers.databases:PostgreSQL",
    "sql-mariadb": "tests.jobqueue.sinks.brokers.databases:MariaDB",
    "stomp": "tests.jobqueue.sinks.brokers.stomp_servers:RabbitMqStomp",
    "stomp-activemq": "tests.jobqueue.sinks.brokers.stomp_servers:ActiveMq",
    "redis-stream": "tests.jobqueue.sinks.brokers.redis_streams:RedisStreams",
}
RESTARTED = [kind for kind in BROKERS if kind != "kafka"]
"""Those that may be killed, and start again on the same port with what they had."""
_PATIENCE_S = 60.0


class Missing(Exception):
    """A server that is not installed."""


class Received(NamedTuple):
    """A message as a receiver of the broker got it."""

    key: str
    headers: dict[str, str]
    body: bytes


class Broker(ABC):
    """One server process on a TCP port of 127.0.0.1, started and restarted on the same one."""

    kind: str
    most_body = 256 << 10
    """Bytes of the largest body that it takes; larger ones are poison."""
    drops_repetitions = False
    """Whether it drops messages whose key it has had."""
    is_kept = False
    """Whether it starts so slowly that the tests of a process share it."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="jq-broker-"))
        self._process: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def command(self) -> list[str]:
        """What runs in the foreground. Raises Missing."""

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
        if self._process is None or self._process.poll() is not None:
            self._process = self._begin()
        end = time.monotonic() + _PATIENCE_S
        while not await self.answers():
            if self._process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"{self.kind} did not start: {(self.folder / 'log').read_text()[-2000:]}")
            await asyncio.sleep(0.05)

    def _begin(self) -> subprocess.Popen[bytes]:
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(
                self.command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def kill(self) -> None:
        """SIGKILL to all of its processes."""
        self._signal(signal.SIGKILL)
        if self._process is not None:
            self._process.wait()

    def remove(self) -> None:
        """Kill it, and remove its folder."""
        self.thaw()
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def freeze(self) -> None:
        """SIGSTOP: it stands still, and its connections stay open."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, number)
