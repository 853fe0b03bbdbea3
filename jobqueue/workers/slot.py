"""The workers of a supervisor: each is started, started again when it died, and stopped.

A worker is a fresh Python, not a fork: prometheus_client chooses when it is imported where it counts, nothing of the
supervisor's loop, threads and connections is there twice, and the tenth start of a worker is the same as its first.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from asyncio.subprocess import PIPE, Process
from pathlib import Path

import structlog

from buckets.errors import Unfit
from jobqueue.metrics.shared import forget, worker_name
from jobqueue.settings import SHARED_METRICS, Settings
from jobqueue.workers.messages import Beginning, order

log = structlog.get_logger()

_PAUSE_S = 0.1  # after a worker died, doubled while the next dies soon
_LONGEST_PAUSE_S = 10.0
_PROVEN_S = 10.0  # who lived for so long did not die of its start
_MARGIN_S = 2.0  # for what a worker still does when its grace time is over


class Place:
    """One worker, whichever process it is now."""

    def __init__(self, number: int, folder: Path, beginning: Beginning) -> None:
        self._number = number
        self._folder = folder
        self._beginning = beginning
        self._process: Process | None = None
        self._listens: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._keeping = asyncio.create_task(self._keep(), name=f"worker {number}")

    async def listens(self) -> None:
        """Wait until it does. Raises Unfit with the sentence of a worker that cannot."""
        await self._listens

    def reload(self, settings: Settings) -> None:
        """Let the policies of these settings hold, in the processes to come too."""
        self._beginning = Beginning(settings, self._beginning.scratch)
        if self._process and self._process.stdin:
            self._process.stdin.write(order(settings))

    def kill(self) -> None:
        """kill -9, where there is a process."""
        if self._process and self._process.returncode is None:
            self._process.kill()

    async def stop(self) -> None:
        """Stop it in order, or by force when that takes too long."""
        self._keeping.cancel()
        await asyncio.gather(self._keeping, return_exceptions=True)
        if self._process is None or self._process.returncode is not None:
            return
        self._process.terminate()
        try:
            async with asyncio.timeout(self._beginning.settings.grace_s + _MARGIN_S):
                await self._process.wait()
        except TimeoutError:
            log.error("worker.killed", worker=self._number, pid=self._process.pid)
            self.kill()
            await self._process.wait()
            forget(self._folder, self._name)

    async def _keep(self) -> None:
        """Run one process after the other, for ever; or only until the first cannot begin."""
        pause = _PAUSE_S
        while True:
            begun = time.monotonic()
            try:
                reason = await self._live()
            except Unfit as error:
                if not self._listens.done():
                    self._listens.set_exception(error)
                    return
                reason = error.message
            except OSError as error:
                reason = f"no process could be started: {error}"
            if time.monotonic() - begun > _PROVEN_S:
                pause = _PAUSE_S
            log.error("worker.ended", worker=self._number, reason=reason, again_in_s=pause)
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    async def _live(self) -> str:
        """Run one process to its end; what that was. Raises Unfit when it cannot begin."""
        process = self._process = await self._spawned()
        assert process.stdout
        line = await process.stdout.readline()
        if line and not (refusal := json.loads(line)):
            log.info("worker.started", worker=self._number, pid=process.pid)
            if not self._listens.done():
                self._listens.set_result(None)
        code = await process.wait()
        forget(self._folder, self._name)
        if line and refusal:
            raise Unfit(refusal)
        reason = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        if not line and code > 0:
            raise Unfit(f"worker {self._number} ended at its start: {reason}")
        return reason

    async def _spawned(self) -> Process:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "jobqueue.workers.worker", str(self._number)),
            stdin=PIPE,
            stdout=PIPE,
            start_new_session=True,  # Ctrl-C on the terminal is for the supervisor, which then stops the workers
            env=os.environ | {SHARED_METRICS: str(self._folder), "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        assert process.stdin
        process.stdin.write(order(self._beginning))
        return process

    @property
    def _name(self) -> str:
        return worker_name(os.getpid(), self._number)
