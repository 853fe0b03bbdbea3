"""The servers of a stage that have replicas: a Sentinel set or a Cluster."""

from __future__ import annotations

from tests.chaos.stage import Stage
from tests.kit.redis_cluster import ClusterSet
from tests.kit.redis_sentinels import SentinelSet

UNSENT_S = 1.0
"""What a master acknowledged within this time before it died may not have reached a replica."""


def replicated(stage: Stage) -> SentinelSet | ClusterSet:
    """The servers, as one of two classes that share the methods for what both can do."""
    assert isinstance(stage.servers, SentinelSet | ClusterSet)
    return stage.servers
