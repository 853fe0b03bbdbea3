"""Cuts a master off from all other servers, which elect another one.

Until it notices, it accepts writes that will not count: with Sentinels as long as the cut lasts, in a Cluster until it
finds that it is alone.
"""

from __future__ import annotations

import asyncio

from tests.chaos.nemeses import Nemesis
from tests.chaos.servers import UNSENT_S
from tests.chaos.stage import Stage
from tests.kit.redis_node import RedisNode
from tests.kit.redis_sentinels import SentinelSet

_FOLLOW_S = 2.0
"""After this long the service, having been able to learn of the new master, no longer asks the old one: what it is told
then stays.
"""


class CutOff(Nemesis):
    """`for_s`: how long the cuts last, in turn; one that is long enough lasts at least until another master has taken
    over. `with_service`: the service is on the old master's side and reaches no other server; otherwise it reaches all.
    """

    def __init__(self, every_s: float, for_s: list[float], with_service: bool = False) -> None:
        super().__init__(every_s)
        self._for_s = for_s
        self._with_service = with_service
        self._turn = 0

    async def strike(self, stage: Stage) -> None:
        servers = stage.replicated
        for_s = self._for_s[self._turn % len(self._for_s)]
        self._turn += 1
        master = await servers.some_master(self._turn)
        slots = None if self._with_service else await servers.slots_of(master)
        if for_s <= servers.down_after_s:
            await self._briefly(stage, master, for_s, slots)
        else:
            await self._for_long(stage, master, for_s, slots)

    async def _briefly(self, stage: Stage, master: RedisNode, for_s: float, slots: tuple[int, int] | None) -> None:
        """Cut a master off briefly: it remains the master."""
        servers = stage.replicated
        # Close to the limit, Sentinels may elect another one.
        forgets = ("local",) if for_s == servers.down_after_s else ()
        with stage.history.fault("cut-off", forgets, UNSENT_S, slots=slots):
            self._cut(stage, master)
            await asyncio.sleep(for_s)
            await self.heal(stage)
            await servers.settled()

    async def _for_long(self, stage: Stage, master: RedisNode, for_s: float, slots: tuple[int, int] | None) -> None:
        """Cut a master off for long: it comes back as a replica."""
        servers = stage.replicated
        whole = asyncio.create_task(asyncio.sleep(for_s))
        with stage.history.fault("cut-off", ("local",), UNSENT_S, slots=slots):
            self._cut(stage, master)
            await servers.failed_over(master)
            if self._with_service:
                await whole
                await self.heal(stage)
            await asyncio.sleep(_FOLLOW_S)
        with stage.history.fault("cut-off-replaced", slots=slots):
            await whole
            await self.heal(stage)
            await servers.settled()

    def _cut(self, stage: Stage, master: RedisNode) -> None:
        servers = stage.replicated
        assert servers.network
        # A Sentinel on the old master's host keeps naming it.
        aside = [master, *servers.sentinels[:1]] if isinstance(servers, SentinelSet) else [master]
        servers.network.cut_off([node.host for node in aside], with_service=self._with_service)

    async def heal(self, stage: Stage) -> None:
        network = stage.replicated.network
        assert network
        network.heal()
