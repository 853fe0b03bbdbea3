"""Reaches maxmemory for a while: adds are refused, and everything else must go on."""

from __future__ import annotations

import asyncio

from tests.chaos.nemeses import Nemesis
from tests.chaos.stage import Stage


class FillMemory(Nemesis):
    """`for_s`: how long memory is full."""

    def __init__(self, every_s: float, for_s: float) -> None:
        super().__init__(every_s)
        self._for_s = for_s

    async def strike(self, stage: Stage) -> None:
        with stage.history.fault("fill-memory"):
            await stage.standalone.read("CONFIG", "SET", "maxmemory", "1mb")
            await asyncio.sleep(self._for_s)
            await self.heal(stage)

    async def heal(self, stage: Stage) -> None:
        await stage.standalone.read("CONFIG", "SET", "maxmemory", "0")
