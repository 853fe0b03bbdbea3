"""Where a job of the load is on a Cluster."""

from __future__ import annotations

from buckets.keys import Keys, shard_of
from tests.kit.redis_cluster import slot_of

NAMESPACE = "jq"
SHARDS = 16  # of a new namespace on a Cluster


def slot_of_job(job: str) -> int:
    """The slot of the shard of a job."""
    return slot_of(Keys(NAMESPACE, shard_of(job, SHARDS)).meta)
