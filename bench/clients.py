"""`make bench-clients`: the throughput of each client in one process, with the service on the same machine.

It measures single adds one after another, adds in batches of 100, and a worker whose handlers do nothing. The clients
take turns in rounds, next to prepared bytes over one socket (`programs/bare.py`), which the ratios refer to. Then it
measures how their workers end: one that is killed in the middle of a job, from the end of its lease to the next
delivery; and one that is stopped while a job waits for it, from the signal until nothing is reserved.
`python -m bench.clients 1 500 2` sets other numbers of rounds, jobs and deaths.
"""

from __future__ import annotations

import asyncio
import json
import signal
import statistics
import sys
import tempfile
import time
from pathlib import Path

from bench.figures import show
from bench.programs.bare import BATCH
from tests.conformance.participants import PARTICIPANTS, Participant, Worker
from tests.kit.redis_server import RedisServer
from tests.kit.service import ROOT, Client, ServiceProcess

TTR_S = 1.0

PROGRAMS = "bench/programs"
CONTESTANTS = {
    "bare": [sys.executable, "-m", "bench.programs.bare"],
    "python": [sys.executable, "-m", "bench.programs.client"],
    "python-async": [sys.executable, "-m", "bench.programs.client_async"],
    "php": ["php", f"{PROGRAMS}/client.php"],
    "node": ["node", f"{PROGRAMS}/client.mjs"],
}

WORKS = {"add": "adds/s, one a request", "batch": f"adds/s, {BATCH} a request", "work": "jobs/s, a worker"}


async def measure(url: str, name: str, work: str, count: int, topic: str) -> float:
    """Jobs per second of a program of its own."""
    if work == "work":
        await fill(url, topic, count)
    process = await asyncio.create_subprocess_exec(
        *CONTESTANTS[name],
        *(url, work, str(count), topic),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        cwd=ROOT,
    )
    said, _ = await process.communicate()
    return count / float(json.loads(said)["seconds"])


async def fill(url: str, topic: str, count: int) -> None:
    """Add ready jobs."""
    async with Client(url) as client:
        for begin in range(0, count, BATCH):
            ids = range(begin, min(begin + BATCH, count))
            adds = [{"command": "add", "topic": topic, "id": f"{topic}:{each:010}", "body": "x" * 98} for each in ids]
            assert all(answer["success"] for answer in await client.batch(adds))


async def throughput(url: str, names: list[str], rounds: int, count: int) -> None:
    """Print a table: medians, with their ratio to the bare socket in brackets."""
    print(f"{'':16}" + "".join(f"{title:>28}" for title in WORKS.values()), flush=True)
    rates: dict[tuple[str, str], list[float]] = {}
    for turn in range(rounds):
        for work in WORKS:
            for number, name in enumerate(names):
                times = 5 if work == "batch" else 1
                rate = await measure(url, name, work, count * times, f"{work}{turn}{number}")
                rates.setdefault((name, work), []).append(rate)
    for name in names:
        row = [statistics.median(rates[name, work]) for work in WORKS]
        best = [statistics.median(rates["bare", work]) for work in WORKS]
        print(f"{name:16}" + "".join(f"{a:>20,.0f} ({a / b:.2f})" for a, b in zip(row, best, strict=True)), flush=True)


class Quiet(Worker):
    """A worker without a readable log."""

    log = asyncio.subprocess.DEVNULL


async def killed(service: ServiceProcess, client: Client, participant: Participant, topic: str) -> float:
    """Milliseconds from the end of a killed worker's lease to the next delivery, on Redis's clock."""
    options = {"topics": [topic]}
    async with Quiet(participant, service.url, options) as worker:
        job = (await client.ask("add", topic=topic, body={"do": "sleep", "seconds": 60}, ttr=TTR_S))["id"]
        await worker.handler("started", job)
        await asyncio.sleep(TTR_S / 2)  # it has extended its lease by then
        worker.process.kill()
        await worker.process.wait()
        end = (await client.ask("get", id=job))["reserved_until"]
        again = await client.ask("pop", topic=topic, wait=20)
        await client.ask("finish", id=job)
        return float(again["lease"] / 1e6 - end) * 1000


async def stopped(service: ServiceProcess, client: Client, participant: Participant, topic: str) -> float:
    """Milliseconds from a SIGTERM amid a stream of jobs until none is reserved."""
    async with Quiet(participant, service.url, {"topics": [topic]}) as worker:
        await worker.event("worker.started")
        adds = [{"command": "add", "topic": topic, "body": {"do": "return"}} for _ in range(200)]
        await client.batch(adds)
        await worker.event("job.finished", times=20)
        worker.process.send_signal(signal.SIGTERM)
        begun = time.perf_counter()
        while (await client.ask("stats", topic=topic))["counts"]["reserved"]:  # noqa: ASYNC110 - another process does it
            await asyncio.sleep(0.002)
        took = time.perf_counter() - begun
        assert await worker.end() == 0
        await client.ask("purge", topic=topic)
        return took * 1000


async def deaths(service: ServiceProcess, participants: list[Participant], times: int) -> None:
    async with Client(service.url) as client:
        for participant in participants:
            name = participant.name
            late = [await killed(service, client, participant, f"kill-{name}") for _ in range(times)]
            show(f"{name}: killed -9, handed out again after the lease's end", late, "200 ms")
            late = [await stopped(service, client, participant, f"stop-{name}") for _ in range(times)]
            show(f"{name}: SIGTERM in a stream, until nothing is reserved", late, "100 ms")


async def main(rounds: int = 5, count: int = 3000, times: int = 20) -> None:
    present = [participant for participant in PARTICIPANTS if participant.lacks() is None]
    for participant in PARTICIPANTS:
        if missing := participant.lacks():
            print(f"{participant.name}: {missing}", flush=True)
    with tempfile.TemporaryDirectory(prefix="jq-") as folder, RedisServer(Path(folder)) as redis:
        async with ServiceProcess("--redis", redis.url) as service:
            await throughput(service.url, ["bare", *(each.name for each in present)], rounds, count)
            await deaths(service, present, times)


if __name__ == "__main__":
    asyncio.run(main(*[int(each) for each in sys.argv[1:]]))
