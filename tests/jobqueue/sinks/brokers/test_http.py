"""The kind `http`: what answers mean, what is signed, and which addresses are posted to."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from jobqueue_client import AsyncClient
from standardwebhooks import Webhook

from tests.jobqueue.sinks.brokers.stage import Stage
from tests.kit.brokers.http_receiver import HttpReceiver
from tests.kit.redis_server import RedisServer
from tests.kit.service import ServiceProcess
from tests.kit.waiting import until


@pytest.fixture
async def stage(own_server: RedisServer, tmp_path: Path) -> AsyncIterator[Stage]:
    broker = HttpReceiver()
    await broker.start()
    try:
        async with ServiceProcess("--redis", own_server.url) as service, AsyncClient(service.url) as client:
            stage = Stage(broker, service, client, tmp_path)
            yield stage
            await stage.end()
    finally:
        broker.remove()


def at(stage: Stage, path: str) -> dict[str, Any]:
    """The settings for another path of the receiver."""
    assert isinstance(stage.broker, HttpReceiver)
    return {"url": f"http://127.0.0.1:{stage.broker.port}{path}"}


async def is_dead(stage: Stage) -> bool:
    return bool(await stage.dead())


async def test_a_message_is_signed_and_its_id_is_its_key(stage: Stage) -> None:
    secret = "whsec_" + base64.b64encode(bytes(32)).decode()
    stage.write(secret=secret, headers={"authorization": "Bearer x"})
    await stage.add([{"topic": "jobs", "id": "a.1", "body": {"n": 1}}])
    await stage.deliver.start()
    await stage.until_none_is_left()
    (got,) = await stage.received()
    assert Webhook(secret).verify(got.body, got.headers) == {"n": 1}
    assert got.headers["webhook-id"] == got.key.replace(".", "%2E")
    assert (got.headers["authorization"], got.headers["content-type"]) == ("Bearer x", "application/json")


async def test_a_text_travels_as_text(stage: Stage) -> None:
    stage.write(body="text")
    await stage.add([{"topic": "jobs", "id": "a", "body": "é"}, {"topic": "jobs", "id": "b", "body": 1}])
    await stage.deliver.start()
    await stage.until_none_is_left()
    (got,) = await stage.received()
    assert (got.body.decode(), got.headers["content-type"]) == ("é", "text/plain; charset=utf-8")
    assert "is no string" in (await stage.dead())["b"]


async def test_an_envelope_has_all_of_the_job(stage: Stage) -> None:
    stage.write(body="envelope")
    await stage.add_raw([{"topic": "jobs", "id": "a", "headers": {"h": "v"}}], ["1.10"])
    await stage.deliver.start()
    await stage.until_none_is_left()
    (got,) = await stage.received()
    told = got.body.decode()
    assert told.endswith(',"body":1.10}') and told.startswith('{"id":"a","topic":"jobs","due":')
    assert '"attempt":1,"headers":{"h":"v"}' in told


async def test_a_client_error_is_a_dead_letter_and_a_server_error_is_a_try(stage: Stage) -> None:
    stage.write(**at(stage, "/status/422"))
    await stage.add([{"topic": "jobs", "id": "a", "body": 1}])
    await stage.deliver.start()
    await until(lambda: is_dead(stage), within_s=30)
    assert await stage.dead() == {"a": "sink under-test: HTTP 422"}
    stage.write(**at(stage, "/status/503"))
    stage.deliver.reload()
    await until(lambda: has_come_up(stage, 2), within_s=30)
    await stage.add([{"topic": "jobs", "id": "b", "body": 1, "tries": 2, "backoff": [0.1]}])
    await stage.until_none_is_left()
    assert (await stage.dead())["b"] == "sink under-test: HTTP 503"
    assert (await stage.client.get("b"))["attempt"] == 2


async def has_come_up(stage: Stage, times: int) -> bool:
    return len(stage.deliver.logged("sink.up")) >= times


async def test_a_pause_that_the_receiver_asks_for_is_kept(stage: Stage) -> None:
    stage.write(**at(stage, "/status/429?after=3600"))
    await stage.add([{"topic": "jobs", "id": "a", "body": 1}])
    await stage.deliver.start()
    await until(lambda: is_delayed(stage), within_s=30)
    job = await stage.client.get("a")
    assert (job["until"] or 0) - job["created"] > 3_000


async def is_delayed(stage: Stage) -> bool:
    return (await stage.client.get("a"))["state"] == "delayed"


async def test_a_private_address_is_an_outage_unless_it_is_allowed(stage: Stage) -> None:
    stage.write(networks=[])
    await stage.add([{"topic": "jobs", "id": "a", "body": 1, "tries": 1}])
    await stage.deliver.start()
    await until(lambda: is_down(stage), within_s=30)
    assert "is not allowed (see networks)" in stage.deliver.logged("sink.down")[0]["reason"]
    stage.write()
    stage.deliver.reload()
    await stage.until_none_is_left()
    assert await stage.dead() == {}


async def is_down(stage: Stage) -> bool:
    return bool(stage.deliver.logged("sink.down"))
