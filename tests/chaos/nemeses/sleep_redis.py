"""DEBUG SLEEP: the single Redis is busy for a long time, and then does everything it was asked meanwhile."""

from __future__ import annotations

from tests.chaos.nemeses import Nemesis
from tests.chaos.stage import Stage


class SleepRedis(Nemesis):
    """`for_s`: how long it sleeps."""

    def __init__(self, every_s: float, for_s: float) -> None:
        super().__init__(every_s)
        self._for_s = for_s

    async def strike(self, stage: Stage) -> None:
        with stage.history.fault("sleep-redis"):
            await stage.standalone.read("DEBUG", "SLEEP", str(self._for_s))
