"""A service that dies, or a lease that is lost, under a sink: nothing is missing, and what was sent in vain counts."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from jobqueue_client import AsyncClient

from buckets.redis.client import Redis
from tests.jobqueue.sinks.brokers.stage import Stage
from tests.kit.brokers.redis_streams import RedisStreams
from tests.kit.ports import free_port
from tests.kit.redis_server import RedisServer
from tests.kit.service import ServiceProcess
from tests.kit.waiting import until


@pytest.fixture
async def stage(own_server: RedisServer, tmp_path: Path) -> AsyncIterator[Stage]:
    broker = RedisStreams()
    await broker.start()
    try:
        async with ServiceProcess("--redis", own_server.url) as service, AsyncClient(service.url) as client:
            stage = Stage(broker, service, client, tmp_path)
            yield stage
            await stage.end()
    finally:
        broker.remove()


async def has_received(stage: Stage, number: int) -> bool:
    return len(await stage.received()) >= number


async def test_nothing_is_missing_when_the_service_is_killed_again_and_again(stage: Stage) -> None:
    stage.write(in_flight=50)
    names = {f"job:{n}" for n in range(3_000)}
    await stage.add([{"topic": "jobs", "id": name, "body": 1, "ttr": 2} for name in sorted(names)])
    await stage.deliver.start()
    for number in (300, 900, 1_500):
        await until(lambda number=number: has_received(stage, number), within_s=60)  # type: ignore[misc]
        await stage.service.kill()
        await stage.service.start()
    await stage.until_none_is_left()
    assert {each.headers["jobqueue-id"] for each in await stage.received()} == names
    assert await stage.dead() == {}
    assert await stage.deliver.stop() == 0, stage.deliver.text


async def test_a_job_that_was_deleted_while_its_confirmation_was_awaited_was_sent_in_vain(stage: Stage) -> None:
    port = free_port()
    acked: dict[str, Any] = {"done": "acked", "group": "g", "poll_ms": 20}
    stage.write(metrics_port=port, **acked)
    await stage.add([{"topic": "jobs", "id": "a", "body": 1}])
    await stage.deliver.start()
    await until(lambda: has_received(stage, 1), within_s=30)
    await stage.client.delete("a")
    assert isinstance(stage.broker, RedisStreams)
    redis = Redis(stage.broker.url)
    ((_, ((entry, _fields),)),) = await redis.ask(*("jobs", "XREADGROUP", "GROUP", "g", "c", "STREAMS", "jobs", ">"))
    await redis.ask("jobs", "XACK", "jobs", "g", entry)
    await redis.close()
    await until(lambda: is_counted(port, "sent_twice"), within_s=30)
    assert await is_counted(port, "confirmed")


async def is_counted(port: int, outcome: str) -> bool:
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}/metrics") as answer:
        text = await answer.text()
    return bool(re.search(rf'jobqueue_sink_jobs_total{{outcome="{outcome}",sink="under-test"}} 1\.0', text))
