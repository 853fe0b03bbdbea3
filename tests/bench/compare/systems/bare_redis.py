"""Bare Redis: the fewest commands that could do the work of a delay queue, as the physical limit.

Not usable in practice: a producer or consumer that dies between two commands loses the job.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from tests.bench.compare import (
    BATCHERS,
    BODY,
    CONSUMERS,
    FAR_S,
    PARKING_S,
    Cpu,
    Deadline,
    Late,
    Parked,
    Run,
    check,
    check_times,
    in_ms,
    pages,
)
from tests.bench.compare.load.conversations import Conversation, length, pack, replies
from tests.bench.compare.load.parked_consumers import Lot, park
from tests.bench.compare.load.sockets import OverSockets
from tests.bench.compare.processes import cpu_us
from tests.bench.compare.systems.store import Store, redis_version

_BODY = f'"{BODY}"'
_ADDED = len(b"+OK\r\n:1\r\n")  # replies of a SET and a ZADD
_TTR_MS = 60_000
_PAGE = 500
_ADDS_A_SECOND = 20_000  # at least
_TIMER = [sys.executable, str(Path(__file__).parents[1] / "programs" / "bare_timer.py")]


class Bare(OverSockets):
    NAME = "redis"
    DESCRIPTION = (
        "Bare Redis, the physical limit and no queue: add = SET + ZADD in one write; due = ZRANGEBYSCORE, then ZREM + "
        "RPUSH, by a program that sleeps until the next one; pop = LPOP, then GET + ZADD; finish = ZREM + DEL. "
        "The client is Python with ready-made bytes; one at a time that client is the limit, not Redis"
    )
    PEER = False

    def start(self, folder: Path) -> None:
        self._store = Store(folder)
        self._timer: subprocess.Popen[bytes] | None = None
        self._next = 0

    def stop(self) -> None:
        if hasattr(self, "_store"):
            self._store.stop()

    def version(self) -> str:
        return redis_version()

    def clear(self) -> None:
        self._store.clear()

    def cpu(self) -> Cpu:
        return Cpu(self._store.cpu_us(), cpu_us(self._timer.pid) if self._timer else 0.0)

    def memory(self) -> int:
        return self._store.memory()

    def add_one(self, seconds: float, connections: int) -> Run:
        return self._add_for(seconds, connections, 1)

    def add_batch(self, seconds: float, size: int) -> Run:
        return self._add_for(seconds, BATCHERS, size)

    def fill(self, jobs: int) -> None:
        self._put(self._ids(jobs), in_ms(FAR_S), 1)

    def pop_finish_one(self, jobs: int, connections: int) -> Run:
        return self._pop_finish(jobs, connections, 1)

    def pop_finish_batch(self, jobs: int, size: int) -> Run:
        return self._pop_finish(jobs, BATCHERS, size)

    def cycle(self, jobs: int, size: int) -> Run:
        ids, got = self._ids(jobs), list[str]()
        parts = pages(ids, size)

        def adding() -> Conversation:
            for page in parts:
                yield _adds(page, in_ms(0.001)), length(len(page) * _ADDED)

        def work() -> int:
            conversations = [adding() for _ in range(BATCHERS // 2)]
            conversations += [_consuming(got.extend, size) for _ in range(BATCHERS // 2)]
            self._talk(conversations, lambda: len(got) == jobs)
            return jobs

        with self._timing():
            run = self.timed(work)
        check(got, ids)
        return run

    def lateness(self, rate: int, seconds: float) -> Late:
        ids, step_ms = self._ids(round(rate * seconds)), 1000 / rate
        deadline = Deadline(len(ids), _ADDS_A_SECOND)
        due_ms = {each: round(deadline.ms + number * step_ms) for number, each in enumerate(ids)}
        got, ms = list[str](), list[float]()

        def take(page: list[str]) -> None:
            now_ms = time.time() * 1000
            ms.extend(now_ms - due_ms[each] for each in page)
            got.extend(page)

        with self._timing():
            self._put(ids, deadline.ms, step_ms)
            deadline.added()
            self._talk([_consuming(take, 1) for _ in range(CONSUMERS)], lambda: len(got) == len(ids))
        check(got, ids)
        deadline.check()
        return Late(check_times(ms))

    def burst(self, jobs: int) -> Run:
        ids, got = self._ids(jobs), list[str]()
        deadline = Deadline(jobs, _ADDS_A_SECOND)

        def work() -> int:
            self._talk([_consuming(got.extend, 100) for _ in range(CONSUMERS)], lambda: len(got) == jobs)
            return jobs

        with self._timing():
            self._put(ids, deadline.ms)
            deadline.added()
            time.sleep(max(0.0, deadline.ms / 1000 - time.time() - PARKING_S))
            run = self.timed(work)
            seconds = time.time() - deadline.ms / 1000
        check(got, ids)
        deadline.check()
        return replace(run, seconds=seconds)

    def parked(self, number: int) -> Parked:
        def add() -> None:
            (job,) = self._ids(1)
            self._store.ask(("SET", "j:" + job, _BODY), ("RPUSH", "r", job))

        lot = Lot(
            self._store.connect,
            lambda take: _consuming(take, 1),
            self._store.blocked,
            lambda: (self.memory(), self._store.connections()),
            add,
        )
        return park(number, lot)

    def _connect(self) -> socket.socket:
        return self._store.connect()

    @contextmanager
    def _timing(self) -> Iterator[None]:
        """Runs the program that moves due jobs meanwhile."""
        with subprocess.Popen([*_TIMER, str(self._store.socket)], stdout=subprocess.PIPE) as self._timer:
            assert self._timer.stdout is not None
            try:
                self._timer.stdout.readline()  # it reports when it is ready
                yield
            finally:
                self._timer.kill()
        self._timer = None

    def _add_for(self, seconds: float, connections: int, size: int) -> Run:
        first, end, due_ms = self._next, time.perf_counter() + seconds, in_ms(FAR_S)

        def adding() -> Conversation:
            while time.perf_counter() < end:
                yield _adds(self._ids(size), due_ms), length(size * _ADDED)

        def work() -> int:
            self._talk([adding() for _ in range(connections)])
            return self._next - first

        return self.timed(work)

    def _put(self, ids: list[str], due_ms: int, step_ms: float = 0) -> None:
        """Add jobs, each due one step after the last."""

        def adding() -> Conversation:
            for start in range(0, len(ids), _PAGE):
                page = ids[start : start + _PAGE]
                data = [_add(each, round(due_ms + number * step_ms)) for number, each in enumerate(page, start)]
                yield b"".join(data), length(len(data) * _ADDED)

        self._talk([adding()])

    def _pop_finish(self, jobs: int, connections: int, size: int) -> Run:
        ids, got = self._ids(jobs), list[str]()
        for page in pages(ids, _PAGE):
            self._store.ask(*(("SET", "j:" + each, _BODY) for each in page), ("RPUSH", "r", *page))

        def working() -> Conversation:
            while len(got) < jobs:
                (page,) = yield pack("LPOP", "r", size), replies(1)
                if not page:
                    return
                yield from _reserve_and_finish(page, got.extend)

        def work() -> int:
            self._talk([working() for _ in range(connections)])
            return len(got)

        run = self.timed(work)
        check(got, ids)
        return run


def _add(job: str, due_ms: int) -> bytes:
    return pack("SET", "j:" + job, _BODY) + pack("ZADD", "b", due_ms, job)


def _adds(ids: list[str], due_ms: int) -> bytes:
    return b"".join(_add(each, due_ms) for each in ids)


def _consuming(take: Callable[[list[str]], None], size: int) -> Conversation:
    """Wait for ready jobs. Never ends."""
    while True:
        (popped,) = yield pack("BLMPOP", 30, 1, "r", "LEFT", "COUNT", size), replies(1)
        if popped:
            yield from _reserve_and_finish(popped[1], take)


def _reserve_and_finish(page: list[bytes], take: Callable[[list[str]], None]) -> Conversation:
    keys, until_ms = [b"j:" + each for each in page], in_ms(_TTR_MS / 1000)
    leases: list[int | bytes] = [part for each in page for part in (until_ms, each)]
    bodies, _ = yield pack("MGET", *keys) + pack("ZADD", "b", *leases), replies(2)
    assert None not in bodies
    take([each.decode() for each in page])
    yield pack("ZREM", "b", *page) + pack("DEL", *keys), replies(2)
