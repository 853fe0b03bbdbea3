"""SIGKILL of a master, with Sentinels or in a Cluster; once another server has taken over, it comes back as a
replica."""

from __future__ import annotations

from tests.chaos.nemeses import Nemesis
from tests.chaos.servers import UNSENT_S
from tests.chaos.stage import Stage


class KillMaster(Nemesis):
    def __init__(self, every_s: float) -> None:
        super().__init__(every_s)
        self._turn = 0

    async def strike(self, stage: Stage) -> None:
        servers = stage.replicated
        self._turn += 1
        master = await servers.some_master(self._turn)
        slots = await servers.slots_of(master)
        with stage.history.fault("kill-master", ("local",), UNSENT_S, slots=slots):
            master.kill()
            await servers.failed_over(master)
            await master.start()
            await servers.settled()

    async def heal(self, stage: Stage) -> None:
        for node in stage.replicated.nodes:
            if not node.alive:
                await node.start()
