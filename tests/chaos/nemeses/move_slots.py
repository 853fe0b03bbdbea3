"""Moves the slots of some shards to the next master of the Cluster and back, key by key, under load."""

from __future__ import annotations

from buckets.keys import Keys
from tests.chaos.nemeses import Nemesis
from tests.chaos.stage import Stage
from tests.kit.redis_cluster import ClusterSet

NAMESPACE = "jq"


class MoveSlots(Nemesis):
    """`shards`: how many, from the first; `batch`: how many keys at a time."""

    def __init__(self, every_s: float, shards: int, batch: int) -> None:
        super().__init__(every_s)
        self._shards = shards
        self._batch = batch

    async def strike(self, stage: Stage) -> None:
        cluster = stage.servers
        assert isinstance(cluster, ClusterSet)
        with stage.history.fault("move-slots"):
            for shard in range(self._shards):
                await cluster.move_back_and_forth(Keys(NAMESPACE, shard).meta, self._batch)
