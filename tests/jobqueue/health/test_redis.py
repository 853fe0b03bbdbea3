"""What `check` and `health` tell of several servers of Redis."""

from __future__ import annotations

from buckets import Pool, Redis
from jobqueue.health.redis import check_redis
from jobqueue.settings import Settings
from tests.kit.redis_cluster import ClusterSet

SHARDS = 6


async def test_each_server_of_a_cluster_is_told_with_its_replicas_and_its_shards() -> None:
    async with ClusterSet() as cluster:
        redis = Redis(cluster.url)
        pool = await Pool.open(redis, shards=SHARDS, buckets=2)
        told: dict[str, list[str]] = {}
        async for finding in check_redis(redis, Settings(redis=cluster.url)):
            told.setdefault(finding.subject, []).append(finding.sentence)
        servers = {subject: words for subject, words in told.items() if subject.startswith("redis ")}
        assert len(servers) == 3
        assert all(words[0].endswith(", 1 replica") for words in servers.values())
        shards = [words[-1].partition("jq: ")[2].split(", ") for words in servers.values()]
        assert sorted(shard for some in shards for shard in some) == [str(shard) for shard in range(SHARDS)]
        await pool.close()
        await redis.close()
