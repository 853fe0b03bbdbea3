"""`make bench-memory`: bytes of Redis memory per pending job, on each available server.

Jobs have a 20-character id, a 9-character topic and a 100-byte body, and are due in two to three hours. The result is
the growth of `used_memory` divided by the jobs: of jobs that are in the sets of their buckets, as those are that are
due within the hour, and once they have moved into slices. `python -m bench.memory 10000` sets another number of jobs.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

from buckets import NewJob, Pool, Redis, Slicing
from tests.kit.redis_server import RedisServer, binaries

BODY = b'"' + b"x" * 98 + b'"'
BATCH = 1000
BOUNDS = {"redis": (400, 301), "valkey": (320, 301)}  # bytes: in sets, from design.md; in slices, what beanstalkd has


def job(number: int) -> NewJob:
    """A job due in more than two hours."""
    return NewJob(f"order-close:{number:08d}", "order-new", BODY, delay_ms=7_200_000 + number % 3_600_000)


async def fill(pool: Pool, first: int, last: int) -> None:
    """Add the jobs with these numbers."""
    for start in range(first, last, BATCH):
        await pool.add([job(number) for number in range(start, min(start + BATCH, last))])


async def used(redis: Redis) -> int:
    info = (await redis.read("INFO", "memory")).decode()
    return int(next(line for line in info.splitlines() if line.startswith("used_memory:")).partition(":")[2])


async def vendor(redis: Redis) -> tuple[str, str]:
    """The server's name and version."""
    lines = (await redis.read("INFO", "server")).decode().splitlines()
    fields = dict(line.split(":", 1) for line in lines if ":" in line)
    name = "valkey" if "valkey_version" in fields else "redis"
    return name, fields[f"{name}_version"]


async def measure(server: str, steps: list[int]) -> bool:
    """Print a line for each number of jobs. Returns whether all are within the bound."""
    with tempfile.TemporaryDirectory(prefix="jq-") as folder, RedisServer(Path(folder), server=server) as running:
        redis = Redis(running.url)
        pool = await Pool.open(redis)
        name, version = await vendor(redis)
        empty, good = await used(redis), True
        for step in steps:
            await redis.read("FLUSHALL")
            await pool.ensure_meta(0)
            await fill(pool, 0, step)
            in_sets = (await used(redis) - empty) / step
            await Slicing(pool, rest=0, least=1).tick(0)
            in_slices = (await used(redis) - empty) / step
            good = good and in_sets <= BOUNDS[name][0] and in_slices <= BOUNDS[name][1]
            both = (
                f"{in_sets:.1f} bytes a job, in slices {in_slices:.1f} (at most {BOUNDS[name][0]}, {BOUNDS[name][1]})"
            )
            print(f"{name} {version:10} {step:>9,} jobs: {both}", flush=True)
        await redis.close()
    return good


async def main(steps: list[int]) -> int:
    return 0 if all([await measure(server, steps) for server in dict.fromkeys(binaries())]) else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main([int(each) for each in sys.argv[1:]] or [100_000, 1_000_000])))
