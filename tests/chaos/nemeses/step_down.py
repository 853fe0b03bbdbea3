"""SENTINEL FAILOVER or CLUSTER FAILOVER: an operator promotes a replica."""

from __future__ import annotations

from tests.chaos.nemeses import Nemesis
from tests.chaos.servers import UNSENT_S
from tests.chaos.stage import Stage
from tests.kit.redis_sentinels import SentinelSet


class StepDown(Nemesis):
    def __init__(self, every_s: float) -> None:
        super().__init__(every_s)
        self._turn = 0

    async def strike(self, stage: Stage) -> None:
        servers = stage.replicated
        self._turn += 1
        # Sentinels do not ask the old master, which goes on for a second or more, followed by the other replica. In a
        # Cluster it stops accepting writes, and waits until the new one has everything.
        forgets = ("local", "replicated") if isinstance(servers, SentinelSet) else ()
        with stage.history.fault("step-down", forgets, UNSENT_S):
            await servers.failover(await servers.some_master(self._turn))
            await servers.settled()
