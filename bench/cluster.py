"""`make bench-cluster`: the same work on one Redis, with 1 and with 16 shards, and on a Cluster of three, in turns.

Everything runs on one machine, so a Cluster is not faster here. The bench shows how evenly its servers share the work,
and what a shard costs. Redis's CPU per job shows how many jobs N servers could take, each on its own machine, given
enough services in front of them. `python -m bench.cluster 2000 1` sets other numbers of jobs and rounds.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

from bench.memory import BODY
from buckets import NewJob, Pool, Redis
from tests.kit.redis_cluster import MASTERS, ClusterSet
from tests.kit.redis_server import RedisServer
from tests.kit.service import ServiceProcess

JOBS = 20_000  # per round
ROUNDS = 5
BATCH = 100
AT_ONCE = 8  # batches
SHARDS = 16
MACHINES = (1, 3, 6, 12)
IDLE_S = 5.0


@dataclass
class Subject:
    """A set-up with its measurements by work: jobs per second, and Redis CPU in us per job."""

    name: str
    pool: Pool
    rates: dict[str, list[float]] = field(default_factory=dict)
    cpu_us: dict[str, list[float]] = field(default_factory=dict)
    shares: dict[str, float] = field(default_factory=dict)
    """The share of each server in the CPU."""

    async def round(self, number: int, jobs: int) -> None:
        """Add jobs, then pop and finish them."""
        fresh = [NewJob(f"{number}:{each:010d}", "work", BODY) for each in range(jobs)]
        await self._measured("add", jobs, [self.pool.add(fresh[at : at + BATCH]) for at in range(0, jobs, BATCH)])
        await self._measured("pop and finish", jobs, [self._take() for _ in range(0, jobs, BATCH)])
        left = (await self.pool.pop(["work"], BATCH)).jobs
        while left:  # a pop served by only some shards takes fewer
            await self.pool.finish([(job.id, job.lease) for job in left])
            left = (await self.pool.pop(["work"], BATCH)).jobs

    async def _take(self) -> None:
        popped = await self.pool.pop(["work"], BATCH)
        await self.pool.finish([(job.id, job.lease) for job in popped.jobs])

    async def _measured(self, name: str, jobs: int, works: list[object]) -> None:
        room = asyncio.Semaphore(AT_ONCE)

        async def one(work: object) -> None:
            async with room:
                await work  # type: ignore[misc]  # a coroutine

        before, begun = await cpu_of(self.pool.redis), time.perf_counter()
        await asyncio.gather(*map(one, works))
        took, after = time.perf_counter() - begun, await cpu_of(self.pool.redis)
        spent = {server: after[server] - before[server] for server in after}
        self.rates.setdefault(name, []).append(jobs / took)
        self.cpu_us.setdefault(name, []).append(sum(spent.values()) * 1e6 / jobs)
        for server, seconds in spent.items():
            self.shares[server] = self.shares.get(server, 0.0) + seconds


async def cpu_of(redis: Redis) -> dict[str, float]:
    """The CPU seconds of each server so far."""
    return {server.name: await _figure(server, "used_cpu_user", "used_cpu_sys") for server in await redis.servers()}


async def _figure(server: object, *names: str) -> float:
    said = (await server.read("INFO")).decode()  # type: ignore[attr-defined]
    fields = dict(line.split(":", 1) for line in said.splitlines() if ":" in line)
    return sum(float(fields[name]) for name in names)


async def commands_of(redis: Redis) -> float:
    """The commands of all servers so far, including those inside scripts."""
    return sum([await _figure(server, "total_commands_processed") for server in await redis.servers()])


async def idle(url: str) -> float:
    """Redis commands per second of an idle service."""
    redis = Redis(url)
    async with ServiceProcess("--redis", url, "--namespace", "idle"):
        await asyncio.sleep(1)  # it has only just started
        before, begun = await commands_of(redis), time.perf_counter()
        await asyncio.sleep(IDLE_S)
        rate = (await commands_of(redis) - before) / (time.perf_counter() - begun)
    await redis.close()
    return rate


def show(subjects: list[Subject]) -> None:
    """Print the measurements, and what follows for N machines."""
    for name in subjects[0].rates:
        for subject in subjects:
            rate, cpu = statistics.median(subject.rates[name]), statistics.median(subject.cpu_us[name])
            first = statistics.median(subjects[0].rates[name])
            print(f"{name:15} {subject.name:30} {rate:9,.0f} jobs/s ({rate / first:4.2f} x)  Redis {cpu:5.1f} us a job")
    cluster = subjects[-1]
    total = sum(cluster.shares.values())
    print("CPU of the Cluster's servers:", *(f"{100 * each / total:.0f} %" for each in cluster.shares.values()))
    print("Redis's limit in jobs/s, the CPU of a job divided over N servers as evenly as here:")
    busiest = max(cluster.shares.values()) / total * MASTERS  # relative to the mean
    for name in cluster.cpu_us:
        cpu = statistics.median(cluster.cpu_us[name])
        limits = (f"N={n}: {n * 1e6 / cpu / (busiest if n > 1 else 1):,.0f}" for n in MACHINES)
        print(f"{name:15} {'  '.join(limits)}")


async def main(jobs: int, rounds: int) -> None:
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="jq-"))
        alone = stack.enter_context(RedisServer(Path(folder))).url
        together = (await stack.enter_async_context(ClusterSet(replicas=0))).url
        subjects: list[Subject] = []
        for name, url, shards in (
            ("one Redis, 1 shard", alone, 1),
            (f"one Redis, {SHARDS} shards", alone, SHARDS),
            (f"Cluster of {MASTERS}, {SHARDS} shards", together, SHARDS),
        ):
            redis = Redis(url)
            stack.push_async_callback(redis.close)
            pool = await Pool.open(redis, f"bench{len(subjects)}", shards=shards, buckets=2)
            stack.push_async_callback(pool.close)
            subjects.append(Subject(name, pool))
        for number in range(rounds):
            for subject in subjects:
                await subject.round(number, jobs)
        show(subjects)
        for name, url in (("one Redis", alone), ("a Cluster", together)):
            print(f"an idle service on {name}: {await idle(url):.0f} Redis commands a second")


if __name__ == "__main__":
    asyncio.run(main(*[int(each) for each in sys.argv[1:]] or [JOBS, ROUNDS]))
