"""`make demo`: order time-outs from real orders.

Each order becomes a job that closes it, with a delay scaled from its date (18 months in 8 s). Some orders are paid in
time, and their jobs are deleted. Three worker processes pop and close the rest over HTTP; one of them is killed with
SIGKILL while it holds jobs. The demo ends with a table, and fails if a job was lost, early, or closed twice without a
redelivery to explain it. Meanwhile a console shows the orders.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import tempfile
import time
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

from tests.kit.ports import free_port
from tests.kit.service import ROOT, Client, ServiceProcess

TOPIC = "order-close"
SPREAD_S = 8.0
FIRST_S = 2.0
TTR_S = 1.5
WORKERS = 3
IN_HAND = 10


@dataclass
class Outcome:
    """What happened to the orders."""

    added: set[str] = field(default_factory=set)
    paid: set[str] = field(default_factory=set)
    closed: list[dict[str, Any]] = field(default_factory=list)

    def of(self, attempts: int) -> list[dict[str, Any]]:
        return [close for close in self.closed if close["attempt"] >= attempts]


def orders() -> list[tuple[str, float]]:
    """Order ids with their delays (s)."""
    lines = (ROOT / "tests/data/orders.txt").read_text().splitlines()
    rows = [line.split() for line in lines if not line.startswith("#")]
    days = [date(int(day[:4]), int(day[4:6]), int(day[6:])).toordinal() for _, _, day, _, _ in rows]
    first, span = min(days), max(days) - min(days)
    return [
        (f"{TOPIC}:{row[0]}", round(FIRST_S + SPREAD_S * (day - first) / span, 3))
        for row, day in zip(rows, days, strict=True)
    ]


async def add_all(client: Client, outcome: Outcome) -> None:
    todo = orders()
    for start in range(0, len(todo), 50):
        answers = await client.batch(
            [
                {"command": "add", "topic": TOPIC, "id": job, "delay": delay, "TTR": TTR_S, "body": {"order": job}}
                for job, delay in todo[start : start + 50]
            ]
        )
        outcome.added |= {answer["id"] for answer in answers if answer["success"]}


async def pay_some(client: Client, outcome: Outcome) -> None:
    """Pay every third order, some a moment before it would be closed."""
    begun = time.monotonic()
    for job, delay in sorted(orders()[::3], key=lambda order: order[1]):
        await asyncio.sleep(max(0.0, delay - 1.0 - (time.monotonic() - begun)))
        answer = await client.ask("delete", id=job)
        if answer["success"]:
            outcome.paid.add(job)


async def sit_on_jobs(url: str) -> None:
    """A worker that takes jobs, finishes none, prints how many it holds, and hangs."""
    async with Client(url) as client:
        taken = 0
        while taken < IN_HAND:
            taken += len((await client.ask("pop", topic=TOPIC, count=20, wait=5))["jobs"])
        print(taken, flush=True)
        await asyncio.sleep(3600)


async def work(url: str) -> None:
    """Close orders forever; print one line for each."""
    async with Client(url) as client:
        while True:
            answer = await client.ask("pop", topic=TOPIC, count=1, wait=5)
            got = time.time()
            for job in answer["jobs"]:
                early = job["lease"] / 1e6 < job["due"]  # a lease is the time of its delivery, in Redis's clock
                late_ms = (got - job["due"]) * 1000
                ended = await client.ask("finish", id=job["id"], lease=job["lease"])
                told = {"id": job["id"], "attempt": job["attempt"], "early": early, "late_ms": late_ms}
                print(json.dumps(told | {"ok": ended["success"]}), flush=True)


async def start_worker(kind: str, url: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.acceptance.demo", kind, url, stdout=asyncio.subprocess.PIPE, cwd=ROOT
    )


async def collect(process: asyncio.subprocess.Process, outcome: Outcome) -> None:
    assert process.stdout
    async for line in process.stdout:
        told = json.loads(line)
        if told["ok"]:
            outcome.closed.append(told)


async def kill_with_jobs_in_hand(process: asyncio.subprocess.Process) -> int:
    """Wait until the worker holds jobs, then SIGKILL it; returns how many it held."""
    assert process.stdout
    in_hand = int(await process.stdout.readline())
    process.send_signal(signal.SIGKILL)
    await process.wait()
    return in_hand


async def drained(client: Client) -> None:
    """Wait until no live job is left."""
    while any((await client.ask("stats", topic=TOPIC))["counts"].values()):  # noqa: ASYNC110 - another process does it
        await asyncio.sleep(0.1)


async def run(url: str) -> tuple[Outcome, int]:
    outcome = Outcome()
    workers = [await start_worker("work" if number else "sit", url) for number in range(WORKERS)]
    try:
        async with Client(url) as client, asyncio.TaskGroup() as group:
            killing = group.create_task(kill_with_jobs_in_hand(workers[0]))
            for process in workers[1:]:
                group.create_task(collect(process, outcome))
            await add_all(client, outcome)
            await pay_some(client, outcome)
            await drained(client)
            for process in workers[1:]:
                process.terminate()
        return outcome, killing.result()
    finally:
        for process in workers:
            if process.returncode is None:
                process.kill()
            await process.wait()


def report(outcome: Outcome, in_hand: int) -> int:
    """Print the table; returns the number of broken promises."""
    closed = {close["id"] for close in outcome.closed}
    lost = len(outcome.added - outcome.paid - closed)
    early = sum(close["early"] for close in outcome.closed)
    redelivered = len(outcome.of(2))
    doubled = len(outcome.closed) - len(closed)
    unexplained = doubled - min(doubled, redelivered)
    late = sorted(close["late_ms"] for close in outcome.closed if close["attempt"] == 1)
    rows = [
        ("added", len(outcome.added)),
        ("paid in time", len(outcome.paid)),
        ("closed", len(closed)),
        ("in the killed worker's hands", in_hand),
        ("redelivered", redelivered),
        ("lost", lost),
        ("early", early),
        ("closed twice", unexplained),
        ("lateness p50, ms", round(late[len(late) // 2], 1)),
        ("lateness p99, ms", round(late[len(late) * 99 // 100], 1)),
        ("lateness max, ms", round(late[-1], 1)),
    ]
    for name, value in rows:
        print(f"{name:32}{value:>10}")
    return int(lost + early + unexplained)


async def main() -> int:
    with tempfile.TemporaryDirectory(prefix="jobqueue-demo-") as folder:
        log, config, port = Path(folder) / "service.log", Path(folder) / "settings.toml", free_port()
        config.write_text(f"console_port = {port}\n")
        flags = ("--data", folder + "/data", "--config", str(config))
        async with ServiceProcess(*flags, log=log, workers=0) as service:
            print(f"{len(orders())} orders, time-outs over {SPREAD_S:g} s, {WORKERS} workers, on {service.url}")
            print(f"see them at http://127.0.0.1:{port}/topic?name={TOPIC}", flush=True)
            outcome, in_hand = await run(service.url)
    return report(outcome, in_hand)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["work", url]:
            asyncio.run(work(url))
        case ["sit", url]:
            asyncio.run(sit_on_jobs(url))
        case _:
            sys.exit(1 if asyncio.run(main()) else 0)
