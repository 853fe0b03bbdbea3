"""Strict order: what is received has the order of the due times, whatever fails and whoever dies."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from jobqueue_client import AsyncClient

from buckets.redis.client import Redis
from tests.jobqueue.sinks.brokers.stage import DeliverProcess, Stage
from tests.kit.brokers.redis_streams import RedisStreams
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
            stage.write(order="strict")
            yield stage
            await stage.end()
    finally:
        broker.remove()


async def refuse(stage: Stage, refuses: bool) -> None:
    """Have the Redis of the streams refuse all writes, or take them again."""
    assert isinstance(stage.broker, RedisStreams)
    redis = Redis(stage.broker.url)
    await redis.read("CONFIG", "SET", "maxmemory", "1" if refuses else "0")
    await redis.close()


async def ids(stage: Stage) -> list[str]:
    """The ids that were received, each once, in the order of the first time."""
    return list(dict.fromkeys(each.headers["jobqueue-id"] for each in await stage.received()))


async def has_received(stage: Stage, number: int) -> bool:
    return len(await ids(stage)) >= number


async def test_what_fails_holds_up_all_behind_it_over_two_processes_of_which_one_is_killed(stage: Stage) -> None:
    names = [f"job:{n:03}" for n in range(120)]
    await stage.add([{"topic": "jobs", "id": name, "body": 1, "backoff": [0.3], "ttr": 60} for name in names])
    first, second = stage.deliver, stage.another()
    await first.start()
    await until(lambda: has_received(stage, 20), within_s=60)
    await second.start()
    await refuse(stage, True)
    await until(lambda: was_refused(first), within_s=60)
    await refuse(stage, False)
    await until(lambda: has_received(stage, 60), within_s=60)
    await first.stop(signal.SIGKILL)
    await stage.until_none_is_left()
    assert await ids(stage) == names
    assert not second.logged("sink.ended")


async def was_refused(deliver: DeliverProcess) -> bool:
    return bool(deliver.logged("sink.refused"))


async def test_a_job_that_dies_lets_those_behind_it_go_on(stage: Stage) -> None:
    await refuse(stage, True)
    await stage.add([{"topic": "jobs", "id": "dies", "body": 1, "backoff": [0.1], "tries": 2}])
    await stage.add([{"topic": "jobs", "id": f"job:{n}", "body": 1, "backoff": [0.1]} for n in range(3)])
    await stage.deliver.start()
    await until(lambda: is_dead(stage), within_s=60)
    await refuse(stage, False)
    await stage.until_none_is_left()
    assert await ids(stage) == [f"job:{n}" for n in range(3)]
    assert "sink under-test" in (await stage.dead())["dies"]
    first, second = (datetime.fromisoformat(line["time"]) for line in stage.deliver.logged("sink.refused")[:2])
    assert second - first >= timedelta(seconds=0.1)
    assert await stage.deliver.stop() == 0, stage.deliver.text


async def is_dead(stage: Stage) -> bool:
    return "dies" in await stage.dead()


async def test_an_outage_and_a_stop_in_it_keep_the_order_and_cost_no_try(stage: Stage) -> None:
    names = [f"job:{n:03}" for n in range(60)]
    await stage.add([{"topic": "jobs", "id": name, "body": 1, "tries": 1} for name in names])
    await stage.deliver.start()
    await until(lambda: has_received(stage, 10), within_s=60)
    stage.broker.kill()
    await until(lambda: is_down(stage), within_s=60)
    assert await stage.deliver.stop() == 0, stage.deliver.text
    await stage.broker.start()
    await stage.deliver.start()
    await stage.until_none_is_left()
    assert await ids(stage) == names
    assert await stage.dead() == {}


async def is_down(stage: Stage) -> bool:
    return bool(stage.deliver.logged("sink.down"))


async def test_a_stop_while_it_waits_for_jobs_is_heeded_at_once(stage: Stage) -> None:
    await stage.add([{"topic": "jobs", "id": "a", "body": 1}])
    await stage.deliver.start()
    await stage.until_none_is_left()
    async with asyncio.timeout(15):
        assert await stage.deliver.stop() == 0


async def test_a_service_that_is_away_is_told_once_with_its_end(stage: Stage) -> None:
    await stage.add([{"topic": "jobs", "id": "a", "body": 1}])
    await stage.deliver.start()
    await stage.until_none_is_left()
    await stage.service.kill()
    await until(lambda: bool(stage.deliver.logged("sink.interrupted")), within_s=60)
    await stage.service.start()
    await until(lambda: bool(stage.deliver.logged("sink.continued")), within_s=60)
    assert len(stage.deliver.logged("sink.interrupted")) == 1
