"""Thousands of slow and half-open clients: whether other clients notice them, and what they cost in memory.

`python -m tests.chaos.slow_clients [--half-open 2000] [--dripping 2000] [--seconds 60] [--client-timeout 30]` starts a
service and a Redis of its own, and prints its measurements as one line of JSON. A third of the half-open connections
send nothing; the others stop in the middle of a request. The dripping ones send a byte every 5 s. All reconnect when
they are dropped. Next to them, ten clients add, pop and finish over a connection each, and one checks the health over a
new connection each time. Exit code 1: their p99 was over 1 s, something failed, or memory was not bounded.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

from jobqueue.access.connections import most_connections
from tests.kit.redis_server import RedisServer
from tests.kit.service import Client, ServiceProcess

MOST_P99_S = 1.0
MOST_KB = 24.0  # memory per slow connection
_DRIP_S = 5.0  # between two bytes
_OTHERS = 10
_HEAD = b"POST /command HTTP/1.1\r\nHost: slow\r\nContent-Length: 4000\r\n\r\n"
_HALF_OPEN = (b"", _HEAD[:40], _HEAD, b"", b"GET /healthz HTTP/1.1\r\nHos", _HEAD + b"x" * 2000)


@dataclass
class Report:
    """The measurements; times in s, memory in MB."""

    open_most: int = 0
    dropped: int = 0
    asked: int = 0
    failed: int = 0
    p50_s: float = 0.0
    p99_s: float = 0.0
    health_p99_s: float = 0.0
    alone_p99_s: float = 0.0
    memory_before: float = 0.0
    memory_most: float = 0.0
    kb_each: float = 0.0

    @property
    def is_good(self) -> bool:
        """Whether the other clients were unaffected."""
        slowest = max(self.p99_s, self.health_p99_s)
        return self.asked > 0 and not self.failed and slowest <= MOST_P99_S and self.kb_each <= MOST_KB


@dataclass
class Times:
    """How long the other clients had to wait, in s."""

    commands: list[float] = field(default_factory=list)
    health: list[float] = field(default_factory=list)
    failed: int = 0


def _quantile(times: list[float], part: float) -> float:
    return sorted(times)[min(int(len(times) * part), len(times) - 1)] if times else 0.0


def _memory_mb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


class Crowd:
    """The slow clients."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._tasks: list[asyncio.Task[None]] = []
        self._number = 0
        self._all_there = asyncio.Event()
        self.open = 0
        self.open_most = 0
        self.dropped = 0

    async def gather(self, half_open: int, dripping: int) -> None:
        """Connect them all, and return when they are connected."""
        for number in range(half_open):
            self._tasks.append(asyncio.create_task(self._half_open(_HALF_OPEN[number % len(_HALF_OPEN)])))
        for _ in range(dripping):
            self._tasks.append(asyncio.create_task(self._dripping()))
        self._number = half_open + dripping
        async with asyncio.timeout(30):
            await self._all_there.wait()

    async def _half_open(self, said: bytes) -> None:
        while True:
            async with self._connection() as (reader, writer):
                writer.write(said)
                await reader.read()  # until it is dropped

    async def _dripping(self) -> None:
        while True:
            async with self._connection() as (reader, writer):
                gone = asyncio.create_task(reader.read())
                try:
                    for byte in _HEAD:
                        writer.write(bytes([byte]))
                        if (await asyncio.wait({gone}, timeout=_DRIP_S))[0]:
                            break
                finally:
                    gone.cancel()
                    await asyncio.gather(gone, return_exceptions=True)

    @contextlib.asynccontextmanager
    async def _connection(self) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        self.open += 1
        self.open_most = max(self.open, self.open_most)
        if self.open >= self._number:
            self._all_there.set()
        try:
            with contextlib.suppress(OSError):
                yield reader, writer
        finally:
            self.open -= 1
            self.dropped += 1
            writer.transport.abort()

    async def leave(self) -> None:
        """Disconnect them all."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def _others(url: str, seconds: float) -> Times:
    """Measure well-behaved clients."""
    times = Times()
    end = time.monotonic() + seconds

    async def work(number: int) -> None:
        async with Client(url) as client:
            turn = 0
            while time.monotonic() < end:
                turn += 1
                topic = f"t{number}"
                for command in (
                    {"command": "add", "topic": topic, "id": f"{number}.{turn}", "body": "x" * 100},
                    {"command": "pop", "topic": topic},
                    {"command": "finish", "id": f"{number}.{turn}"},
                ):
                    begun = time.monotonic()
                    try:
                        _, answer = await client.post(json.dumps(command).encode())
                        times.failed += not answer["success"]
                    except OSError:
                        times.failed += 1
                    times.commands.append(time.monotonic() - begun)
                await asyncio.sleep(0.02)

    async def probe() -> None:
        while time.monotonic() < end:
            begun = time.monotonic()
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
                writer.write(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                times.failed += not (await reader.read()).startswith(b"HTTP/1.1 200 ")
                writer.close()
            except OSError:
                times.failed += 1
            times.health.append(time.monotonic() - begun)
            await asyncio.sleep(0.05)

    await asyncio.gather(probe(), *map(work, range(_OTHERS)))
    return times


async def measure(half_open: int, dripping: int, seconds: float, client_timeout_s: float) -> Report:
    """Run the whole measurement, with a service of one process."""
    most_connections(half_open + dripping + 1000)  # this process needs that many files too
    report = Report()
    with tempfile.TemporaryDirectory(prefix="jq-") as folder, RedisServer(Path(folder)) as redis:
        config = Path(folder) / "jobqueue.toml"
        config.write_text(f"client_timeout_s = {client_timeout_s}\n")
        async with ServiceProcess("--redis", redis.url, "--config", str(config)) as service:
            assert service.process
            alone = await _others(service.url, min(5.0, seconds))
            report.alone_p99_s = _quantile(alone.commands, 0.99)
            report.memory_before = _memory_mb(service.process.pid)
            crowd = Crowd(service.port)
            coming = asyncio.create_task(crowd.gather(half_open, dripping))
            working = asyncio.create_task(_others(service.url, seconds))
            while not working.done():
                report.memory_most = max(report.memory_most, _memory_mb(service.process.pid))
                await asyncio.wait({working}, timeout=0.5)
            times = await working
            await coming
            await crowd.leave()
    report.open_most, report.dropped = crowd.open_most, crowd.dropped - half_open - dripping
    report.asked, report.failed = len(times.commands), times.failed
    report.p50_s, report.p99_s = _quantile(times.commands, 0.5), _quantile(times.commands, 0.99)
    report.health_p99_s = _quantile(times.health, 0.99)
    report.kb_each = (report.memory_most - report.memory_before) * 1024 / max(report.open_most, 1)
    return report


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--half-open", type=int, default=2000)
    parser.add_argument("--dripping", type=int, default=2000)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--client-timeout", type=float, default=30)
    given = parser.parse_args()
    report = asyncio.run(measure(given.half_open, given.dripping, given.seconds, given.client_timeout))
    print(json.dumps({name: round(value, 4) for name, value in vars(report).items()}))
    return 0 if report.is_good else 1


if __name__ == "__main__":
    sys.exit(main())
