"""`make bench-schedules`: how late occurrences are made, what others pay for it, and the CPU of many schedules.

1,000 schedules are due in the same millisecond, again and again: how long after it each occurrence is made, and how
late a waiting pop of another topic gets its jobs in the second after it, and at other times. Then 10,000 schedules,
each every minute, spread over it: the CPU time of the service and of Redis, compared with that of an idle service.
`python -m bench.schedules 100 1000` sets other numbers.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.figures import show
from buckets import Redis
from tests.kit.redis_server import RedisServer
from tests.kit.service import Client, ServiceProcess

EVERY_S = 5
_PACE_S = 0.05
_AT_ONCE = 200
_IDLE_S = 10


async def define(client: Client, schedules: list[dict[str, Any]]) -> None:
    for place in range(0, len(schedules), _AT_ONCE):
        commands = [{"command": "schedule", "body": "x" * 98, **each} for each in schedules[place : place + _AT_ONCE]]
        assert all(answer["success"] for answer in await client.batch(commands))


async def remove(client: Client, names: list[str]) -> None:
    for place in range(0, len(names), _AT_ONCE):
        await client.batch([{"command": "unschedule", "name": name} for name in names[place : place + _AT_ONCE]])


async def other(client: Client, until: float) -> list[tuple[float, float]]:
    """The due times of jobs of another topic, and how late a waiting pop got them, in ms."""
    found = []
    async with Client(client.url) as producer:
        while time.time() < until:
            parked = asyncio.create_task(client.ask("pop", topic="other", wait=30))
            await producer.ask("add", topic="other", delay=_PACE_S, body=1, ttr=0)
            job = await parked
            found.append((job["due"], (time.time() - job["due"]) * 1000))
    return found


async def together(url: str, number: int, rounds: int) -> None:
    """Schedules that are due at the same time."""
    async with Client(url) as client, Client(url) as waiting:
        start = int(time.time()) + 5 + number // 500
        names = [f"together-{each}" for each in range(number)]
        await define(
            client, [{"name": name, "topic": "t", "every": EVERY_S, "start": start - EVERY_S} for name in names]
        )
        assert time.time() < start, "the machine was too slow for this benchmark"
        reading = asyncio.create_task(other(waiting, start + (rounds - 1) * EVERY_S + 2))
        made: list[float] = []
        while len(made) < rounds * number:
            jobs = (await client.ask("pop", topic="t", count=500, wait=10))["jobs"]
            made += [(job["created"] - job["due"]) * 1000 for job in jobs]
            await client.batch([{"command": "finish", "id": job["id"], "lease": job["lease"]} for job in jobs])
        late = await reading
        await remove(client, names)
    show(f"{number:,} schedules due at once: until an occurrence is made", made)
    during = [ms for due, ms in late if due >= start - 0.1 and (due - start) % EVERY_S < 1]
    show("a pop of another topic, in the second after it", during)
    show("the same, at other times", [ms for due, ms in late if due >= start - 0.1 and (due - start) % EVERY_S >= 1])


def cpu_s(pid: int) -> float:
    """The CPU time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def cpu_percent(pids: list[int], seconds: float) -> list[float]:
    before = [cpu_s(pid) for pid in pids]
    await asyncio.sleep(seconds)
    return [(cpu_s(pid) - first) / seconds * 100 for pid, first in zip(pids, before, strict=True)]


async def spread(url: str, number: int, pids: list[int], every_s: float) -> None:
    """Schedules that are due at intervals, evenly spread. Nobody pops: their jobs are due, and stay."""
    idle = await cpu_percent(pids, min(_IDLE_S, every_s))
    async with Client(url) as client:
        start = time.time()
        names = [f"spread-{each}" for each in range(number)]
        schedules = [
            {"name": name, "topic": "s", "every": every_s, "start": start + each * every_s / number}
            for each, name in enumerate(names)
        ]
        await define(client, schedules)
        await asyncio.sleep(max(0.0, start + every_s - time.time()))
        busy = await cpu_percent(pids, every_s)
        counts = (await client.ask("stats", topic="s"))["counts"]
    for name, each, rest in zip(("service", "Redis"), busy, idle, strict=True):
        print(
            f"{number:,} schedules every {every_s:g} s: {name} {each:.1f} % of a core, {rest:.1f} % when idle",
            flush=True,
        )
    print(f"made in that time: {counts['ready']:,}")


async def main(at_once: int, in_turn: int, rounds: int = 6, every_s: float = 60) -> None:
    with tempfile.TemporaryDirectory(prefix="jq-") as folder, RedisServer(Path(folder)) as server:
        redis = Redis(server.url)
        lines = (await redis.read("INFO", "server")).decode().splitlines()
        pid = int(next(line for line in lines if line.startswith("process_id:")).partition(":")[2])
        await redis.close()
        print(f"load of the machine: {', '.join(f'{each:.1f}' for each in os.getloadavg())}, {os.cpu_count()} cores")
        async with ServiceProcess("--redis", server.url) as service:
            assert service.process
            await together(service.url, at_once, rounds)
            await spread(service.url, in_turn, [service.process.pid, pid], every_s)


if __name__ == "__main__":
    asyncio.run(main(*[int(each) for each in sys.argv[1:]] or [1000, 10_000]))
