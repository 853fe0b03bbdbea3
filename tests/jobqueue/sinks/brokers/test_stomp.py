"""The kind `stomp`: errors of RabbitMQ, texts of ActiveMQ, and what mykit-delay's consumers read."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import stompman

from tests.jobqueue.sinks.brokers.conftest import Running, staged
from tests.jobqueue.sinks.brokers.stage import Stage
from tests.kit.brokers.stomp_servers import ActiveMq, RabbitMqStomp
from tests.kit.redis_server import RedisServer
from tests.kit.waiting import until


@asynccontextmanager
async def _on(kind: str, running: Running, redis: RedisServer, folder: Path) -> AsyncIterator[Stage]:
    async with running.one(kind) as broker:
        await broker.prepare(["jobs"])
        async with staged(broker, redis, folder) as stage:
            stage.write()
            yield stage


@pytest.fixture
async def rabbit(running: Running, own_server: RedisServer, tmp_path: Path) -> AsyncIterator[Stage]:
    async with _on("stomp", running, own_server, tmp_path) as stage:
        yield stage


@pytest.fixture
async def active(running: Running, own_server: RedisServer, tmp_path: Path) -> AsyncIterator[Stage]:
    async with _on("stomp-activemq", running, own_server, tmp_path) as stage:
        yield stage


async def is_down(stage: Stage) -> bool:
    return bool(stage.deliver.logged("sink.down"))


async def test_an_error_that_names_no_message_is_an_outage(rabbit: Stage) -> None:
    rabbit.write(destination="/nowhere/x")
    await rabbit.add([{"topic": "jobs", "id": f"a{n}", "body": 1, "tries": 1} for n in range(5)])
    await rabbit.deliver.start()
    await until(lambda: is_down(rabbit), within_s=30)
    rabbit.write()
    rabbit.deliver.reload()
    await rabbit.until_none_is_left()
    assert await rabbit.dead() == {}
    assert len(await rabbit.received()) == 5


async def test_a_wrong_password_or_virtual_host_is_told(rabbit: Stage) -> None:
    url = rabbit.broker.table()["url"]
    rabbit.write(url=url.replace("guest:guest", "guest:secret-word"))
    assert await rabbit.check() == 1
    assert rabbit.check_text == "under-test: stomp: the login was refused: Bad CONNECT\n"
    rabbit.write(vhost="none")
    assert await rabbit.check() == 1
    assert "the login was refused" in rabbit.check_text


async def test_no_header_of_a_job_can_stop_the_sink_or_turn_the_message_elsewhere(rabbit: Stage) -> None:
    odd = {"durable": "no", "user-id": "root", "Receipt": "r", "persistent": "x", "priority": "x", "AMQ_X": "1"}
    kept = {"mine": "a: b \\ c\nd"}
    await rabbit.add([{"topic": "jobs", "id": "a", "body": 1, "tries": 1, "headers": {**odd, **kept}}])
    await rabbit.deliver.start()
    await rabbit.until_none_is_left()
    assert await rabbit.dead() == {}
    assert rabbit.deliver.logged("sink.down") == []
    (got,) = await rabbit.received()
    assert got.headers["mine"] == kept["mine"]
    assert not odd.keys() & got.headers.keys()
    assert {line["header"] for line in rabbit.deliver.logged("sink.header_left_out")} == odd.keys()


async def test_a_queue_may_be_named_by_what_a_destination_of_rabbitmq_cannot_have(rabbit: Stage) -> None:
    assert isinstance(rabbit.broker, RabbitMqStomp)
    rabbit.write(destination="/queue/{header:queue}")
    await rabbit.add([{"topic": "jobs", "id": "a", "body": 1, "tries": 1, "headers": {"queue": "a/b:c"}}])
    await rabbit.deliver.start()
    await rabbit.until_none_is_left()
    assert (await rabbit.dead(), rabbit.deliver.logged("sink.down")) == ({}, [])
    connection = await rabbit.broker.connection()
    async with connection, connection.channel() as channel:
        queue = await channel.declare_queue("a/b:c", passive=True)
        assert queue.declaration_result.message_count == 1


async def test_a_carriage_return_in_a_header_is_a_dead_letter_and_the_rest_goes_on(rabbit: Stage) -> None:
    await rabbit.add([{"topic": "jobs", "id": "odd", "body": 1, "headers": {"mine": "a\rb"}}])
    await rabbit.add([{"topic": "jobs", "id": "a", "body": 1}])
    await rabbit.deliver.start()
    await rabbit.until_none_is_left()
    assert "carriage return" in (await rabbit.dead())["odd"]
    assert len(await rabbit.received()) == 1


async def test_a_full_queue_at_which_rabbitmq_ends_the_connection_costs_no_try(rabbit: Stage) -> None:
    """Its plugin does so in place of an ERROR that names the message."""
    assert isinstance(rabbit.broker, RabbitMqStomp)
    connection = await rabbit.broker.connection()
    async with connection, connection.channel() as channel:
        full: dict[str, Any] = {"x-max-length": 2, "x-overflow": "reject-publish"}
        await channel.declare_queue("full", durable=True, arguments=full)
        rabbit.write(destination="/amq/queue/full")
        await rabbit.add([{"topic": "jobs", "id": f"a{n}", "body": 1, "tries": 1} for n in range(4)])
        await rabbit.deliver.start()
        await until(lambda: is_down(rabbit), within_s=30)
        await channel.queue_delete("full")
        await channel.declare_queue("full", durable=True)
        await rabbit.until_none_is_left()
    assert await rabbit.dead() == {}


async def test_mykits_consumers_get_a_text_with_the_job(active: Stage) -> None:
    active.write(amq_text=True, body="mykit", destination="/queue/texts")
    headers = {"bizKey": "1001", "subtopic": "close"}
    await active.add(
        [{"topic": "jobs", "id": "order:1001", "body": '{"order":1001}', "headers": headers, "delay": 0.1}]
    )
    await active.deliver.start()
    await active.until_none_is_left()
    assert isinstance(active.broker, ActiveMq)
    (frame,) = await frames(active.broker, "/queue/texts")
    assert "content-length" not in frame.headers  # which would make it bytes for a consumer in Java
    told = json.loads(frame.body)
    assert list(told) == ["bizKey", "body", "createTime", "delay", "id", "status", "subtopic", "topic", "ttl"]
    job = await active.client.get("order:1001")
    assert (told["bizKey"], told["subtopic"], told["body"]) == ("1001", "close", '{"order":1001}')
    assert (told["id"], told["topic"], told["status"], told["delay"]) == ("order:1001", "jobs", 2, 100)
    assert told["createTime"] == round(job["created"] * 1000)


async def frames(broker: ActiveMq, destination: str) -> list[stompman.MessageFrame]:
    """The first message of a queue."""
    found: asyncio.Queue[stompman.MessageFrame] = asyncio.Queue()
    async with stompman.Client([stompman.ConnectionParameters("127.0.0.1", broker.stomp, "", "")]) as client:
        subscription = await client.subscribe(destination, found.put, on_suppressed_exception=lambda *_: None)
        first = await asyncio.wait_for(found.get(), 20)
        await subscription.unsubscribe()
    return [first]
