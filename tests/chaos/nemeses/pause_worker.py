"""SIGSTOP of a worker process for longer than its jobs' TTR; then it tries to finish what it had."""

from __future__ import annotations

import asyncio
import signal

from tests.chaos.load.load import TTR_S
from tests.chaos.nemeses import Nemesis
from tests.chaos.stage import Stage, WorkerProcess


class PauseWorker(Nemesis):
    def __init__(self, every_s: float) -> None:
        super().__init__(every_s)
        self._paused: WorkerProcess | None = None

    async def strike(self, stage: Stage) -> None:
        self._paused = stage.chance.choice(stage.workers)
        with stage.history.fault("pause-worker"):
            self._paused.signal(signal.SIGSTOP)
            await asyncio.sleep(TTR_S + 1)
            await self.heal(stage)

    async def heal(self, stage: Stage) -> None:
        if self._paused:
            self._paused.signal(signal.SIGCONT)
            self._paused = None
