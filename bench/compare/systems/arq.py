"""arq: enqueue_job and a Worker, on uvloop."""

from __future__ import annotations

from pathlib import Path

from bench.compare import CannotError, Run
from bench.compare.install import PIP, python
from bench.compare.systems.library import Library
from bench.compare.systems.program import Program

_PROGRAM = Path(__file__).parents[1] / "programs" / "arq_jobs.py"


class Arq(Library):
    NAME = "arq"
    DESCRIPTION = (
        "arq on uvloop: two processes add (enqueue_job, _defer_until), one is the Worker, with the connections as "
        "max_jobs and queue_read_limit; poll_delay 1 ms instead of 0.5 s (a command a millisecond while idle); no "
        "results kept (or, for tombstones, an hour). Its clock is rounded to the nearest ms, so it may be early "
        "by up to 0.5 ms. An add watches its key, so it cannot be pipelined: no batches. Workers take jobs one by "
        "one: for batches it is max_jobs 200. One worker process: two handled fewer jobs a second when tried"
    )
    SCALE = 0.1
    MOST_PENDING = 100_000
    CONCURRENCY = 200
    PRODUCERS = 2
    ADDS_A_SECOND = 1_000
    EARLIEST_MS = -0.501  # the fraction is the precision of a float at this distance from the epoch

    def version(self) -> str:
        return PIP["arq"]["arq"]

    def program(self, folder: Path) -> Program:
        return self.launch([str(python("arq")), str(_PROGRAM), str(self._store.socket)], folder)

    def add_batch(self, seconds: float, size: int) -> Run:
        raise CannotError("adds one job a call; its WATCH forbids a pipeline")
