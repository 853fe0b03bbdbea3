"""`make bench-tls`: adds one a request over 32 kept connections, without TLS and with the service's own.

Two services with one worker each take turns on one Redis. The clients are in Python, and take most of the time; what
TLS costs the service is in its CPU time. `python -m bench.tls 10 2` sets the number of rounds and the
seconds of each measurement.
"""

from __future__ import annotations

import asyncio
import ssl
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from bench.compare.processes import cpu_us
from tests.access.secure import Link, Secure
from tests.jobqueue.access.authorities import Files
from tests.kit.redis_server import RedisServer
from tests.kit.service import ServiceProcess

CONNECTIONS = 32
ROUNDS, SECONDS = 6, 3.0

Connect = Callable[[], Awaitable[Link]]


async def run(service: ServiceProcess, connect: Connect, seconds: float) -> tuple[float, float]:
    """Adds a second, and the service's CPU microseconds for each."""
    assert service.process
    links = [await connect() for _ in range(CONNECTIONS)]
    before, begun = cpu_us(service.process.pid), time.monotonic()

    async def ask(link: Link) -> int:
        asked = 0
        while time.monotonic() < begun + seconds:
            await link.ask()
            asked += 1
        return asked

    added = sum(await asyncio.gather(*map(ask, links)))
    took, cost = time.monotonic() - begun, cpu_us(service.process.pid) - before
    for link in links:
        link.close()
    return added / took, cost / added


async def shake_hands(service: ServiceProcess, connect: Connect, number: int) -> float:
    """The service's CPU microseconds for a connection and its first add."""
    assert service.process
    before = cpu_us(service.process.pid)
    for _ in range(number):
        link = await connect()
        await link.ask()
        link.close()
    return (cpu_us(service.process.pid) - before) / number


async def main(rounds: int = ROUNDS, seconds: float = SECONDS) -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory(prefix="jq-") as name, RedisServer(Path(name)) as redis:
        files = Files(Path(name))
        context: ssl.SSLContext = files.client()
        plain, secure = ServiceProcess("--redis", redis.url), Secure(Path(name), redis.url, files, workers=1)
        async with plain, secure:

            async def without() -> Link:
                return Link(*await asyncio.open_connection("127.0.0.1", plain.port))

            ways: dict[str, tuple[ServiceProcess, Connect]] = {
                "without TLS": (plain, without),
                "with TLS": (secure, lambda: secure.connect(context)),
            }
            found: dict[str, list[tuple[float, float]]] = {way: [] for way in ways}
            for number in range(rounds + 1):
                for way, (service, connect) in ways.items():
                    measured = await run(service, connect, seconds)
                    if number:  # the first round warms up
                        found[way].append(measured)
            for way, (service, connect) in ways.items():
                rate, cost = (statistics.median(column) for column in zip(*found[way], strict=True))
                first = await shake_hands(service, connect, round(100 * seconds))
                costs = f"{cost:5.1f} us of CPU each, {first:6.0f} us for a new connection"
                print(f"{way:12} {rate:7,.0f} adds a second, {costs}")


if __name__ == "__main__":
    asyncio.run(main(*(kind(text) for kind, text in zip((int, float), sys.argv[1:], strict=False))))
