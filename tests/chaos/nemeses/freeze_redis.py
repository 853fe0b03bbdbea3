"""SIGSTOP of the single Redis: it neither answers nor hangs up, as behind a broken network."""

from __future__ import annotations

import asyncio

from tests.chaos.nemeses import Nemesis
from tests.chaos.stage import Stage


class FreezeRedis(Nemesis):
    """`for_s`: how long it is stopped."""

    def __init__(self, every_s: float, for_s: float) -> None:
        super().__init__(every_s)
        self._for_s = for_s

    async def strike(self, stage: Stage) -> None:
        with stage.history.fault("freeze-redis"):
            stage.standalone.server.freeze()
            await asyncio.sleep(self._for_s)
            stage.standalone.server.thaw()

    async def heal(self, stage: Stage) -> None:
        stage.standalone.server.thaw()
