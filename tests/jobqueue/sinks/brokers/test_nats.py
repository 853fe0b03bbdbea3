"""The kind `nats`: what JetStream refuses, drops, or does not know."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from jobqueue_client import AsyncClient
from nats.js.api import DiscardPolicy, StreamConfig

from tests.jobqueue.sinks.brokers.stage import Stage
from tests.kit.brokers.nats_server import NatsServer
from tests.kit.program import Missing
from tests.kit.redis_server import RedisServer
from tests.kit.service import ServiceProcess
from tests.kit.waiting import until


@pytest.fixture
async def server() -> AsyncIterator[NatsServer]:
    server = NatsServer()
    try:
        await server.start()
    except Missing as error:
        pytest.skip(str(error))
    yield server
    server.remove()


@pytest.fixture
async def stage(server: NatsServer, own_server: RedisServer, tmp_path: Path) -> AsyncIterator[Stage]:
    async with ServiceProcess("--redis", own_server.url) as service, AsyncClient(service.url) as client:
        stage = Stage(server, service, client, tmp_path)
        stage.write()
        yield stage
        await stage.end()


async def is_logged(stage: Stage, event: str, part: str) -> bool:
    return any(part in line["reason"] for line in stage.deliver.logged(event))


async def test_the_topic_of_a_subject_without_a_stream_waits_until_there_is_one(
    stage: Stage, server: NatsServer
) -> None:
    await stage.add([{"topic": "jobs", "id": "a", "body": 1, "tries": 1}])
    await stage.deliver.start()
    await until(lambda: is_logged(stage, "sink.paused", "no stream takes the subject jobs.jobs"), within_s=30)
    await server.prepare([])
    await stage.until_none_is_left()
    assert [each.headers["jobqueue-attempt"] for each in await stage.received()] == ["1"]


async def test_a_full_stream_refuses_and_each_refusal_is_a_try(stage: Stage, server: NatsServer) -> None:
    client = await server.client()
    stream = StreamConfig(name="jobs", subjects=["jobs.>"], max_msgs=2, discard=DiscardPolicy.NEW)
    await client.jetstream().add_stream(stream)
    await stage.add([{"topic": "jobs", "id": f"a{n}", "body": 1, "tries": 2, "backoff": [0.1]} for n in range(3)])
    await stage.deliver.start()
    await until(lambda: is_dead(stage, 1), within_s=30)
    assert "the stream is full" in next(iter((await stage.dead()).values()))
    assert len(await stage.received()) == 2
    await client.close()


async def is_dead(stage: Stage, number: int) -> bool:
    return len(await stage.dead()) == number


async def test_a_message_that_is_too_large_and_a_subject_that_cannot_be_are_dead_letters(
    stage: Stage, server: NatsServer
) -> None:
    await server.prepare([])
    stage.write(subject="jobs.{header:region}", headers={"constant": "1"})
    jobs: list[dict[str, Any]] = [
        {"id": "none"},
        {"id": "wild", "headers": {"region": "a.*"}},
        {"id": "well", "headers": {"region": "eu"}},
    ]
    await stage.add([{"topic": "jobs", "body": 1, **job} for job in jobs])
    await stage.deliver.start()
    await stage.until_none_is_left()
    dead = await stage.dead()
    assert dead["none"] == "sink under-test: the job has no header region"
    assert "forbidden part" in dead["wild"]
    assert [each.headers["jobqueue-id"] for each in await stage.received()] == ["well"]


async def test_a_wrong_password_is_an_outage_that_waits_for_a_minute(stage: Stage, server: NatsServer) -> None:
    server.more = ["--user", "u", "--pass", "right"]
    server.kill()
    await server.start()
    url = f"nats://u:wrong@127.0.0.1:{server.port}"
    stage.write(url=url)
    await stage.deliver.start()
    await until(lambda: is_logged(stage, "sink.down", "uthorization"), within_s=30)
    assert "wrong" not in stage.deliver.text.replace("wrong ", "")
    stage.write(url=url.replace("wrong", "right"))
    stage.deliver.reload()
    await until(lambda: is_up(stage), within_s=30)


async def is_up(stage: Stage) -> bool:
    return bool(stage.deliver.logged("sink.up"))


async def test_check_tells_the_stream_and_its_window(stage: Stage, server: NatsServer) -> None:
    assert await stage.check() == 1
    assert stage.check_text == "under-test: nats: no stream takes the subject jobs.jobs\n"
    await server.prepare([])
    assert await stage.check() == 0
    assert stage.check_text.splitlines() == [
        "under-test: nats: connected",
        "under-test: jobs: subject jobs.jobs, stream jobs, drops repetitions for 120 s",
    ]
