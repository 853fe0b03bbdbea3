"""The one scenario, by every protocol: on one Redis, and on a Cluster with several processes on each port."""

from __future__ import annotations

from buckets.redis.client import Redis
from tests.kit.redis_cluster import ClusterSet
from tests.kit.redis_server import RedisServer
from tests.wires.scenario import play
from tests.wires.serving import DRIVERS, serving


async def test_a_job_lives_its_life_by_each_protocol(redis_server: RedisServer, redis: Redis) -> None:
    async with serving(redis_server.url) as wires:
        await play(wires, *DRIVERS)


async def test_the_same_holds_on_a_cluster_with_several_processes_on_each_port() -> None:
    async with ClusterSet() as cluster, serving(cluster.url, workers=2) as wires:
        await play(wires, *DRIVERS)
