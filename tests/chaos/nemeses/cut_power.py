"""A power cut, as far as one process can play it: kill -9 of the one Redis, whose file then lacks what came last.

After a kill -9 alone nothing is missing: what Redis wrote is in the kernel's hands. `everysec` promises that the disk
is at most two seconds behind; so the file is cut somewhere behind where it ended some time before: mostly in the
middle of what a script wrote.
"""

from __future__ import annotations

import asyncio
import os

from tests.chaos.nemeses import Nemesis
from tests.chaos.stage import Stage


class CutPower(Nemesis):
    """`lost_s`: how much of the file is missing at most, in seconds; less than what the servers may forget."""

    def __init__(self, every_s: float, lost_s: float) -> None:
        super().__init__(every_s)
        self._lost_s = lost_s

    async def strike(self, stage: Stage) -> None:
        redis = stage.standalone
        size = redis.file.stat().st_size
        await asyncio.sleep(self._lost_s)
        with stage.history.fault("cut-power", redis.forgets, redis.forgets_s):
            await redis.kill()
            os.truncate(redis.file, stage.chance.randint(size, redis.file.stat().st_size))
            await asyncio.sleep(stage.chance.uniform(0, 0.5))
            await redis.start()
            await redis.write_anew()

    async def heal(self, stage: Stage) -> None:
        await stage.standalone.kill()
        await stage.standalone.start()
