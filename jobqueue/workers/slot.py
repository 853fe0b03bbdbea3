"""The slot of a worker under its supervisor: its process is started, replaced when it dies, and stopped.

A worker is a fresh Python process, not a fork: prometheus_client decides at its import where it counts, nothing of the
supervisor's loop, threads and connections exists twice, and the tenth start of a worker is the same as its first.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections import deque
from pathlib import Path

import structlog

from buckets.errors import Unfit
from jobqueue.metrics.shared import forget, worker_name
from jobqueue.settings import SHARED_METRICS, Loaded
from jobqueue.workers.messages import QUESTION, REFUSE_JOBS, encode

log = structlog.get_logger()

_PAUSE_S = 0.1  # after a worker died; doubled while its successors die soon
_LONGEST_PAUSE_S = 10.0
_PROVEN_S = 10.0  # a worker that lived this long did not die of its start
_MARGIN_S = 2.0  # for what a worker still does after its grace time


WORKER = "jobqueue.workers.worker"
"""The module of a worker's process."""


class Slot:
    """One worker, whichever process it is at the moment. `folder`: where workers share their metrics; `unix`: the Unix
    socket that they share; `program`: the module that its process runs, with the argument `number`, which may also be a
    name."""

    def __init__(
        self,
        number: int | str,
        folder: Path,
        loaded: Loaded,
        unix: socket.socket | None = None,
        program: str = WORKER,
    ) -> None:
        self._number = number
        self._program = program
        self._folder = folder
        self._loaded = loaded
        self._unix = unix
        self._refuses_jobs = False
        self._process: Process | None = None
        self._owed: deque[asyncio.Future[bool]] = deque()  # the answers to messages, in their order
        self._listens: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._keeping = asyncio.create_task(self._keep(), name=f"worker {number}")

    async def listens(self) -> None:
        """Wait until the worker listens. Raises Unfit, with the worker's reason, if it cannot."""
        await self._listens

    def reload(self, loaded: Loaded) -> None:
        """Apply the policies of these settings, also in later processes of this slot."""
        self._loaded = loaded
        if self._running:
            self._tell(self._running, encode(loaded))

    def refuse_jobs(self) -> None:
        """Have the worker refuse jobs, also in later processes of this slot."""
        self._refuses_jobs = True
        if self._running:
            self._tell(self._running, REFUSE_JOBS)

    async def answers(self) -> bool:
        """Wait until the worker has handled all its messages. Returns False if it ended instead, or if no process is
        running."""
        if self._running is None:
            return False
        if not self._owed:  # otherwise, the answer that is still owed is enough
            self._tell(self._running, QUESTION)
        return await asyncio.shield(self._owed[-1])

    def kill(self) -> None:
        """Kill the process with SIGKILL, if there is one."""
        if self._running:
            self._running.kill()

    async def stop(self) -> None:
        """Stop the worker gracefully, or kill it if that takes too long."""
        self._keeping.cancel()
        await asyncio.gather(self._keeping, return_exceptions=True)
        if self._process is None or self._process.returncode is not None:
            return
        self._process.terminate()
        try:
            async with asyncio.timeout(self._loaded.settings.grace_s + _MARGIN_S):
                await self._process.wait()
        except TimeoutError:
            log.error("worker.killed", worker=self._number, pid=self._process.pid)
            self.kill()
            await self._process.wait()
            forget(self._folder, self._name)

    async def _keep(self) -> None:
        """Run one process after the other for ever, or until the first cannot start."""
        pause = _PAUSE_S
        while True:
            began = time.monotonic()
            try:
                reason = await self._run_process()
            except Unfit as error:
                if not self._listens.done():
                    self._listens.set_exception(error)
                    return
                reason = error.message
            except OSError as error:
                reason = f"no process could be started: {error}"
            if time.monotonic() - began > _PROVEN_S:
                pause = _PAUSE_S
            log.error("worker.ended", worker=self._number, reason=reason, again_in_s=pause)
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    async def _run_process(self) -> str:
        """Run one process to its end, and return how it ended. Raises Unfit if it cannot start."""
        process = self._process = await self._spawn()
        assert process.stdout
        line = await process.stdout.readline()
        if line and not (refusal := json.loads(line)):
            log.info("worker.started", worker=self._number, pid=process.pid)
            if not self._listens.done():
                self._listens.set_result(None)
            await self._hear(process.stdout)
        code = await process.wait()
        self._owe_nothing()
        forget(self._folder, self._name)
        if line and refusal:
            raise Unfit(refusal)
        reason = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        if not line and code > 0:
            raise Unfit(f"worker {self._number} ended while it started: {reason}")
        return reason

    def _tell(self, process: Process, message: bytes) -> None:
        assert process.stdin
        if not process.stdin.is_closing():  # otherwise it has ended, though its exit code is still unknown
            process.stdin.write(message)
        self._owed.append(asyncio.get_running_loop().create_future())

    async def _hear(self, answers: asyncio.StreamReader) -> None:
        """Read the worker's answers until it ends; its first line, already read, was the first answer."""
        while True:
            if self._owed:
                self._owed.popleft().set_result(True)
            if not await answers.readline():
                return

    def _owe_nothing(self) -> None:
        """Resolve the answers that are still owed with False: the process has ended."""
        while self._owed:
            self._owed.popleft().set_result(False)

    async def _spawn(self) -> Process:
        """Start a process. The main thread has to do this: the worker dies with the thread that started it."""
        shared = [self._unix.fileno()] if self._unix else []
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", self._program, str(self._number), str(os.getpid())),
            *map(str, shared),
            pass_fds=shared,
            stdin=PIPE,
            stdout=PIPE,
            start_new_session=True,  # Ctrl-C on the terminal is for the supervisor, which then stops the workers
            env=os.environ | {SHARED_METRICS: str(self._folder), "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        self._tell(process, encode(self._loaded))
        if self._refuses_jobs:
            self._tell(process, REFUSE_JOBS)
        return process

    @property
    def _running(self) -> Process | None:
        """The process, if there is one at the moment."""
        return self._process if self._process and self._process.returncode is None else None

    @property
    def _name(self) -> str:
        return worker_name(os.getpid(), self._number)
