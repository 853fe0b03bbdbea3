"""`make bench-sizing`: whether Redis needs as many bytes per job as docs/sizing.md says, in each state.

`python -m tests.bench.sizing 100000` sets the number of jobs per measurement. The exit code is 1 if a figure is
beyond the tolerance.
"""

from __future__ import annotations

import asyncio
import re
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from buckets import NewJob, Pool, Redis
from buckets.job import State
from tests.bench.memory import used, vendor
from tests.redis_server import RedisServer, binaries
from tests.waiting import tick_all

DOCUMENT = Path(__file__).parents[2] / "docs" / "sizing.md"
JOBS = 20_000  # as full as the hash tables of Redis are on average: 61 %
SHAPES = ((20, 20), (20, 100), (36, 250), (20, 1000), (36, 4000))  # characters of the id, bytes of the body
# Measured bytes, divided by the document's, on each kind of server.
BOUNDS = {"redis": (0.85, 1.15), "valkey": (0.7, 1.0)}
_TOPIC = "order-new"
_HOUR_MS = 3_600_000
_BATCH = 1000


class Size(NamedTuple):
    """Bytes of a job in one state: a base, and so many per character of its id and per byte of its body."""

    base: float
    per_id: float
    per_body: float

    def of(self, id_length: int, body: int) -> float:
        return self.base + self.per_id * id_length + self.per_body * body


def sizes() -> dict[str, Size]:
    """The formula of the document, by state."""
    row = re.compile(r"^\| (delayed|ready|reserved|dead|tombstone)\b[^|]*\| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|", re.M)
    return {state: Size(*map(float, numbers)) for state, *numbers in row.findall(DOCUMENT.read_text())}


async def fill(pool: Pool, state: str, jobs: int, id_length: int, body: int) -> None:
    """Bring this many jobs into a state."""
    text = b'"' + b"x" * (body - 2) + b'"'
    delay_ms = _HOUR_MS if state == "delayed" else 0
    for start in range(0, jobs, _BATCH):
        ids = [f"{number:0{id_length}}" for number in range(start, min(start + _BATCH, jobs))]
        await pool.add([NewJob(each, _TOPIC, text, delay_ms=delay_ms, retention_ms=_HOUR_MS, tries=1) for each in ids])
        if state not in ("delayed", "ready"):
            await _deliver(pool, state, len(ids))


async def _deliver(pool: Pool, state: str, jobs: int) -> None:
    """Pop this many jobs; end them as the state says."""
    while jobs:
        popped = (await pool.pop([_TOPIC], jobs, ttr_ms=1 if state == "dead" else _HOUR_MS)).jobs
        jobs -= len(popped)
        if state == "tombstone":
            await pool.finish([(job.id, job.lease) for job in popped])
        while state == "dead" and popped and not await _is_dead(pool, popped[-1].id):
            await tick_all(pool)


async def _is_dead(pool: Pool, job_id: str) -> bool:
    job = await pool.get(job_id)
    return job is not None and job.state is State.DEAD


async def measured(server: str, state: str, jobs: int, id_length: int, body: int) -> tuple[str, float]:
    """The name of the server, and its bytes per job. Each figure has a server of its own: some keep freed memory."""
    with tempfile.TemporaryDirectory(prefix="jq-") as folder, RedisServer(Path(folder), server=server) as running:
        redis = Redis(running.url)
        pool = await Pool.open(redis)
        empty = await used(redis)
        await fill(pool, state, jobs, id_length, body)
        each = (await used(redis) - empty) / jobs
        name, _ = await vendor(redis)
        await pool.close()
        await redis.close()
    return name, each


async def check(server: str, jobs: int, shapes: Sequence[tuple[int, int]]) -> bool:
    """Print a line for each figure. Returns whether all are within the tolerance."""
    good = True
    for id_length, body in shapes:
        for state, size in sizes().items():
            name, found = await measured(server, state, jobs, id_length, body)
            said = size.of(id_length, body)
            least, most = BOUNDS[name]
            fits = least <= found / said <= most
            good = good and fits
            note = "" if fits else f"  (wanted: {least} to {most})"
            figures = f"{found:6.0f} bytes, formula {said:6.0f}, ratio {found / said:.2f}"
            print(f"{name:6} id {id_length}, body {body:>4}: {state:9} {figures}{note}", flush=True)
    return good


async def main(jobs: int = JOBS, shapes: Sequence[tuple[int, int]] = SHAPES) -> int:
    assert len(sizes()) == 5, "the table of docs/sizing.md has another form"
    return 0 if all([await check(server, jobs, shapes) for server in dict.fromkeys(binaries())]) else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main(int(sys.argv[1]) if sys.argv[1:] else JOBS)))
