"""SIGKILL of the single Redis, which is restarted after a moment with what its file holds."""

from __future__ import annotations

import asyncio

from tests.chaos.nemeses import Nemesis
from tests.chaos.stage import Stage


class KillRedis(Nemesis):
    async def strike(self, stage: Stage) -> None:
        redis = stage.standalone
        with stage.history.fault("kill-redis", redis.forgets, redis.forgets_s):
            await redis.kill()
            await asyncio.sleep(stage.chance.uniform(0, 0.5))
            await redis.start()

    async def heal(self, stage: Stage) -> None:
        await stage.standalone.kill()
        await stage.standalone.start()
