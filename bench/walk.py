"""`make bench-walk`: what a walk over 500,000 jobs costs everyone else: scripts over 5 ms, and pops without and with
it.

A service handles load on one topic while a walker goes over the jobs of the others. To add a walker, add a function to
WALKERS. `python -m bench.walk 20000` sets another number of jobs.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from bench.burst import SLOW_US
from bench.figures import percentile, show
from bench.memory import BATCH, BODY
from buckets import NewJob, Pool, Redis
from buckets.scripts import SCRIPTS
from tests.kit.redis_server import RedisServer
from tests.kit.service import JOBQUEUE, Client, ServiceProcess

QUIET_S = 10.0  # of load without a walk
TOPICS = 20


def job(number: int) -> NewJob:
    """A job: most are due later, some are ready, and some of these have a ttl."""
    topic, job_id = f"topic-{number % TOPICS}", f"walk:{number:015d}"
    if number % 10:
        return NewJob(job_id, topic, BODY, delay_ms=3_600_000 + number % 3_600_000)
    return NewJob(job_id, topic, BODY, ttl_ms=86_400_000 if number % 20 else None)


async def fill(pool: Pool, jobs: int) -> None:
    for start in range(0, jobs, BATCH):
        await pool.add([job(number) for number in range(start, min(start + BATCH, jobs))])


async def load(client: Client, name: str, end: asyncio.Event) -> list[float]:
    """Add, pop and finish jobs one after another. Returns the milliseconds of each pop."""
    took, number = [], 0
    while not end.is_set():
        number += 1
        await client.ask("add", topic=name, id=f"{name}-{number}", body=number, retention=1)
        begun = time.perf_counter()
        got = await client.ask("pop", topic=name)
        took.append((time.perf_counter() - begun) * 1000)
        await client.ask("finish", id=got["id"])
        await asyncio.sleep(0.005)
    return took


async def pops_during(client: Client, walk: Awaitable[object]) -> list[float]:
    end = asyncio.Event()
    loads = [asyncio.create_task(load(client, f"busy-{each}", end)) for each in range(3)]
    await walk
    end.set()
    return [each for took in await asyncio.gather(*loads) for each in took]


async def jobqueue(*words: str) -> None:
    """Run a command of the command line, like an operator."""
    process = await asyncio.create_subprocess_exec(*JOBQUEUE, *words, stdout=asyncio.subprocess.DEVNULL)
    assert await process.wait() == 0


async def fsck(service: str, redis: str) -> None:
    await jobqueue("fsck", "--repair", "--redis", redis)


async def peek(service: str, redis: str) -> None:
    """Peek at all jobs of one topic, which are in the same buckets as those of all others."""
    await jobqueue("peek", "topic-0", "--all", "--url", service)


async def topics(service: str, redis: str) -> None:
    for _ in range(5):
        await jobqueue("topics", "--url", service)


async def purge(service: str, redis: str) -> None:
    for number in range(TOPICS):
        await jobqueue("purge", f"topic-{number}", "--yes", "--url", service)


# The last walker leaves nothing to walk over.
WALKERS: dict[str, Callable[[str, str], Awaitable[None]]] = {
    "peek": peek,
    "topics": topics,
    "fsck": fsck,
    "purge": purge,
}


def names_of(slow: list[list[Any]]) -> Counter[str]:
    """The slow scripts by name. Names that other work uses too, such as pop and due, may just mean a busy machine."""
    scripts = {script.sha: script.name for script in SCRIPTS.values()}
    commands = [entry[3] for entry in slow]
    return Counter(scripts.get(b"".join(command[1:2]).decode(), command[0].decode()) for command in commands)


async def measure(client: Client, redis: Redis, name: str, url: str) -> None:
    """Measure load without a walk, with it, and without it once more."""
    quiet = await pops_during(client, asyncio.sleep(QUIET_S / 2))
    await redis.read("SLOWLOG", "RESET")
    begun = time.perf_counter()
    busy = await pops_during(client, WALKERS[name](client.url, url))
    took = time.perf_counter() - begun
    slow = await redis.read("SLOWLOG", "GET", "1000")
    quiet += await pops_during(client, asyncio.sleep(QUIET_S / 2))
    show("pops without a walk", quiet)
    show(f"pops during {name}", busy)
    ratio = percentile(busy, 99) / percentile(quiet, 99)
    print(f"{name} took {took:.1f} s; p99 of pops times {ratio:.2f}   (target: 2)")
    print(f"scripts over {SLOW_US // 1000} ms during {name}: {len(slow)}   (target: 0)  {dict(names_of(slow))}")


async def main(jobs: int) -> None:
    with tempfile.TemporaryDirectory(prefix="jq-") as folder, RedisServer(Path(folder)) as server:
        redis = Redis(server.url)
        await fill(await Pool.open(redis), jobs)
        await redis.read("CONFIG", "SET", "slowlog-log-slower-than", SLOW_US, "slowlog-max-len", 1000)
        async with ServiceProcess("--redis", server.url) as service, Client(service.url) as client:
            for name in WALKERS:
                await measure(client, redis, name, server.url)
        await redis.close()


if __name__ == "__main__":
    asyncio.run(main(*[int(each) for each in sys.argv[1:]] or [500_000]))
