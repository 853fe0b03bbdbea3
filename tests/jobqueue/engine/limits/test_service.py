"""The limits of topics as a service has them: answers, reloads, what it refuses, and a worker that dies."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.kit.ports import free_port
from tests.kit.redis_server import RedisServer
from tests.kit.service import Client, ServiceProcess
from tests.kit.shell import Shell
from tests.kit.waiting import PATIENCE_S, until

POLICIES = """
[topics.calls]
rate = 0.5
[topics.reports]
concurrency = 1
ttr_s = 2.0
"""


class Running:
    """A service with a file of policies, and a way to change it."""

    def __init__(self, service: ServiceProcess, client: Client, file: Path, log: Path) -> None:
        self.service, self.client, self.file, self.log = service, client, file, log

    async def reload(self, text: str, event: str) -> dict[str, Any]:
        """Write the file, send SIGHUP, and wait for the line in the log."""
        before = len(self.events(event))
        self.file.write_text(text)
        self.service.signal(signal.SIGHUP)
        await until(lambda: len(self.events(event)) > before)
        return self.events(event)[-1]

    def events(self, name: str) -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{")]
        return [line for line in lines if line["event"] == name]

    async def add(self, topic: str, *ids: str, **fields: Any) -> None:
        for job_id in ids:
            assert (await self.client.ask("add", topic=topic, id=job_id, body=1, **fields))["success"]


@pytest.fixture
async def running(redis_server: RedisServer, redis: Any, tmp_path: Path) -> AsyncIterator[Running]:
    file, log = tmp_path / "jobqueue.toml", tmp_path / "service.log"
    file.write_text(POLICIES)
    flags = ("--redis", redis_server.url, "--config", str(file))
    async with ServiceProcess(*flags, log=log) as service, Client(service.url) as client:
        yield Running(service, client, file, log)


async def test_an_empty_pop_of_a_limited_topic_says_so(running: Running) -> None:
    await running.add("calls", "a", "b")
    await running.add("reports", "r", "s")
    assert [(await running.client.ask("pop", topics=["calls", "reports"]))["id"] for _ in range(2)] == ["a", "r"]
    empty = await running.client.ask("pop", topic="calls")
    assert (empty["success"], empty["id"], empty["limited"]) == (True, None, "rate")
    assert 0 < empty["retry_after"] <= 2
    several = await running.client.ask("pop", topics=["calls", "reports"], count=3)
    assert several["jobs"] == [] and several["limited"] in ("rate", "concurrency")
    full = await running.client.ask("pop", topic="reports")
    assert (full["limited"], full["retry_after"]) == ("concurrency", 1)
    await running.client.ask("finish", id="r")
    assert (await running.client.ask("pop", topic="reports"))["id"] == "s"
    assert "limited" not in await running.client.ask("pop", topic="reports")  # nothing is kept back


async def test_finish_and_pop_in_one_request_goes_on_where_there_is_one_place(running: Running) -> None:
    await running.add("reports", "r", "s")
    await running.client.ask("pop", topic="reports")
    _, popped = await running.client.batch([{"command": "finish", "id": "r"}, {"command": "pop", "topic": "reports"}])
    assert popped["id"] == "s"


async def test_a_pop_of_one_id_asks_the_limits_too(running: Running) -> None:
    await running.add("calls", "a", "b")
    await running.client.ask("pop", id="a")
    refused = await running.client.ask("pop", id="b")
    assert (refused["success"], refused["id"], refused["limited"]) == (True, None, "rate")
    assert 0 < refused["retry_after"] <= 2
    await running.add("reports", "r", "s")
    await running.client.ask("pop", id="r")
    assert (await running.client.ask("pop", id="s"))["limited"] == "concurrency"


async def test_the_places_of_a_worker_that_died_come_back_when_its_leases_end(running: Running) -> None:
    await running.add("reports", "r", "s")
    assert (await running.client.ask("pop", topic="reports"))["id"] == "r"
    begun = time.monotonic()
    async with asyncio.timeout(PATIENCE_S):
        popped = await running.client.ask("pop", topic="reports", wait=30)
    assert popped["id"] == "s"
    assert 1 < time.monotonic() - begun < 20, "it was the end of the wait that found the job"


async def test_topics_and_explain_show_the_limits(running: Running) -> None:
    await running.add("calls", "a", "b")
    await running.add("reports", "r", "s")
    await running.client.ask("pop", topics=["calls", "reports"], count=3)
    listed = {each["topic"]: each for each in (await running.client.ask("topics"))["topics"]}
    assert (listed["calls"]["rate"], listed["reports"]["concurrency"]) == (0.5, 1)
    assert "concurrency" not in listed["calls"] and "rate" not in listed["reports"]
    calls, reports = [await running.client.ask("explain", id=job_id) for job_id in ("b", "s")]
    assert calls["facts"]["limited"] == "rate"
    assert "Its topic has reached its rate of 0.5 a second, for another " in calls["sentence"]
    assert reports["facts"]["limited"] == "concurrency"
    assert "Its topic has reached its concurrency of 1" in reports["sentence"]
    await running.client.ask("finish", id="r")
    assert "limited" not in (await running.client.ask("explain", id="s"))["facts"]


async def test_the_metrics_count_pops_that_a_limit_stopped(running: Running) -> None:
    await running.add("calls", "a", "b")
    for _ in range(3):
        await running.client.ask("pop", topic="calls")
    assert await running.service.figure('jobqueue_limited_pops_total{limit="rate",topic="calls"}') == 3


async def test_a_reload_lets_other_limits_hold_at_once_for_pops_that_wait_too(running: Running) -> None:
    await running.add("calls", "a", "b", "c")
    await running.client.ask("pop", topic="calls")
    await running.reload("[topics.calls]\nrate = 0.001\n", "settings.reloaded")
    waiting = asyncio.create_task(running.client.ask("pop", topic="calls", wait=30))
    await until(lambda: running.service.parked(1))
    await running.reload("", "settings.reloaded")
    async with asyncio.timeout(PATIENCE_S):
        assert (await waiting)["id"] == "b"
    assert (await running.client.ask("pop", topic="calls"))["id"] == "c"


@pytest.mark.parametrize("workers", [1, 2])
async def test_concurrency_over_several_shards_is_refused_by_name(
    redis_server: RedisServer, redis: Any, tmp_path: Path, workers: int
) -> None:
    file, log = tmp_path / "jobqueue.toml", tmp_path / "service.log"
    flags = ("--redis", redis_server.url, "--config", str(file))
    file.write_text(f"shards = 3\n{POLICIES}")
    refused = await ServiceProcess(*flags, log=log, workers=workers).refusal()
    assert "topics.reports.concurrency needs a namespace of one shard" in refused and "this one has 3" in refused
    file.write_text("shards = 3\n[topics.calls]\nrate = 50\n")
    async with ServiceProcess(*flags, log=log, workers=workers) as service, Client(service.url) as client:
        running = Running(service, client, file, log)
        await until(lambda: len(running.events("service.started")) == 1)
        event = await running.reload(f"shards = 3\n{POLICIES}", "settings.refused")
        assert "topics.reports.concurrency" in event["error"]
        await running.add("calls", *map(str, range(9)))
        popped = [await client.ask("pop", topic="calls", wait=30) for _ in range(3)]
        assert all(each["id"] for each in popped)  # the rate is as it was, and no concurrency keeps them back


async def test_an_advance_of_the_clock_of_a_test_service_opens_the_rate(tmp_path: Path) -> None:
    file = tmp_path / "jobqueue.toml"
    file.write_text("[topics.calls]\nrate = 0.01\n")
    async with ServiceProcess("--test", "--config", str(file), workers=None) as service, Client(service.url) as client:
        for job_id in "abc":
            await client.ask("add", topic="calls", id=job_id, body=1)
        assert (await client.ask("pop", topic="calls"))["id"] == "a"
        assert (await client.ask("pop", topic="calls"))["limited"] == "rate"
        waiting = asyncio.create_task(client.ask("pop", topic="calls", wait=30))
        await until(lambda: service.parked(1))
        await client.ask("clock", advance=100)
        assert (await waiting)["id"] == "b"
        await client.ask("reset")
        await client.ask("add", topic="calls", id="d", body=1)
        assert (await client.ask("pop", topic="calls"))["id"] == "d"


async def test_a_terminal_says_why_nothing_is_popped(running: Running) -> None:
    await running.add("reports", "r", "s")
    await running.client.ask("pop", topic="reports", ttr=60)
    async with Shell(running.service.url).terminal("pop", "reports") as terminal:
        said = "nothing may be popped now; the concurrency of the topic is reached\n"
        assert (await terminal.end(), terminal.text) == (4, said)
    await running.reload(POLICIES.replace("0.5", "0.001"), "settings.reloaded")
    await running.add("calls", "a", "b")
    await running.client.ask("pop", topic="calls")
    async with Shell(running.service.url).terminal("pop", "calls") as terminal:
        await terminal.end()
        assert terminal.text.startswith("nothing may be popped now; the rate of the topic is reached; ask again in ")
    await running.add("others", "k", "l", key="7")
    await running.client.ask("pop", id="k", ttr=60)
    async with Shell(running.service.url).terminal("pop", "--id", "l") as terminal:
        said = "nothing may be popped now; the limit of its key is reached\n"
        assert (await terminal.end(), terminal.text) == (4, said)


async def test_check_names_the_limit_that_jobs_wait_for(running: Running) -> None:
    await running.add("reports", "r", "s")
    await running.client.ask("pop", topic="reports", ttr=600, worker="w")
    waiting = asyncio.create_task(running.client.ask("pop", topic="reports", wait=60, worker="w"))

    async def waits() -> bool:
        (topic,) = (await running.client.ask("topics"))["topics"]
        return bool(topic["oldest_ready_s"] > 5 and topic["workers"])

    await until(waits, 20)
    checked = await Shell(running.service.url).run("check", "--url", running.service.url)
    assert "; as many are reserved as may be (concurrency 1). " in checked.out
    await running.client.ask("finish", id="r")
    assert (await waiting)["id"] == "s"


async def test_limits_hold_for_other_protocols_too(redis_server: RedisServer, redis: Any, tmp_path: Path) -> None:
    file, port = tmp_path / "jobqueue.toml", free_port()
    file.write_text(f"{POLICIES}[protocols.beanstalkd]\nport = {port}\n")
    async with ServiceProcess("--redis", redis_server.url, "--config", str(file)):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)

        async def ask(line: str) -> bytes:
            writer.write(f"{line}\r\n".encode())
            return await reader.readline()

        await ask("use reports")
        await ask("watch reports")
        first, second = [int((await ask("put 0 0 60 1\r\nx")).split()[1]) for _ in range(2)]
        assert await ask("reserve-with-timeout 0") == f"RESERVED {first} 1\r\n".encode()
        await reader.readline()  # its body
        assert await ask("reserve-with-timeout 0") == b"TIMED_OUT\r\n"
        assert await ask(f"reserve-job {second}") == b"NOT_FOUND\r\n"
        await ask(f"delete {first}")
        assert await ask(f"reserve-job {second}") == f"RESERVED {second} 1\r\n".encode()
        writer.close()
