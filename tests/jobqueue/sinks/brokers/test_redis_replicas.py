"""The kind `redis-stream` with `replicas`: an entry is confirmed when replicas have it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from jobqueue_client import AsyncClient

from buckets.redis.client import Redis
from tests.jobqueue.sinks.brokers.stage import Stage
from tests.kit.brokers.redis_streams import RedisStreams
from tests.kit.redis_server import RedisServer
from tests.kit.service import ServiceProcess
from tests.kit.waiting import until


@pytest.fixture
async def replica(tmp_path: Path, own_server: RedisServer) -> AsyncIterator[tuple[Stage, RedisStreams]]:
    """A stage whose broker has a replica."""
    broker, replica = RedisStreams(), RedisStreams()
    try:
        await broker.start()
        await replica.start()
        await follow(replica, broker)
        async with ServiceProcess("--redis", own_server.url) as service, AsyncClient(service.url) as client:
            stage = Stage(broker, service, client, tmp_path)
            stage.write(replicas=1, timeout_s=2)
            yield stage, replica
            await stage.end()
    finally:
        broker.remove()
        replica.remove()


async def follow(replica: RedisStreams, broker: RedisStreams) -> None:
    redis = Redis(replica.url, 5.0)
    await redis.read("REPLICAOF", "127.0.0.1", broker.port)

    async def follows() -> bool:
        return b"master_link_status:up" in await redis.read("INFO", "replication")

    await until(follows, within_s=60)
    await redis.close()


async def test_a_message_is_confirmed_when_a_replica_has_it_and_is_refused_while_none_does(
    replica: tuple[Stage, RedisStreams],
) -> None:
    stage, follower = replica
    await stage.add([{"topic": "jobs", "id": f"a{n}", "body": n} for n in range(500)])
    await stage.deliver.start()
    await stage.until_none_is_left()
    assert len({each.key for each in await follower.received()}) == 500
    follower.kill()
    await stage.add([{"topic": "jobs", "id": "late", "body": 1, "tries": 1}])
    await stage.until_none_is_left()
    assert await stage.dead() == {"late": "sink under-test: 0 of 1 replicas have it"}
