"""Our own service over HTTP."""

from __future__ import annotations

import socket
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import orjson

from tests.bench.compare import (
    BATCHERS,
    CONSUMERS,
    FAR_S,
    PARKING_S,
    Cpu,
    Deadline,
    Late,
    Parked,
    Run,
    WrongError,
    check,
    check_times,
    pages,
)
from tests.bench.compare.load.conversations import Conversation, http
from tests.bench.compare.load.parked_consumers import Lot, park
from tests.bench.compare.load.requests import TOPIC, Take, add, consume, post, serve_one, work_off
from tests.bench.compare.load.sockets import OverSockets
from tests.bench.compare.load.wrk import Result, wrk
from tests.bench.compare.systems.service import Service
from tests.bench.compare.systems.store import Store

_PAGE = 500
_ADDS_A_SECOND = 10_000  # at least


class Ours(OverSockets):
    NAME = "ours"
    DESCRIPTION = (
        "`jobqueue serve` over HTTP. One at a time: wrk with a Lua script; the rest: Python on plain sockets. A pop "
        "and a finish are two requests where nothing else is said; those who wait send both as one. Retention 0"
    )
    PEER = False

    def start(self, folder: Path) -> None:
        self._store = Store(folder)
        self._service = Service(self._store, folder)
        self._next = 0

    def stop(self) -> None:
        if hasattr(self, "_service"):
            self._service.stop()
        if hasattr(self, "_store"):
            self._store.stop()

    def version(self) -> str:
        return version("jobqueue")

    def clear(self) -> None:
        self._service.again()

    def cpu(self) -> Cpu:
        return Cpu(self._store.cpu_us(), self._service.cpu_us())

    def memory(self) -> int:
        return self._store.memory()

    def add_one(self, seconds: float, connections: int) -> Run:
        before = self._totals()["created"]
        run = self._wrk("add", seconds, connections)
        self._next += run.jobs + connections  # the last ones were in flight when wrk ended
        added = self._totals()["created"] - before
        if not run.jobs <= added <= run.jobs + connections:
            raise WrongError(f"{run.jobs} adds were answered, {added} jobs are there")
        return run

    def add_batch(self, seconds: float, size: int) -> Run:
        return self._add_batch(seconds, [f'"delay":{FAR_S}'] * size)

    def add_spread(self, seconds: float, size: int) -> Run:
        return self._add_batch(seconds, [f'"delay":{FAR_S + place * 7.013:.3f}' for place in range(size)])

    def _add_batch(self, seconds: float, delays: list[str]) -> Run:
        first, end = self._next, time.perf_counter() + seconds

        def adding() -> Conversation:
            while time.perf_counter() < end:
                yield from add(self._ids(len(delays)), delays, 0)

        def work() -> int:
            self._talk([adding() for _ in range(BATCHERS)])
            return self._next - first

        return self.timed(work)

    def fill(self, jobs: int) -> None:
        self._put(self._ids(jobs), lambda number: f'"delay":{FAR_S + number / 1000}')

    def pop_finish_one(self, jobs: int, connections: int) -> Run:
        return self._wrk_pops("pop", jobs, connections)

    def finish_and_next(self, jobs: int, connections: int) -> Run:
        return self._wrk_pops("next", jobs, connections)

    def pop_finish_batch(self, jobs: int, size: int) -> Run:
        return self._pop_finish(self._ready(jobs), size)

    def pop_finish_kept(self, jobs: int, size: int) -> Run:
        return self._pop_finish(self._ready(jobs, retention_s=60), size)

    def cycle(self, jobs: int, size: int) -> Run:
        ids, got = self._ids(jobs), list[str]()
        parts = pages(ids, size)

        def adding() -> Conversation:
            for page in parts:
                yield from add(page, ['"delay":0.001'] * len(page), 0)

        def work() -> int:
            conversations = [adding() for _ in range(BATCHERS // 2)]
            conversations += [consume(got.extend, size) for _ in range(BATCHERS // 2)]
            self._talk(conversations, lambda: len(got) == jobs)
            return jobs

        run = self.timed(work)
        check(got, ids)
        return run

    def lateness(self, rate: int, seconds: float) -> Late:
        ids = self._ids(round(rate * seconds))
        deadline = Deadline(len(ids), _ADDS_A_SECOND)
        due_ms = {each: round(deadline.ms + number * 1000 / rate) for number, each in enumerate(ids)}
        got, ms = list[str](), list[float]()

        def take(job: str) -> None:
            ms.append(time.time() * 1000 - due_ms[job])
            got.append(job)

        self._put(ids, lambda number: f'"at":{due_ms[ids[number]] / 1000:.3f}')
        deadline.added()
        self._talk([serve_one(take) for _ in range(CONSUMERS)], lambda: len(got) == len(ids))
        check(got, ids)
        deadline.check()
        return Late(check_times(ms))

    def burst(self, jobs: int) -> Run:
        ids, got = self._ids(jobs), list[str]()
        deadline = Deadline(jobs, _ADDS_A_SECOND)

        def work() -> int:
            self._talk([consume(got.extend, 100) for _ in range(CONSUMERS)], lambda: len(got) == jobs)
            return jobs

        self._put(ids, lambda _: f'"at":{deadline.ms / 1000:.3f}')
        deadline.added()
        time.sleep(max(0.0, deadline.ms / 1000 - time.time() - PARKING_S))
        run = self.timed(work)
        seconds = time.time() - deadline.ms / 1000
        check(got, ids)
        deadline.check()
        return replace(run, seconds=seconds)

    def parked(self, number: int) -> Parked:
        lot = Lot(
            self._service.connect,
            serve_one,
            self._service.parked,
            lambda: (self._service.memory(), self._store.connections()),
            lambda: self._put(self._ids(1), lambda _: '"delay":0'),
        )
        return park(number, lot)

    def _connect(self) -> socket.socket:
        return self._service.connect()

    def _totals(self) -> Counter[str]:
        """How many jobs were created, delivered and finished since the last `clear`."""
        answers: list[Any] = []

        def asking() -> Conversation:
            answers.append(orjson.loads((yield post(b'{"command":"stats","topic":"%b"}' % TOPIC.encode()), http)))

        self._talk([asking()])
        return Counter(answers[0]["totals"])

    def _put(self, ids: list[str], when: Callable[[int], str], retention_s: float = 0) -> None:
        """Add jobs, each with the field that `when` makes from its index in the list."""
        starts = list(range(0, len(ids), _PAGE))
        parts = iter(starts)

        def adding() -> Conversation:
            for start in parts:
                page = ids[start : start + _PAGE]
                yield from add(page, [when(place) for place in range(start, start + len(page))], retention_s)

        self._talk([adding() for _ in range(min(BATCHERS, len(starts)))])

    def _ready(self, jobs: int, retention_s: float = 0) -> list[str]:
        """Add jobs that may be popped at once."""
        ids = self._ids(jobs)
        self._put(ids, lambda _: '"delay":0', retention_s)
        return ids

    def _pop_finish(self, ids: list[str], size: int) -> Run:
        got: list[str] = []
        take: Take = got.extend

        def work() -> int:
            self._talk([work_off(take, size, lambda: len(got) == len(ids)) for _ in range(BATCHERS)])
            return len(got)

        run = self.timed(work)
        check(got, ids)
        return run

    def _wrk(self, work: str, amount: float, connections: int) -> Run:
        results: list[Result] = []

        def load() -> int:
            results.append(wrk(self._service.port, connections, work, amount, self._next, TOPIC))
            return results[0].jobs

        return replace(self.timed(load), seconds=results[0].seconds)

    def _wrk_pops(self, work: str, jobs: int, connections: int) -> Run:
        before = self._totals()
        self._ready(jobs)
        run = self._wrk(work, jobs, connections)
        after = self._totals()
        for each in ("delivered", "finished"):
            if after[each] - before[each] != jobs:
                raise WrongError(f"of {jobs} jobs {after[each] - before[each]} were {each}")
        return run
