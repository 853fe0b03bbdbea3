"""The kind `amqp`: what RabbitMQ returns, refuses, closes and blocks."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.jobqueue.sinks.brokers.conftest import Running, staged
from tests.jobqueue.sinks.brokers.stage import Stage
from tests.kit.brokers.rabbitmq import RabbitMq
from tests.kit.redis_server import RedisServer
from tests.kit.waiting import until


@pytest.fixture
async def server(running: Running) -> AsyncIterator[RabbitMq]:
    async with running.one("amqp") as server:
        assert isinstance(server, RabbitMq)
        await server.forget()
        yield server
        await server.forget()


@pytest.fixture
async def stage(server: RabbitMq, own_server: RedisServer, tmp_path: Path) -> AsyncIterator[Stage]:
    async with staged(server, own_server, tmp_path) as stage:
        stage.write()
        yield stage


async def is_logged(stage: Stage, event: str, part: str) -> bool:
    return any(part in line["reason"] for line in stage.deliver.logged(event))


async def is_dead(stage: Stage, number: int) -> bool:
    return len(await stage.dead()) == number


async def test_what_no_queue_takes_or_a_full_one_refuses_is_a_try(stage: Stage, server: RabbitMq) -> None:
    connection = await server.connection()
    async with connection, connection.channel() as channel:
        exchange = await channel.declare_exchange("jobs", "topic", durable=True)
        full: dict[str, Any] = {"x-max-length": 2, "x-overflow": "reject-publish"}
        queue = await channel.declare_queue("jobs", durable=True, arguments=full)
        await queue.bind(exchange, "eu.#")
    stage.write(routing_key="{header:region}.{id}")
    jobs = [{"id": f"job:{n}", "headers": {"region": "eu"}} for n in range(3)] + [
        {"id": "unrouted", "headers": {"region": "us"}},
        {"id": "p" * 255, "headers": {"region": "eu"}},
    ]
    await stage.add([{"topic": "jobs", "body": 1, "tries": 2, "backoff": [0.1], **job} for job in jobs])
    await stage.deliver.start()
    await until(lambda: is_dead(stage, 3), within_s=60)
    dead = await stage.dead()
    assert "us.unrouted was not routed" in dead["unrouted"]
    assert "longer than 255 bytes" in dead["p" * 255]
    (full_one,) = dead.keys() - {"unrouted", "p" * 255}
    assert "basic.nack" in dead[full_one]
    assert len(await stage.received()) == 2


async def test_a_missing_exchange_is_an_outage_until_it_is_there_and_when_it_goes(
    stage: Stage, server: RabbitMq
) -> None:
    await stage.add([{"topic": "jobs", "id": "a", "body": 1, "tries": 1}])
    await stage.deliver.start()
    await until(lambda: is_logged(stage, "sink.down", "no exchange 'jobs'"), within_s=30)
    await server.prepare([])
    await stage.until_none_is_left()
    connection = await server.connection()
    async with connection, connection.channel() as channel:
        await channel.exchange_delete("jobs")
    await stage.add([{"topic": "jobs", "id": f"b{n}", "body": 1, "tries": 1} for n in range(5)])
    await until(lambda: are_down(stage, 2), within_s=30)
    await server.prepare([])
    await stage.until_none_is_left()
    assert await stage.dead() == {}
    assert {each.headers["jobqueue-attempt"] for each in await stage.received()} == {"1"}


async def are_down(stage: Stage, number: int) -> bool:
    return len(stage.deliver.logged("sink.down")) >= number


async def test_a_broker_short_of_memory_blocks_and_costs_no_try(stage: Stage, server: RabbitMq) -> None:
    await server.prepare([])
    stage.write(timeout_s=2)
    await stage.deliver.start()
    await stage.add([{"topic": "jobs", "id": "before", "body": 1}])
    await stage.until_none_is_left()
    await server.control("set_vm_memory_high_watermark", "0.0000001")
    await stage.add([{"topic": "jobs", "id": f"a{n}", "body": 1, "tries": 1} for n in range(20)])
    await until(lambda: is_logged(stage, "sink.blocked", "short of memory"), within_s=30)
    await until(lambda: are_down(stage, 1), within_s=30)
    await server.control("set_vm_memory_high_watermark", "0.4")
    await stage.until_none_is_left()
    assert await stage.dead() == {}
    assert {each.headers["jobqueue-id"] for each in await stage.received()} == {"before", *(f"a{n}" for n in range(20))}


async def test_what_is_declared_is_a_durable_exchange_with_a_quorum_queue(stage: Stage, server: RabbitMq) -> None:
    stage.write(declare=True)
    await stage.add([{"topic": "jobs", "id": "a", "body": 1}])
    await stage.deliver.start()
    await stage.until_none_is_left()
    assert len(await stage.received()) == 1
    await server.control("await_startup")


async def test_a_wrong_password_is_an_outage_and_is_not_shown(stage: Stage, server: RabbitMq) -> None:
    stage.write(url=server.url.replace("guest:guest", "guest:secret-word"))
    assert await stage.check() == 1
    assert stage.check_text == "under-test: amqp: the login was refused\n"


async def test_headers_that_rabbitmq_routes_by_are_left_out(stage: Stage, server: RabbitMq) -> None:
    await server.prepare([])
    await stage.add([{"topic": "jobs", "id": "a", "body": 1, "headers": {"CC": "other", "mine": "é"}}])
    await stage.deliver.start()
    await stage.until_none_is_left()
    (got,) = await stage.received()
    assert got.headers["mine"] == "é" and "CC" not in got.headers
    assert stage.deliver.logged("sink.header_left_out")[0]["header"] == "CC"
