"""The kind `kafka`: keys, partitions, what is too large, and an address where no broker is."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from jobqueue_client import AsyncClient

from tests.jobqueue.sinks.brokers.stage import Stage
from tests.kit.brokers.kafka import Kafka
from tests.kit.ports import free_port
from tests.kit.redis_server import RedisServer
from tests.kit.service import ServiceProcess
from tests.kit.waiting import until


@pytest.fixture
async def server() -> AsyncIterator[Kafka]:
    server = Kafka()
    await server.start()
    yield server
    server.remove()


@pytest.fixture
async def stage(server: Kafka, own_server: RedisServer, tmp_path: Path) -> AsyncIterator[Stage]:
    async with ServiceProcess("--redis", own_server.url) as service, AsyncClient(service.url) as client:
        stage = Stage(server, service, client, tmp_path)
        stage.write()
        yield stage
        await stage.end()


async def test_a_record_that_is_too_large_is_a_dead_letter_and_the_rest_goes_on(stage: Stage) -> None:
    stage.write(max_bytes=10_000)
    await stage.add([{"topic": "jobs", "id": "large", "body": "x" * 20_000}, {"topic": "jobs", "id": "a", "body": 1}])
    await stage.deliver.start()
    await stage.until_none_is_left()
    assert "larger than a record may be" in (await stage.dead())["large"]
    assert [each.headers["jobqueue-id"] for each in await stage.received()] == ["a"]


async def test_records_of_one_customer_go_to_one_partition_in_their_order(stage: Stage, server: Kafka) -> None:
    stage.write(key="{id}", partition_key="{header:customer}", order="strict")
    jobs = [{"id": f"job:{n:02}", "headers": {"customer": f"c{n % 3}"}} for n in range(30)]
    await stage.add([{"topic": "jobs", "body": 1, **job} for job in jobs])
    await stage.deliver.start()
    await stage.until_none_is_left()
    records = await server.records()
    assert {record.key.decode() for record in records} == {job["id"] for job in jobs}
    for customer in ("c0", "c1", "c2"):
        own = [record for record in records if dict(record.headers)["customer"] == customer.encode()]
        assert len({record.partition for record in own}) == 1
        ids = [record.key for record in sorted(own, key=lambda record: record.offset)]
        assert ids == sorted(ids) and len(ids) == 10


async def test_an_address_without_a_broker_is_an_outage(stage: Stage) -> None:
    stage.write(url=f"kafka://127.0.0.1:{free_port()}")
    await stage.add([{"topic": "jobs", "id": "a", "body": 1, "tries": 1}])
    await stage.deliver.start()
    await until(lambda: is_down(stage), within_s=30)
    stage.write()
    stage.deliver.reload()
    await stage.until_none_is_left()
    assert await stage.dead() == {}


async def is_down(stage: Stage) -> bool:
    return bool(stage.deliver.logged("sink.down"))


async def test_check_tells_the_partitions(stage: Stage) -> None:
    assert await stage.check() == 0
    assert "4 partitions" in stage.check_text
