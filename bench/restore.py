"""`make bench-restore`: how many jobs a second `jobqueue restore` brings back, from each kind of database.

Half of the jobs are delayed, half are ready. `jobqueue journal run` has drained them all when Redis is emptied, and
drains what the restore tells meanwhile. `python -m bench.restore 1000000` sets another number of jobs. Redis, the
restore, the journal and the database share the machine.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from bench.journal_run import KINDS, databases, drained, opened
from buckets.job import NewJob
from buckets.pool.pool import Pool
from buckets.redis.client import Redis
from jobqueue.journal.reading.sql import Sql
from tests.jobqueue.journal.reading.process import JournalProcess
from tests.kit.redis_server import RedisServer

JOBS = 100_000
_AT_ONCE = 1_000
_HOUR_MS = 3_600_000
_BODY = b'"' + b"x" * 98 + b'"'


async def fill(pool: Pool, jobs: int) -> None:
    for first in range(0, jobs, _AT_ONCE):
        some = range(first, min(first + _AT_ONCE, jobs))
        await pool.add([NewJob(f"job-{n:09}", f"topic-{n % 10}", _BODY, delay_ms=n % 2 * _HOUR_MS) for n in some])


async def restore(redis: str, journal: str, *arguments: str) -> tuple[float, dict[str, int]]:
    """The seconds that a run took, and what it did."""
    environment = {**os.environ, "JOBQUEUE_REDIS": redis, "JOBQUEUE_JOURNAL": journal}
    began = time.perf_counter()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "jobqueue", "restore", "--all", "--rate", "1000000", "--json", *arguments),
        env=environment,
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await process.communicate()
    assert process.returncode == 0
    return time.perf_counter() - began, json.loads(output)["counts"]


async def redis_us(redis: Redis) -> float:
    """us of CPU that Redis has used."""
    told = (await redis.read("INFO", "cpu")).decode()
    lines = dict(line.split(":") for line in told.splitlines() if ":" in line)
    return 1e6 * (float(lines["used_cpu_user"]) + float(lines["used_cpu_sys"]))


async def measure(kind: str, url: str, jobs: int, folder: Path) -> None:
    with RedisServer(folder) as server:
        redis = Redis(server.url)
        pool = await opened(redis)
        sql = Sql(url)
        await sql.open()
        async with JournalProcess(server.url, url, folder / "log"):
            await fill(pool, jobs)
            await drained(pool, sql)
            await redis.read("FLUSHALL")
            await pool.ensure_meta(0)
            before = await redis_us(redis)
            seconds, done = await restore(server.url, url)
            used = await redis_us(redis) - before
            assert done["put"] == jobs, done
            again, known = await restore(server.url, url)
            assert known == {"looked": jobs, "known": jobs}, known
        print(
            f"{kind:10} {jobs:,} jobs in {seconds:6.1f} s with its start: {jobs / seconds:7,.0f} a second, "
            f"{used / jobs:5.1f} us of Redis a job; once more, with nothing to do: {again:5.1f} s",
            flush=True,
        )
        await sql.close()
        await pool.close()
        await redis.close()


async def main(jobs: int = JOBS, kinds: Sequence[str] = KINDS) -> None:
    with tempfile.TemporaryDirectory(prefix="jq-bench-") as name, databases(Path(name), kinds) as made:
        for kind, new_url in made.items():
            await measure(kind, new_url(), jobs, Path(name))


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else JOBS))
