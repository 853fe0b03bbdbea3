"""`make bench-sizing`: whether a job takes as many bytes of Redis in each state, and as much of a core, as
`jobqueue sizing` reckons with.

CPU is compared with that of a SET and a ZADD in the same run, as the cores of machines differ. The exit code is 1 if a
figure is beyond the tolerance.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from bench.compare.systems.bare_redis import Bare
from bench.compare.systems.ours import Ours
from bench.compare.works import BATCH, figures
from bench.memory import used, vendor
from buckets import NewJob, Pool, Redis, Slicing
from buckets.job import State
from jobqueue.cli.sizing import IN_BATCHES, ONE_A_REQUEST, SIZES, YARDSTICK_US
from tests.kit.redis_server import RedisServer, binaries
from tests.kit.waiting import tick_all

JOBS = 20_000  # as full as the hash tables of Redis are on average: 61 %
SHAPES = ((20, 20), (20, 100), (36, 250), (20, 1000), (36, 4000))  # characters of the id, bytes of the body
# Measured bytes, divided by the document's, on each kind of server.
BOUNDS = {"redis": (0.85, 1.15), "valkey": (0.7, 1.0)}
CPU_BOUNDS = (0.85, 1.15)
CONNECTIONS = 64
ROUNDS = 9
SAID_US = [each for cost in (ONE_A_REQUEST, IN_BATCHES) for each in (cost.redis_us, cost.service_us)]
_TOPIC = "order-new"
_HOUR_MS = 3_600_000
_BATCH = 1000


async def fill(pool: Pool, state: str, jobs: int, id_length: int, body: int) -> None:
    """Bring this many jobs into a state."""
    text = b'"' + b"x" * (body - 2) + b'"'
    delay_ms = {"delayed": _HOUR_MS, "far": 2 * _HOUR_MS}.get(state, 0)
    for start in range(0, jobs, _BATCH):
        ids = [f"{number:0{id_length}}" for number in range(start, min(start + _BATCH, jobs))]
        await pool.add([NewJob(each, _TOPIC, text, delay_ms=delay_ms, retention_ms=_HOUR_MS, tries=1) for each in ids])
        if state not in ("delayed", "far", "ready"):
            await _deliver(pool, state, len(ids))
    await Slicing(pool, rest=0, least=1).tick(0)


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
        for state, size in SIZES.items():
            name, found = await measured(server, state, jobs, id_length, body)
            said = size.of(id_length, body)
            least, most = BOUNDS[name]
            fits = least <= found / said <= most
            good = good and fits
            note = "" if fits else f"  (wanted: {least} to {most})"
            figures = f"{found:6.0f} bytes, formula {said:6.0f}, ratio {found / said:.2f}"
            print(f"{name:6} id {id_length}, body {body:>4}: {state:9} {figures}{note}", flush=True)
    return good


def costs(rounds: int, jobs: int) -> dict[str, float]:
    """How often a job takes the CPU of a bare SET and ZADD, by what it takes it of."""
    found: dict[str, list[float]] = defaultdict(list)
    with tempfile.TemporaryDirectory(prefix="jq-") as folder, ExitStack() as stack:
        bare, ours = Bare(), Ours()
        for system in (bare, ours):
            (Path(folder) / system.NAME).mkdir()
            stack.callback(system.stop)
            system.start(Path(folder) / system.NAME)
        for _ in range(rounds):
            yardstick = figures(bare.add_one(jobs / 20_000, CONNECTIONS))["store_us"]
            bare.clear()
            for title, run in (
                ("one a request", ours.cycle(jobs, 1, CONNECTIONS)),
                ("batches", ours.cycle(jobs, BATCH)),
            ):
                cpu = figures(run)
                found[f"Redis, {title}"].append(cpu["store_us"] / yardstick)
                found[f"the service, {title}"].append(cpu["service_us"] / yardstick)
    return {name: statistics.median(each) for name, each in found.items()}


def check_costs(rounds: int = ROUNDS, jobs: int = JOBS) -> bool:
    """Print a line for each figure. Returns whether all are within the tolerance."""
    good = True
    for (name, times), us in zip(costs(rounds, jobs).items(), SAID_US, strict=True):
        ratio = times * YARDSTICK_US / us
        fits = CPU_BOUNDS[0] <= ratio <= CPU_BOUNDS[1]
        good = good and fits
        note = "" if fits else f"  (wanted: {CPU_BOUNDS[0]} to {CPU_BOUNDS[1]})"
        print(f"{name:26} {times:5.2f} times a SET and a ZADD, ratio {ratio:.2f} to what is said{note}", flush=True)
    return good


async def main(jobs: int = JOBS, shapes: Sequence[tuple[int, int]] = SHAPES) -> bool:
    """Memory, on each server."""
    return all([await check(server, jobs, shapes) for server in dict.fromkeys(binaries())])


if __name__ == "__main__":
    sys.exit(not all([asyncio.run(main()), check_costs()]))
