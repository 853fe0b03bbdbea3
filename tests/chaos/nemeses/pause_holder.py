"""SIGSTOP of the instance with the most timers, for longer than its locks last; then it goes on."""

from __future__ import annotations

import asyncio
import signal

from tests.chaos.nemeses import Nemesis
from tests.chaos.stage import Instance, Stage


class PauseHolder(Nemesis):
    """`for_s`: how long it is stopped."""

    def __init__(self, every_s: float, for_s: float) -> None:
        super().__init__(every_s)
        self._for_s = for_s
        self._paused: Instance | None = None

    async def strike(self, stage: Stage) -> None:
        locks = [await instance.locks() for instance in stage.instances]
        self._paused = stage.instances[locks.index(max(locks))]
        with stage.history.fault("pause-holder"):
            self._paused.signal(signal.SIGSTOP)
            await asyncio.sleep(self._for_s)
            await self.heal(stage)

    async def heal(self, stage: Stage) -> None:
        if self._paused:
            self._paused.signal(signal.SIGCONT)
            self._paused = None
