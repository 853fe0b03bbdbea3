"""A power failure, as far as one process can imitate it: SIGKILL of the single Redis, and the loss of the end of its
file.

After SIGKILL alone nothing is missing, because the kernel has what Redis wrote. `everysec` promises that the disk is at
most two seconds behind. So the file is truncated somewhere after where it ended some time before, mostly in the middle
of what a script wrote.
"""

from __future__ import annotations

import asyncio
import os

from tests.chaos.nemeses import Nemesis
from tests.chaos.stage import Stage


class CutPower(Nemesis):
    """`lost_s`: how much of the file may be missing, in seconds; less than what the servers may forget."""

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
