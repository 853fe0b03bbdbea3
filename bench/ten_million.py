"""`make bench-ten-million`: the service beside 10,000, 1,000,000 and 10,000,000 pending jobs; takes 4 GB of memory.

The rates beside the most jobs are compared with those beside the fewest; the exit code is 1 below `LEAST`. `python -m
bench.ten_million 10000 100000` sets other numbers of jobs.
"""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bench.compare.load.waiting import TOPIC
from bench.compare.systems.ours import Ours
from bench.compare.systems.service import Client, Service
from bench.figures import percentile
from buckets import Pool, Redis, Slicing
from tests.kit.service import JOBQUEUE

STEPS = (10_000, 1_000_000, 10_000_000)
LEAST = 0.85
ROUNDS = 3
LOOKS = 21
_SMALL = 100_000  # so few jobs are added anew before each work, which would add too many others to them
_MOST_CHECKED = 100_000  # by fsck, which takes minutes for a million
_FIRST_S, _STEP_S = 1.0, 0.02  # the first job of a takeover is due after this time, the others one after the other
_JOBS, _KILLED_AT = 100, 20

Rates = dict[str, Callable[[Ours], float]]


def rates(seconds: float, jobs: int) -> Rates:
    return {
        "adds a second, 64 connections": lambda system: system.add_one(seconds, 64).rate,
        "adds a second, 100 per request": lambda system: system.add_batch(seconds, 100).rate,
        "pops and finishes a second, 64 connections": lambda system: system.pop_finish_one(jobs, 64).rate,
        "pops and finishes a second, 100 per request": lambda system: system.pop_finish_batch(4 * jobs, 100).rate,
    }


ASKED: dict[str, dict[str, Any]] = {
    "topics": {"command": "topics"},
    "100 delayed jobs of the topic": {"command": "peek", "topic": TOPIC, "state": "delayed", "body": False},
    "search by prefix in the topic, a page": {"command": "find", "topic": TOPIC, "prefix": "zz"},
    "forecast of the topic": {"command": "forecast", "topic": TOPIC},
    "figures of the topic": {"command": "stats", "topic": TOPIC},
}


class Growing(Ours):
    """Our service, and what only this benchmark asks of it."""

    NAME = "growing"

    def pending(self, jobs: int) -> None:
        """Begin anew with so many jobs pending, which are in slices, as after some minutes."""
        self.clear()
        self.fill(jobs)
        asyncio.run(self._slice())

    async def _slice(self) -> None:
        redis = Redis(self._store.url)
        await Slicing(await Pool.open(redis), rest=0, least=1).tick(0)
        await redis.close()

    def restart(self) -> float:
        """Seconds from the start of a service until it is ready."""
        self._service.stop()
        begun = time.monotonic()
        self._begin(self.WORKERS)
        return time.monotonic() - begun

    def ask_ms(self, command: dict[str, Any]) -> list[float]:
        client, found = self._service.client(), []
        for _ in range(LOOKS):
            begun = time.perf_counter()
            answer = client.ask(command)
            found.append((time.perf_counter() - begun) * 1000)
            if not answer["success"]:
                raise RuntimeError(answer)
        client.close()
        return found

    def takeover(self) -> float:
        """Seconds by which the latest job is late while the service that has the timers is killed with -9."""
        folder = self._folder / "other"
        folder.mkdir(exist_ok=True)
        other = Service(folder)
        other.start("--redis", self._store.url, "--workers", "1")
        try:
            client = other.client()
            begun = time.time() + _FIRST_S
            dues = [begun + number * _STEP_S for number in range(_JOBS)]
            for due in dues:  # one by one, so that they are in all buckets
                client.ask({"command": "add", "topic": "takeover", "at": due, "body": 1})
            late = [self._late(client, number) for number in range(_JOBS)]
            client.close()
        finally:
            other.stop()
        self._begin(self.WORKERS)
        return max(late)

    def _late(self, client: Client, number: int) -> float:
        if number == _KILLED_AT:
            self._service.kill()
        job = client.ask({"command": "pop", "topic": "takeover", "wait": 30})
        late: float = time.time() - job["due"]
        client.ask({"command": "finish", "id": job["id"], "lease": job["lease"]})
        return late

    def fork_ms(self) -> float:
        """Milliseconds for which a fork stops Redis."""
        self._store.ask(("BGSAVE",))
        return int(self._store.info("stats")["latest_fork_usec"]) / 1000

    def fsck(self) -> float:
        """Seconds that fsck takes, while nothing else is done."""
        begun = time.monotonic()
        subprocess.run([*JOBQUEUE, "fsck", "--redis", self._store.url], check=True, stdout=subprocess.DEVNULL)
        return time.monotonic() - begun


def measured(system: Growing, jobs: int, works: Rates, late_s: float) -> dict[str, tuple[float, ...]]:
    """All figures beside so many pending jobs."""
    found: dict[str, tuple[float, ...]] = {}

    def note(name: str, *figures: float) -> None:
        found[name] = figures
        print(f"{jobs:,} pending: {name}: {', '.join(map(_short, figures))}", file=sys.stderr, flush=True)

    system.clear()
    before = system.memory()
    system.pending(jobs)
    note("bytes a job", (system.memory() - before) / jobs)
    for name, rate in works.items():
        each = []
        for _ in range(ROUNDS):
            if jobs <= _SMALL:
                system.pending(jobs)
            each.append(rate(system))
        note(name, statistics.median(each))
    late = system.lateness(2000, late_s).ms
    note("lateness at 2,000 a second, ms, p50 and p99", percentile(late, 50), percentile(late, 99))
    for name, command in ASKED.items():
        ms = system.ask_ms(command)
        note(f"{name}, ms, p50 and most", statistics.median(ms), max(ms))
    note("a start of the service, s", system.restart())
    note("the latest job when the service with the timers is killed, s", system.takeover())
    note("a fork, ms", system.fork_ms())
    note("fsck, s", *((system.fsck(),) if jobs <= _MOST_CHECKED else ()))
    return found


def main(steps: Sequence[int] = STEPS, seconds: float = 1.5, jobs: int = 20_000, late_s: float = 3.0) -> bool:
    """Print a table. Returns whether the rates beside the most jobs are high enough."""
    works = rates(seconds, jobs)
    with tempfile.TemporaryDirectory(prefix="jq-") as folder:
        system = Growing()
        system.start(Path(folder))
        try:
            by_step = [measured(system, step, works, late_s) for step in steps]
        finally:
            system.stop()
    print("|", " | ".join(["", *(f"{step:,} pending" for step in steps)]), "|")
    print("|" + "---|" * (len(steps) + 1))
    for name in by_step[0]:
        print(f"| {name} |", " | ".join(", ".join(map(_short, each[name])) or "not measured" for each in by_step), "|")
    ratios = {name: by_step[-1][name][0] / by_step[0][name][0] for name in works}
    print("Rates, most to fewest:", ", ".join(f"x{ratio:.2f}" for ratio in ratios.values()), f"(wanted: {LEAST})")
    return all(ratio >= LEAST for ratio in ratios.values())


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


if __name__ == "__main__":
    sys.exit(not main([int(each) for each in sys.argv[1:]] or STEPS))
