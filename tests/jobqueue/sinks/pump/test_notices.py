"""What the service is told of a sink that waits: it stays listed, with its reason, and is not taken for missing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from jobqueue_client import AsyncClient

from buckets.redis.client import Redis
from tests.jobqueue.sinks.brokers.stage import Stage
from tests.kit.brokers.redis_streams import RedisStreams
from tests.kit.redis_server import RedisServer
from tests.kit.service import ServiceProcess
from tests.kit.waiting import until


@pytest.mark.parametrize("order", ["none", "strict"])
async def test_a_sink_that_waits_for_its_broker_is_listed_as_blocked(
    own_server: RedisServer, tmp_path: Path, order: str
) -> None:
    broker = RedisStreams()
    async with ServiceProcess("--redis", own_server.url) as service, AsyncClient(service.url) as client:
        stage = Stage(broker, service, client, tmp_path)
        try:
            stage.write(order=order, timeout_s=1)
            await stage.add([{"topic": "jobs", "id": "a", "body": 1}])
            await stage.deliver.start()
            await until(lambda: has_blocked(client, True))
            (row,) = await rows(client)
            assert (row["worker"], row["topics"]) == ("sink-under-test", ["jobs"])
            assert row["blocked"].startswith("sink under-test: ") and "no connection to " in row["blocked"]
            await until(lambda: is_found(client, "its sink under-test: "))
            assert not await is_found(client, "no worker polls it")
            await broker.start()
            await stage.until_none_is_left()
            await until(lambda: has_blocked(client, False))
            assert stage.deliver.logged("redis.lost") == []
        finally:
            await stage.end()
            broker.remove()


async def test_a_topic_that_its_sink_has_paused_is_found_with_the_reason(
    own_server: RedisServer, tmp_path: Path
) -> None:
    broker = RedisStreams()
    await broker.start()
    async with ServiceProcess("--redis", own_server.url) as service, AsyncClient(service.url) as client:
        stage = Stage(broker, service, client, tmp_path)
        try:
            streams = Redis(broker.url)
            await streams.ask("wrong", "SET", "wrong", "no stream")
            await streams.close()
            stage.write(["jobs", "wrong"], stream="{topic}")
            await stage.add([{"topic": "wrong", "id": "a", "body": 1}])
            await stage.deliver.start()
            await until(lambda: has_been_tried(client, "wrong"))
            await until(lambda: is_found(client, "its sink under-test: WRONGTYPE"), within_s=30)
        finally:
            await stage.end()
            broker.remove()


async def has_been_tried(client: AsyncClient, topic: str) -> bool:
    """Whether a trial of a paused topic has ended: its worker stays listed for a while."""
    return {"blocked", "idle"} <= {row["state"] for row in await rows(client, topic)}


async def rows(client: AsyncClient, topic: str = "jobs") -> list[dict[str, Any]]:
    return [{**row} for row in (await client.workers(topic))["workers"]]


async def has_blocked(client: AsyncClient, yes: bool) -> bool:
    return any(row["state"] == "blocked" for row in await rows(client)) is yes


async def is_found(client: AsyncClient, words: str) -> bool:
    return any(words in found["words"] for found in (await client.health())["findings"])
