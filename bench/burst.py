"""`make bench-burst`: 100,000 jobs due in the same millisecond, and the cost of an idle service.

It measures the time from the due time until the last job is ready, the scripts in Redis's slow log (over 5 ms), and the
round trips of another topic meanwhile; then the Redis commands per second of an idle service with 1,000 topics.
`python -m bench.burst 5000` sets another number of jobs.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from pathlib import Path

from bench.figures import show
from buckets import Redis
from tests.kit.redis_server import RedisServer
from tests.kit.service import Client, ServiceProcess

SLOW_US = 5000
IDLE_S = 5


async def add_all(client: Client, jobs: int, at: float) -> None:
    for start in range(0, jobs, 1000):
        await client.batch(
            [
                {"command": "add", "topic": "burst", "id": f"burst:{each:012d}", "at": at, "body": "x" * 98}
                for each in range(start, min(start + 1000, jobs))
            ]
        )


async def others(client: Client, end: asyncio.Event) -> list[float]:
    """Round trips (ms) of add, pop and finish of a job in another topic, from the due time on."""
    trips = []
    while not end.is_set():
        begun = time.perf_counter()
        await client.ask("add", topic="other", id="o", body=1, if_exists="replace")
        assert (await client.ask("pop", topic="other"))["id"] == "o"
        await client.ask("finish", id="o")
        trips.append((time.perf_counter() - begun) * 1000)
        await asyncio.sleep(0.01)
    return trips


async def burst(client: Client, redis: Redis, jobs: int) -> None:
    at = time.time() + 3 + jobs / 8000
    await add_all(client, jobs, at)
    assert time.time() < at, "the adds were too slow for this benchmark"
    await redis.read("CONFIG", "SET", "slowlog-log-slower-than", SLOW_US)
    await redis.read("SLOWLOG", "RESET")
    end = asyncio.Event()
    async with Client(client.url) as other:
        await asyncio.sleep(max(0, at - time.time()))
        trips = asyncio.create_task(others(other, end))
        while (await client.ask("stats", topic="burst"))["counts"]["ready"] < jobs:  # noqa: ASYNC110 - it is Redis's
            await asyncio.sleep(0.02)
        took = time.time() - at
        end.set()
        show("another topic meanwhile: add, pop, finish", await trips)
    print(f"{jobs:,} jobs due in one millisecond: all ready after {took:.2f} s   (target: 1.5 s)")
    print(f"scripts over {SLOW_US // 1000} ms: {await redis.read('SLOWLOG', 'LEN')}   (target: 0)")


async def calls(redis: Redis) -> int:
    """The commands that Redis has run, including those inside scripts."""
    lines = (await redis.read("INFO", "commandstats")).decode().splitlines()
    return sum(int(line.partition("calls=")[2].partition(",")[0]) for line in lines if "calls=" in line)


async def idle(client: Client, redis: Redis) -> None:
    for start in range(0, 1000, 500):
        await client.batch(
            [
                {"command": "add", "topic": f"topic-{each}", "delay": 86_400, "body": 1}
                for each in range(start, start + 500)
            ]
        )
    await asyncio.sleep(11)  # by then it has told Redis how many jobs it has added, of which topics
    before = await calls(redis)
    await asyncio.sleep(IDLE_S)
    rate = (await calls(redis) - before) / IDLE_S
    print(f"an idle service, 8 buckets, 1,000 topics: {rate:.0f} Redis commands a second   (target: under 50)")


async def main(jobs: int) -> None:
    with tempfile.TemporaryDirectory(prefix="jq-") as folder, RedisServer(Path(folder)) as server:
        redis = Redis(server.url)
        async with ServiceProcess("--redis", server.url) as service, Client(service.url) as client:
            await burst(client, redis, jobs)
            await idle(client, redis)
        await redis.close()


if __name__ == "__main__":
    asyncio.run(main(*[int(each) for each in sys.argv[1:]] or [100_000]))
