"""Celery over Redis: apply_async with an eta, and `celery worker`."""

from __future__ import annotations

import os
import select
import struct
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from bench.compare import CannotError, Run
from bench.compare.install import PIP, python
from bench.compare.systems.library import Handled, Library, Worker
from bench.compare.systems.program import Program
from bench.compare.systems.store import Store

_PROGRAMS = Path(__file__).parents[1] / "programs"
_RECORD = struct.Struct("<qd")  # as programs/celery_app.py writes it
_QUEUE, _HELD = "celery", "held"
_STARTING_S, _WORKING_S, _STOPPING_S = 60, 300, 30
_LOOK_S = 0.01


class CeleryWorkers:
    """The worker processes of one work: two with the solo pool for ready tasks, one with threads for delayed ones."""

    def __init__(self, store: Store, folder: Path) -> None:
        self._store, self._folder = store, folder
        self._out = folder / "out"
        self._processes: list[subprocess.Popen[bytes]] = []

    def prepare(self, jobs: int, concurrency: int, delayed: bool, kept_s: int) -> None:
        """Ready jobs are set aside until `run`. Delayed jobs are fetched ahead, as Celery does."""
        self._jobs, self._delayed = jobs, delayed
        self._out.write_bytes(b"")
        if not delayed:
            self._store.ask(("RENAME", _QUEUE, _HELD))
        pools = [["--pool=threads", f"--concurrency={concurrency}"]] if delayed else [["--pool=solo"]] * 2
        self._processes = [self._start(f"w{number}", pool) for number, pool in enumerate(pools)]
        for process in self._processes:
            assert process.stdout is not None
            heard, _, _ = select.select([process.stdout], [], [], _STARTING_S)
            if not heard or process.stdout.readline() != b"ready\n":
                raise RuntimeError(f"the worker did not start: {(self._folder / 'worker.log').read_text()[-500:]}")
        self._until(lambda: not self._store.ask(("LLEN", _QUEUE))[0])

    def _start(self, name: str, pool: list[str]) -> subprocess.Popen[bytes]:
        quiet = ["--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel=ERROR"]
        command = [str(python("celery")), "-m", "celery", "--quiet", "--app=celery_app", "worker"]
        with (self._folder / "worker.log").open("ab") as log:
            return subprocess.Popen(
                [*command, *pool, *quiet, f"--hostname={name}@bench"],
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=self._folder,
                env={**os.environ, **variables(self._store, self._folder)},
            )

    def run(self) -> None:
        if not self._delayed:
            self._store.ask(("RENAME", _HELD, _QUEUE))

    def result(self) -> Handled:
        self._until(lambda: self._out.stat().st_size >= self._jobs * _RECORD.size)
        records = list(_RECORD.iter_unpack(self._out.read_bytes()))
        numbers, at = [number for number, _ in records], [ms for _, ms in records]
        return Handled(max(at), numbers, at)

    def close(self) -> None:
        """Stop them properly, so that they put back what they hold."""
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            try:
                process.wait(_STOPPING_S)
            except subprocess.TimeoutExpired:
                process.kill()
            process.communicate()
        self._processes = []

    def pids(self) -> list[int]:
        return [process.pid for process in self._processes]

    def _until(self, true: Callable[[], bool]) -> None:
        end = time.monotonic() + _WORKING_S
        while not true():
            if time.monotonic() > end or any(process.poll() is not None for process in self._processes):
                raise RuntimeError("the workers ended or are silent")
            time.sleep(_LOOK_S)


def variables(store: Store, folder: Path) -> dict[str, str]:
    """Environment variables for producers and workers."""
    return {"BENCH_SOCKET": str(store.socket), "BENCH_OUT": str(folder / "out"), "PYTHONPATH": str(_PROGRAMS)}


class Celery(Library):
    NAME = "celery"
    DESCRIPTION = (
        "Celery over Redis, no result backend, prefetch multiplier 128, no gossip, mingle, heartbeat or remote "
        "control, tasks acknowledged when they begin (its default: one that dies with its worker is lost). Two "
        "processes add (apply_async with an eta, a thread for each connection; batches by Producer.batch of Kombu). "
        "Ready tasks: two workers of the pool solo, whatever the connections. Delayed ones: a worker with threads, "
        "the most punctual pool of those tried; it fetches all at once and keeps them in memory until they are due, "
        "and is given time for it; bytes are those of the list in Redis, before a worker fetched them"
    )
    SCALE = 0.1
    MOST_PENDING = 1_000
    CONCURRENCY = 16
    PRODUCERS = 2
    ADDS_A_SECOND = 400

    def version(self) -> str:
        return PIP["celery"]["celery[redis]"]

    def stop(self) -> None:
        if hasattr(self, "_worker"):
            self._worker.close()
        super().stop()

    def program(self, folder: Path) -> Program:
        command = [str(python("celery")), str(_PROGRAMS / "celery_jobs.py")]
        return self.launch(command, folder, **variables(self._store, folder))

    def pop_finish_kept(self, jobs: int, size: int) -> Run:
        raise CannotError("without a result backend nothing is kept of a finished task, and ids are not compared")

    def worker(self, folder: Path) -> Worker:
        return CeleryWorkers(self._store, folder)
