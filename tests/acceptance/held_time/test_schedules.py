"""Schedules over HTTP: on a test service, whose clock the test advances, and on one that keeps the time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.kit.redis_server import RedisServer
from tests.kit.service import Client, ServiceProcess

pytestmark = pytest.mark.asyncio(loop_scope="module")

MINUTE_S = 60
DAY_S = 86_400


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def _service() -> AsyncIterator[ServiceProcess]:
    async with ServiceProcess("--test", workers=None) as service:
        yield service


@pytest_asyncio.fixture(loop_scope="module")
async def client(_service: ServiceProcess) -> AsyncIterator[Client]:
    """A client of an empty test service."""
    async with Client(_service.url) as client:
        await client.ask("reset")
        yield client


async def schedule(client: Client, name: str = "n", **fields: Any) -> Any:
    answer = await client.ask("schedule", **{"name": name, "topic": "t", "body": {"a": 1}} | fields)
    assert answer["success"], answer
    return answer


async def advance(client: Client, seconds: float) -> float:
    answer = await client.ask("clock", advance=seconds)
    assert answer["success"], answer
    return float(answer["now"])


async def popped(client: Client, topic: str = "t", **fields: Any) -> list[dict[str, Any]]:
    return list((await client.ask("pop", topic=topic, count=1000, **fields))["jobs"])


def ms(seconds: float) -> int:
    return round(seconds * 1000)


async def test_a_job_is_added_each_minute_with_its_time_in_its_id(client: Client) -> None:
    first = (await schedule(client, every=60, tries=3, headers={"h": "v"}, tags=["x"]))["next"]
    await advance(client, 59)
    assert await popped(client) == []
    await advance(client, 3 * MINUTE_S + 1)
    jobs = await popped(client)
    assert [job["id"] for job in jobs] == [f"n@{ms(first) + number * 60_000}" for number in range(4)]
    assert [job["due"] for job in jobs] == pytest.approx([first + number * 60 for number in range(4)])
    assert all((job["value"], job["tries"], job["headers"]) == ({"a": 1}, 3, {"h": "v"}) for job in jobs)
    assert (await client.ask("get", id=jobs[0]["id"]))["tags"] == ["x"]
    (shown,) = (await client.ask("schedules", body=False))["schedules"]
    assert shown["last"] == jobs[-1]["due"] and "value" not in shown


async def test_an_advance_makes_ready_what_it_has_added_itself_a_jitter_later(client: Client) -> None:
    await schedule(client, every=60, jitter=30)
    await advance(client, 20 * MINUTE_S + 30)
    jobs = await popped(client)
    late = [job["due"] - int(job["id"].partition("@")[2]) / 1000 for job in jobs]
    assert len(jobs) == 20 and all(0 <= each <= 30.001 for each in late)


async def test_a_reset_forgets_schedules(client: Client) -> None:
    await schedule(client, every=60)
    await client.ask("reset")
    assert (await client.ask("schedules"))["schedules"] == []
    await advance(client, DAY_S)
    assert await popped(client) == []


async def test_schedules_may_be_defined_and_listed_in_an_array(client: Client) -> None:
    asked = [{"command": "schedule", "name": f"n{at}", "topic": "t", "body": at, "every": 60} for at in range(3)]
    answers = await client.batch([*asked, {"command": "schedules"}, {"command": "unschedule", "name": "n1"}])
    assert [answer.get("result") for answer in answers[:3]] == ["created"] * 3
    assert {each["name"]: each["value"] for each in answers[3]["schedules"]} == {"n0": 0, "n1": 1, "n2": 2}
    assert answers[4]["live"] == 0


async def test_a_service_makes_occurrences_by_itself_for_whoever_waits(redis_server: RedisServer, redis: Any) -> None:
    async with ServiceProcess("--redis", redis_server.url) as service, Client(service.url) as client:
        first = (await schedule(client, every=1))["next"]
        jobs = [await client.ask("pop", topic="t", wait=20) for _ in range(3)]
        assert [job["id"] for job in jobs] == [f"n@{ms(first) + number * 1000}" for number in range(3)]
