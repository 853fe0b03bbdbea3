"""SIGSTOP of all replicas: they lag, so nothing new is replicated. The master is healthy and stays the master."""

from __future__ import annotations

import asyncio

from tests.chaos.nemeses import Nemesis
from tests.chaos.stage import Stage
from tests.kit.redis_node import RedisNode


class FreezeReplicas(Nemesis):
    """`for_s`: how long they are stopped."""

    def __init__(self, every_s: float, for_s: float) -> None:
        super().__init__(every_s)
        self._for_s = for_s
        self._frozen: list[RedisNode] = []

    async def strike(self, stage: Stage) -> None:
        servers = stage.replicated
        with stage.history.fault("freeze-replicas"):
            self._frozen = await servers.replicas()
            for replica in self._frozen:
                replica.freeze()
            await asyncio.sleep(self._for_s)
            await self.heal(stage)
            await servers.settled()

    async def heal(self, stage: Stage) -> None:
        while self._frozen:
            self._frozen.pop().thaw()
