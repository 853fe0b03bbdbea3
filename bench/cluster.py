"""`make bench-cluster`: the same work by HTTP with 1, 3 and 16 shards, on one Redis and on a Cluster of three masters,
in turns.

Everything runs on one machine, so a Cluster is not faster here. The bench shows what shards and servers cost: rates,
and CPU a job, as ratios to one shard on one Redis. Redis's CPU per job, and how evenly the servers share it, show how
many jobs N servers could take, each on its own machine, given enough services in front of them.
`python -m bench.cluster 0.2 1` sets another share of the work and number of rounds.
"""

from __future__ import annotations

import asyncio
import math
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from bench.compare import Cpu, Run
from bench.compare.load.compiled import program
from bench.compare.systems.served import Served
from bench.compare.systems.service import Service
from buckets import Redis
from tests.kit.redis_cluster import MASTERS, ClusterSet
from tests.kit.redis_server import RedisServer
from tests.kit.service import ServiceProcess

SHARDS = (1, 3, 16)
ROUNDS = 5
MACHINES = (1, 3, 6, 12)
IDLE_S = 5.0


class Sharded(Served):
    """One worker of the service on a namespace with so many shards."""

    DIALECT = "http"

    def __init__(self, name: str, url: str, shards: int, folder: Path) -> None:
        self.name = f"{name}, {shards} shard{'s' if shards > 1 else ''}"
        self._url = url
        self._settings = folder / f"{name}-{shards}.toml"
        self._settings.write_text(f"shards = {shards}\nbuckets = {8 if shards == 1 else 2}\n")
        self._service = Service(folder)
        self.runs: dict[str, list[Run]] = {}

    def begin(self) -> None:
        """Start the service."""
        self._service.start("--redis", self._url, "--workers", "1", "--config", str(self._settings))

    def end(self) -> None:
        """Stop the service, and empty Redis."""
        self._service.stop()
        asyncio.run(_on_servers(self._url, "FLUSHALL"))

    def cpu(self) -> Cpu:
        return Cpu(sum(self.redis_us().values()), self._service.cpu_us(0))

    def redis_us(self) -> dict[str, float]:
        """The CPU of each server so far, in us."""
        told = asyncio.run(_on_servers(self._url, "INFO", "cpu"))
        return {name: 1e6 * sum(_figures(said, "used_cpu_user", "used_cpu_sys")) for name, said in told.items()}


Work = Callable[[Sharded, float], Run]
WORKS: dict[str, Work] = {
    "add, 8 connections": lambda system, share: system.add_one(share, 8),
    "add, 64 connections": lambda system, share: system.add_one(share, 64),
    "add by 100": lambda system, share: system.add_batch(share, 100),
    "pop + finish, 8": lambda system, share: system.pop_finish_one(round(6_000 * share), 8),
    "pop + finish, 64": lambda system, share: system.pop_finish_one(round(12_000 * share), 64),
    "finish and next pop, 64": lambda system, share: system.finish_and_next(round(12_000 * share), 64),
    "pop + finish by 100": lambda system, share: system.pop_finish_batch(round(400 * share) * 100, 100),
}


async def _on_servers(url: str, *command: str) -> dict[str, bytes]:
    redis = Redis(url)
    told = {server.name: await server.read(*command) for server in await redis.servers()}
    await redis.close()
    return told


def _figures(said: bytes, *names: str) -> list[float]:
    fields = dict(line.split(":", 1) for line in said.decode().splitlines() if ":" in line)
    return [float(fields[name]) for name in names]


async def idle(url: str) -> float:
    """Redis commands per second of an idle service."""
    async with ServiceProcess("--redis", url, "--namespace", "idle"):
        await asyncio.sleep(1)  # it has only just started
        before, begun = await _commands(url), time.perf_counter()
        await asyncio.sleep(IDLE_S)
        return (await _commands(url) - before) / (time.perf_counter() - begun)


async def _commands(url: str) -> float:
    """The commands of all servers so far, including those inside scripts."""
    told = await _on_servers(url, "INFO", "stats")
    return sum(_figures(said, "total_commands_processed")[0] for said in told.values())


def measure(systems: Sequence[Sharded], rounds: int, share: float) -> dict[str, float]:
    """Do all works with each system in turn; returns the CPU of each server of the last one, in us."""
    servers: dict[str, float] = {}
    for _ in range(rounds):
        for system in systems:
            for name, work in WORKS.items():
                system.begin()
                before = system.redis_us()
                system.runs.setdefault(name, []).append(work(system, share))
                if system is systems[-1]:
                    for server, us in system.redis_us().items():
                        servers[server] = servers.get(server, 0) + us - before[server]
                system.end()
    return servers


def show(systems: Sequence[Sharded], servers: dict[str, float]) -> None:
    """Print the medians, their ratios to the first system, and what follows for N machines."""
    busiest = max(servers.values()) / sum(servers.values()) * MASTERS  # relative to the mean
    for name in WORKS:
        print(f"\n{name:24} {'jobs/s':>9} {'':8} {'Redis us':>8} {'':8} {'service us':>10}")
        first: list[float] = []
        for system in systems:
            runs = system.runs[name]
            rate = statistics.median(run.rate for run in runs)
            redis = statistics.median(run.cpu.store_us / run.jobs for run in runs)
            service = statistics.median(run.cpu.service_us / run.jobs for run in runs)
            first = first or [rate, redis, service]
            pairs = zip((rate, redis, service), first, strict=True)
            ratios = [f"({now / then if then else math.nan:4.2f} x)" for now, then in pairs]
            print(f"{system.name:24} {rate:9,.0f} {ratios[0]} {redis:8.1f} {ratios[1]} {service:10.1f} {ratios[2]}")
        limits = (f"N={n}: {n * 1e6 / redis / (busiest if n > 1 else 1):,.0f}" for n in MACHINES)
        print(f"{'Redis on N machines':24} {'  '.join(limits)} jobs/s")
    total = sum(servers.values())
    print("\nCPU of the Cluster's servers:", *(f"{100 * each / total:.0f} %" for each in servers.values()))


async def main(share: float, rounds: int) -> None:
    program()
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="jq-")))
        alone = stack.enter_context(RedisServer(folder)).url
        together = (await stack.enter_async_context(ClusterSet(replicas=0))).url
        places = (("one Redis", alone), ("Cluster of 3", together))
        systems = [Sharded(name, url, shards, folder) for name, url in places for shards in SHARDS]
        show(systems, await asyncio.to_thread(measure, systems, rounds, share))
        for name, url in (("one Redis", alone), ("a Cluster", together)):
            print(f"an idle service on {name}: {await idle(url):.0f} Redis commands a second")


if __name__ == "__main__":
    asked = [float(each) for each in sys.argv[1:]] or [1.0, ROUNDS]
    asyncio.run(main(asked[0], int(asked[1])))
