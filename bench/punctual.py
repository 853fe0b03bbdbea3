"""`make bench-punctual`: how late a parked pop gets its job, with two service processes on one Redis.

Lateness is the time at which the answer was read minus the due time, on one machine and so on one clock. The pop may
wait at either process; the two share the timers. Then one process is killed with SIGKILL, and in another run stopped
with SIGTERM. `python -m bench.punctual 20` sets another number of samples.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from bench.figures import show
from tests.kit.redis_server import RedisServer
from tests.kit.service import Client, ServiceProcess

JOBS = 150


async def lateness(producer: Client, worker: Client, delay_s: float) -> float:
    """Milliseconds from a job's due time to its arrival at a waiting pop."""
    parked = asyncio.create_task(worker.ask("pop", topic="wake", wait=30))
    await producer.ask("add", topic="wake", delay=delay_s, body=1)
    got = await parked
    arrived = time.time()
    await worker.ask("finish", id=got["id"])
    assert got["lease"] / 1e6 >= got["due"], "early"
    return float(arrived - got["due"]) * 1000


async def wakes(services: list[ServiceProcess], samples: int) -> None:
    for adding in (0, 1):
        async with Client(services[adding].url) as producer, Client(services[0].url) as worker:
            late = [await lateness(producer, worker, 0.05 + each % 7 / 100) for each in range(samples)]
        show(f"added through {'another process' if adding else 'the process it is parked on'}", late, "20 ms")


async def takeover(redis: str, end: Callable[[ServiceProcess], Awaitable[object]], rounds: int) -> list[float]:
    """Lateness of jobs that fall due every 10 ms across all buckets, while a process with half of the timers ends."""
    late: list[float] = []
    for _ in range(rounds):
        async with (
            ServiceProcess("--redis", redis) as first,
            ServiceProcess("--redis", redis) as second,
            Client(second.url) as client,
        ):
            begin = time.time() + 2
            for each in range(JOBS):  # one by one, because the jobs of one request go into one bucket
                await client.ask("add", topic="t", at=begin + 0.01 * each, body=each)
            reading = asyncio.create_task(read(client, JOBS))
            await asyncio.sleep(max(0, begin + 0.3 - time.time()))
            await end(first)
            late.append(max(await reading))
    return late


async def read(client: Client, number: int) -> list[float]:
    late: list[float] = []
    while len(late) < number:
        answer = await client.ask("pop", topic="t", count=10, wait=10)
        arrived = time.time()
        for job in answer["jobs"]:
            assert job["lease"] / 1e6 >= job["due"], "early"
            late.append((arrived - job["due"]) * 1000)
            await client.ask("finish", id=job["id"])
    return late


async def main(samples: int) -> None:
    with tempfile.TemporaryDirectory(prefix="jq-") as folder, RedisServer(Path(folder)) as redis:
        flags = ("--redis", redis.url)
        async with ServiceProcess(*flags) as first, ServiceProcess(*flags) as second:
            await wakes([first, second], samples)
        rounds = max(2, samples // 10)
        show("the latest job, one of two killed -9", await takeover(redis.url, ServiceProcess.kill, rounds), "600 ms")
        show(
            "the latest job, one of two stopped by SIGTERM",
            await takeover(redis.url, ServiceProcess.stop, rounds),
            "100 ms",
        )


if __name__ == "__main__":
    asyncio.run(main(*[int(each) for each in sys.argv[1:]] or [100]))
