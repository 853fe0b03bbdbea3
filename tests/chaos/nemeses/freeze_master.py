"""SIGSTOP of a master until long after another server took over; then it comes back with stale data, and with
writes."""

from __future__ import annotations

import asyncio

from tests.chaos.nemeses import Nemesis
from tests.chaos.servers import UNSENT_S
from tests.chaos.stage import Stage
from tests.kit.redis_node import RedisNode


class FreezeMaster(Nemesis):
    """`for_s`: how long it is stopped."""

    def __init__(self, every_s: float, for_s: float) -> None:
        super().__init__(every_s)
        self._for_s = for_s
        self._turn = 0
        self._frozen: RedisNode | None = None

    async def strike(self, stage: Stage) -> None:
        servers = stage.replicated
        self._turn += 1
        master = await servers.some_master(self._turn)
        slots = await servers.slots_of(master)
        with stage.history.fault("freeze-master", ("local",), UNSENT_S, slots=slots):
            self._frozen = master
            master.freeze()
            await asyncio.gather(asyncio.sleep(self._for_s), servers.failed_over(master))
            await self.heal(stage)
            await servers.settled()

    async def heal(self, stage: Stage) -> None:
        if self._frozen:
            self._frozen.thaw()
            self._frozen = None
