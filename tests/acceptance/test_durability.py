"""Durability from outside: a service, a Redis with a replica, and what the answers report."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from buckets.redis.client import Redis
from tests.buckets.durability.replicas import chain, in_step
from tests.jobqueue.metrics.test_process import values
from tests.kit.redis_server import RedisServer
from tests.kit.service import Client, ServiceProcess
from tests.kit.waiting import until

Serve = Callable[..., Awaitable[tuple[Client, list[RedisServer]]]]


@pytest.fixture
async def serve(tmp_path: Path) -> AsyncIterator[Serve]:
    """Starts a Redis with replicas and a service with these settings; returns a client of it, and the servers."""
    async with AsyncExitStack() as stack:

        async def serve(servers: int, *options: str, **settings: Any) -> tuple[Client, list[RedisServer]]:
            started = stack.enter_context(chain(servers, *options))
            redis = Redis(started[0].url)
            await in_step(redis, replicas=min(servers - 1, 1))
            await redis.close()
            config, virtual = tmp_path / "jobqueue.toml", '[virtual_topics]\nboth = ["u", "v"]\n'
            lines = [f"{name} = {value!r}\n" for name, value in settings.items()]
            config.write_text("".join(lines) + virtual)
            flags = ("--config", str(config), "--redis", started[0].url)
            service = await stack.enter_async_context(ServiceProcess(*flags, log=tmp_path / "log"))
            return await stack.enter_async_context(Client(service.url)), started

        yield serve


def said(answers: list[dict[str, Any]]) -> list[str | None]:
    """The durability that each answer reports; all of them are successes."""
    assert all(answer["success"] for answer in answers), answers
    return [answer.get("durability") for answer in answers]


def add(job_id: str, **fields: Any) -> dict[str, Any]:
    return {"command": "add", "topic": "t", "id": job_id, "body": 1, **fields}


async def test_each_command_that_asks_is_told_and_the_others_are_not(serve: Serve) -> None:
    client, _ = await serve(2)
    replicated = {"durability": "replicated"}
    answers = await client.batch(
        [
            *(add("a"), add("b", **replicated), add("c", durability="local"), add("d", durability="fsynced")),
            {"command": "pop", "topic": "t"},
            {"command": "finish", "id": "a", **replicated},
            {"command": "pop", "topic": "t"},
            {"command": "update", "id": "c", "body": 2, **replicated},
            {"command": "delete", "id": "d", **replicated},
            {"command": "delete", "id": "c"},
            {"command": "add", "topic": "both", "id": "e", "body": 1, **replicated},
            add("f", delay=60, if_exists="reject", **replicated),
        ]
    )
    yes = "replicated"
    assert said(answers) == [None, yes, "local", "local", None, yes, None, yes, yes, None, yes, yes]
    assert [answers[place]["id"] for place in (0, 1, 2, 3, 4, 5, 6)] == ["a", "b", "c", "d", "a", "a", "b"]
    assert [job["id"] for job in answers[10]["jobs"]] == ["e@u", "e@v"]
    refused = await client.ask("delete", id="nobody", **replicated)
    assert (refused["code"], refused.get("durability")) == ("NOT_FOUND", None)
    refused = await client.ask("update", id="b", body=2, **replicated)
    assert (refused["code"], refused.get("durability")) == ("RESERVED", None)


async def test_by_the_setting_all_are_as_durable_and_told_so(serve: Serve) -> None:
    client, servers = await serve(2, durability="replicated", durability_timeout_s=1.0)
    assert said([await client.ask("add", topic="t", id="a", body=1)]) == ["replicated"]
    assert said(await client.batch([add("b"), add("c", durability="local")])) == ["replicated", "local"]
    servers[1].freeze()
    assert said(await client.batch([add("d"), {"command": "update", "id": "d", "priority": 9}])) == ["local", "local"]
    assert said([await client.ask("add", topic="t", id="e", body=1, durability="local")]) == ["local"]
    assert (await client.ask("pop", topic="t"))["id"] == "d"
    servers[1].thaw()

    async def again() -> bool:
        return said([await client.ask("finish", id="d")]) == ["replicated"]

    await until(again)


async def test_a_replica_that_is_missing_holds_up_nobody_else(serve: Serve) -> None:
    client, servers = await serve(2, durability_timeout_s=2.0)
    servers[1].freeze()
    waiting = asyncio.create_task(client.ask("add", topic="t", id="a", body=1, durability="replicated"))
    assert (await client.ask("pop", topic="t", wait=5))["id"] == "a"
    assert (await client.ask("add", topic="t", id="b", body=1))["success"]
    assert not waiting.done()
    servers[1].thaw()
    assert said([await waiting]) == ["replicated"]


async def test_what_was_asked_for_and_reached_is_counted(serve: Serve) -> None:
    client, _ = await serve(2)
    await client.batch([add(f"{n}", durability="replicated") for n in range(7)])
    await client.batch([add("x", durability="fsynced"), add("y")])
    assert client._session
    async with client._session.get(client.url + "/metrics") as response:
        told = values(await response.text())
    assert told["jobqueue_durable_total", "replicated", "replicated"] == 7
    assert told["jobqueue_durable_total", "fsynced", "local"] == 1
    assert told[("jobqueue_fence_duration_seconds_count",)] == 2


async def test_a_service_that_cannot_keep_its_promise_does_not_start(own_server: RedisServer, tmp_path: Path) -> None:
    config = tmp_path / "jobqueue.toml"
    config.write_text('durability = "fsynced"\n')
    service = ServiceProcess("--config", str(config), "--redis", own_server.url, log=tmp_path / "log")
    assert "this Redis keeps no append-only file. Set `appendonly yes`" in await service.refusal()


async def test_a_redis_of_our_own_syncs_before_it_answers_where_that_is_promised(tmp_path: Path) -> None:
    config = tmp_path / "jobqueue.toml"
    config.write_text('durability = "fsynced"\n')
    flags = ("--config", str(config), "--data", str(tmp_path / "data"))
    async with ServiceProcess(*flags, log=tmp_path / "log") as service, Client(service.url) as client:
        assert said([await client.ask("add", topic="t", id="a", body=1)]) == ["fsynced"]
