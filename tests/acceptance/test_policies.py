"""Policies, virtual topics and their reload, from outside."""

from __future__ import annotations

import json
import re
import signal
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from buckets.redis.client import Redis
from tests.acceptance.conftest import wipe
from tests.kit.redis_server import RedisServer
from tests.kit.service import Client, ServiceProcess
from tests.kit.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

POLICIES = """
idle_topic_s = 0.2
[topics.poll]
ttr_s = 30
tries = 2
backoff_s = [15, 30]
ttl_s = 900
retention_s = 5
priority = 7
max_pending = 2
[virtual_topics]
paid = ["invoice", "poll"]
"""


class Running:
    """A service with a file of policies, and a way to change it."""

    def __init__(self, service: ServiceProcess, client: Client, file: Path, log: Path, redis_url: str) -> None:
        self.service, self.client, self.file, self.log, self.redis_url = service, client, file, log, redis_url

    async def reload(self, text: str, event: str) -> dict[str, Any]:
        """Write the file, send SIGHUP, and wait for the line in the log."""
        before = len(self.events(event))
        self.file.write_text(text)
        self.service.signal(signal.SIGHUP)
        await until(lambda: len(self.events(event)) > before)
        return self.events(event)[-1]

    def events(self, name: str) -> list[dict[str, Any]]:
        lines = map(json.loads, self.log.read_text().splitlines())
        return [line for line in lines if line["event"] == name]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def _shared() -> AsyncIterator[Running]:
    with tempfile.TemporaryDirectory(prefix="jq-") as name, RedisServer(Path(name)) as redis:
        file, log = Path(name) / "jobqueue.toml", Path(name) / "service.log"
        file.write_text(POLICIES)
        flags = ("--redis", redis.url, "--config", str(file))
        async with ServiceProcess(*flags, log=log) as service, Client(service.url) as client:
            yield Running(service, client, file, log, redis.url)


@pytest_asyncio.fixture(loop_scope="module")
async def running(_shared: Running) -> Running:
    """The service that the tests share, with the policies that it began with, and nothing in its namespace."""
    if _shared.file.read_text() != POLICIES:
        await _shared.reload(POLICIES, "settings.reloaded")
    await wipe(_shared.redis_url)
    return _shared


async def test_a_policy_fills_in_what_an_add_leaves_out(running: Running) -> None:
    await running.client.ask("add", topic="poll", id="a", body=1)
    await running.client.ask("add", topic="poll", id="b", body=1, ttr=5, tries=9, backoff=[1], priority=0, retention=1)
    await running.client.ask("add", topic="other", id="c", body=1)
    fields = ("ttr", "tries", "backoff", "ttl", "retention", "priority")
    a, b, c = [await running.client.ask("get", id=job_id) for job_id in "abc"]
    assert [a[field] for field in fields] == [30, 2, [15, 30], 900, 5, 7]
    assert [b[field] for field in fields] == [5, 9, [1], 900, 1, 0]
    assert [c[field] for field in fields] == [60, 16, [], None, 60, 4]


async def test_the_default_back_off_holds_for_releases_and_is_reloaded(running: Running) -> None:
    async def wait_after_release(job_id: str, stored: list[float], **fields: Any) -> float:
        await running.client.ask("add", topic="other", id=job_id, body=1, **fields)
        popped = await running.client.ask("pop", topic="other")
        released = await running.client.ask("release", id=job_id, lease=popped["lease"])
        assert (await running.client.ask("get", id=job_id))["backoff"] == stored
        await running.client.ask("delete", id=job_id)
        return float(released["due"] - popped["lease"] / 1e6)

    assert 1 <= await wait_after_release("a", []) < 60
    assert await wait_after_release("b", [0], backoff=[]) < 1
    await running.reload(POLICIES + "[topics.other]\nbackoff_s = []\n", "settings.reloaded")
    assert await wait_after_release("c", [0]) < 1
    assert await wait_after_release("d", [600], backoff=[600]) >= 600
    await running.reload("default_backoff_s = [1000]\n" + POLICIES, "settings.reloaded")
    assert 1000 <= await wait_after_release("e", []) < 1160


async def test_a_full_topic_answers_429_and_when_to_ask_again(running: Running) -> None:
    told = await running.client.batch([{"command": "add", "topic": "poll", "body": number} for number in range(3)])
    assert [each["success"] for each in told] == [True, True, False]
    assert (told[2]["code"], told[2]["retry_after"]) == ("TOPIC_FULL", 1)
    data = json.dumps({"command": "add", "topic": "poll", "body": 1})
    async with (
        aiohttp.ClientSession() as session,
        session.post(running.service.url + "/command", data=data) as response,
    ):
        assert (response.status, response.headers["Retry-After"]) == (429, "1")
    await running.client.ask("pop", topic="poll")
    assert (await running.client.ask("add", topic="poll", body=1))["success"]


async def test_an_add_to_a_virtual_topic_becomes_a_job_in_each_of_its_topics(running: Running) -> None:
    added = await running.client.ask("add", topic="paid", id="paid:1", body={"n": 1}, delay=0)
    assert (added["success"], added["id"], added["topic"]) == (True, "paid:1", "paid")
    assert [(job["id"], job["topic"], job["state"], job["result"]) for job in added["jobs"]] == [
        ("paid:1@invoice", "invoice", "ready", "created"),
        ("paid:1@poll", "poll", "ready", "created"),
    ]
    again = await running.client.ask("add", topic="paid", id="paid:1", body={"n": 1})
    assert [job["result"] for job in again["jobs"]] == ["existing", "existing"]
    for topic, ttr in (("invoice", 60), ("poll", 30)):  # each with the policy of its own topic
        popped = await running.client.ask("pop", topic=topic)
        assert (popped["id"], popped["value"], popped["ttr"]) == (f"paid:1@{topic}", {"n": 1}, ttr)
    assert (await running.client.ask("pop", topic="paid"))["id"] is None


async def test_what_was_deleted_of_a_virtual_add_stays_so_and_all_of_it_is_refused(running: Running) -> None:
    await running.client.ask("add", topic="paid", id="paid:1", body=1)
    await running.client.ask("delete", id="paid:1@invoice")
    again = await running.client.ask("add", topic="paid", id="paid:1", body=1)
    assert [(job["result"], job["state"]) for job in again["jobs"]] == [("cancelled", "deleted"), ("existing", "ready")]
    await running.client.ask("delete", id="paid:1@poll")
    refused = await running.client.ask("add", topic="paid", id="paid:1", body=1)
    assert (refused["id"], refused["code"], refused["state"]) == ("paid:1", "ALREADY_EXISTS", "deleted")
    renewed = await running.client.ask("add", topic="paid", id="paid:1", body=1, if_exists="renew")
    assert [job["result"] for job in renewed["jobs"]] == ["replaced", "replaced"]


async def test_a_virtual_add_moves_all_its_jobs_which_share_the_moment_of_its_id(running: Running) -> None:
    async def add(**fields: Any) -> list[dict[str, Any]]:
        answer = await running.client.ask("add", topic="paid", id="paid:1", spread=60, if_exists="later", **fields)
        jobs: list[dict[str, Any]] = answer["jobs"]
        assert len({job["due"] for job in jobs}) == 1
        return jobs

    assert [job["result"] for job in await add(delay=600, body=1)] == ["created", "created"]
    assert [job["result"] for job in await add(delay=900)] == ["moved", "moved"]
    assert [job["result"] for job in await add(delay=800)] == ["existing", "existing"]
    await running.client.ask("run", id="paid:1@poll")
    refused = await running.client.ask("add", topic="paid", id="paid:1", delay=999, if_exists="later")
    assert (refused["code"], refused["state"]) == ("TOO_LATE", "ready")
    assert (await running.client.ask("pop", topic="poll"))["value"] == 1


async def test_a_virtual_add_without_an_id_gets_one_for_all_its_jobs(running: Running) -> None:
    added = await running.client.ask("add", topic="paid", body=1)
    assert [job["id"] for job in added["jobs"]] == [f"{added['id']}@invoice", f"{added['id']}@poll"]


async def test_a_virtual_add_is_refused_whole(running: Running) -> None:
    for number in range(2):
        await running.client.ask("add", topic="poll", id=f"p{number}", body=1)
    full = await running.client.ask("add", topic="paid", id="paid:1", body=1)
    assert (full["success"], full["code"], full["id"]) == (False, "TOPIC_FULL", "paid:1")
    assert full["error"].endswith("(it is poll)")
    assert "state" not in full
    assert (await running.client.ask("get", id="paid:1@invoice"))["code"] == "NOT_FOUND"
    long = await running.client.ask("add", topic="paid", id="x" * 250, body=1)
    assert (long["code"], long["field"]) == ("BAD_FIELD", "id")


async def test_single_and_virtual_adds_stand_in_one_array_in_their_order(running: Running) -> None:
    commands = [
        {"command": "add", "topic": "other", "id": "x", "body": 1},
        {"command": "add", "topic": "paid", "id": "y", "body": 2},
        {"command": "add", "topic": "paid", "id": "z" * 255, "body": 3},
        {"command": "add", "topic": "other", "id": "x", "body": 4, "if_exists": "reject"},
    ]
    told = await running.client.batch(commands)
    assert [each.get("code") for each in told] == [None, None, "BAD_FIELD", "ALREADY_EXISTS"]
    assert [each["id"] for each in told] == ["x", "y", "z" * 255, "x"]


async def test_sighup_lets_other_policies_hold_at_once(running: Running) -> None:
    event = await running.reload(
        'port = 1\n[topics.poll]\ntries = 5\n[virtual_topics]\nall = ["x", "y"]\n', "settings.reloaded"
    )
    assert event["need_a_restart"] == ["idle_topic_s"]  # here the port is a flag, which takes precedence
    await running.client.ask("add", topic="poll", id="a", body=1)
    assert (await running.client.ask("get", id="a"))["tries"] == 5
    assert "jobs" not in await running.client.ask("add", topic="paid", id="b", body=1)
    assert len((await running.client.ask("add", topic="all", id="c", body=1))["jobs"]) == 2


async def test_a_reload_tells_what_changed_since_the_one_before(running: Running) -> None:
    event = await running.reload("idle_topic_s = 0.3\n[topics.poll]\ntries = 5\n", "settings.reloaded")
    assert event["changed"] == ["idle_topic_s", "topics", "virtual_topics"]
    event = await running.reload(POLICIES.replace("0.2", "0.3"), "settings.reloaded")
    assert event["changed"] == ["topics", "virtual_topics"]
    assert event["need_a_restart"] == ["idle_topic_s"]  # still


async def test_a_bad_file_keeps_the_old_policy_and_says_what_is_wrong(running: Running) -> None:
    for text, words in (
        ("[topics.poll]\ntries = -1\n", "topics.poll.tries in the file"),
        ("[topics\n", "is not TOML"),
        ("topcis = {}\n", "did you mean topics?"),
    ):
        event = await running.reload(text, "settings.refused")
        assert words in event["error"]
    await running.client.ask("add", topic="poll", id="a", body=1)
    assert (await running.client.ask("get", id="a"))["tries"] == 2


async def test_without_a_file_a_closed_terminal_stops_the_service_in_order(
    redis_server: RedisServer, redis: Any
) -> None:
    async with ServiceProcess("--redis", redis_server.url) as service:
        service.signal(signal.SIGHUP)
        assert service.process
        assert await service.process.wait() == 0


async def test_a_drained_namespace_leaves_nothing_behind(running: Running) -> None:
    redis = Redis(running.redis_url)
    for number in range(20):
        await running.client.ask("add", topic=f"t{number}", id=f"j{number}", body=1, delay=number % 2, retention=0)
        await running.client.ask("delete", id=f"j{number}")

    async def drained() -> bool:
        names = await redis.read("KEYS", "*")
        # A reload before this test may be noted among the actions only now, and its pops be reported.
        there = {name for name in names if not re.search(rb":lock:|:f:|:figured$|:actions$|:w:", name)}
        return there == {b"{jq:0}:meta", b"{jq:0}:roll", b"{jq:0}:cards"}

    await until(drained)
    await redis.close()
