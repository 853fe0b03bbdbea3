"""Bare Redis: the fewest commands that could do the work of a delay queue, as the physical limit.

Not usable in practice: a producer or consumer that dies between two commands loses the job.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.compare import BODY, Cpu, job_id
from bench.compare.load.driven import Driven
from bench.compare.processes import cpu_us
from bench.compare.systems.store import Store, redis_version

_BODY = f'"{BODY}"'
_PAGE = 500
_TIMER = [sys.executable, str(Path(__file__).parents[1] / "programs" / "bare_timer.py")]


class Bare(Driven):
    NAME = "redis"
    DESCRIPTION = (
        "Bare Redis, the physical limit and no queue: add = SET + ZADD in one write; due = ZRANGEBYSCORE, then ZREM + "
        "RPUSH, by a program that sleeps until the next one; pop = LPOP, then GET + ZADD; finish = ZREM + DEL"
    )
    PEER = False
    DIALECT = "resp"
    ADDS_A_SECOND = 25_000

    def start(self, folder: Path) -> None:
        self._store = Store(folder)
        self._timer: subprocess.Popen[bytes] | None = None

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

    def _make_ready(self, jobs: int, retention_s: int) -> int:
        first = self._reserve_ids(jobs)
        for start in range(first, first + jobs, _PAGE):
            page = [job_id(each) for each in range(start, min(start + _PAGE, first + jobs))]
            self._store.ask(*(("SET", "j:" + each, _BODY) for each in page), ("RPUSH", "r", *page))
        return first

    def _address(self) -> str:
        return str(self._store.socket)

    def _costs(self) -> tuple[int, int]:
        return self.memory(), self._store.connections()

    def _waiting(self) -> int:
        return self._store.blocked()

    @contextmanager
    def _due_jobs_move(self) -> Iterator[None]:
        """Runs the program that moves due jobs meanwhile."""
        with subprocess.Popen([*_TIMER, str(self._store.socket)], stdout=subprocess.PIPE) as self._timer:
            assert self._timer.stdout is not None
            try:
                self._timer.stdout.readline()  # it reports when it is ready
                yield
            finally:
                self._timer.kill()
        self._timer = None
