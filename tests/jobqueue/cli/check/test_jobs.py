"""What `jobqueue check` finds out about the jobs of a running service, and the command that it names."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from buckets.redis.client import Redis
from jobqueue.cli.check import service
from jobqueue.cli.check.service import check_running
from jobqueue.health import jobs as judged
from jobqueue.health.findings import Finding
from tests.kit.service import Client, ServiceProcess
from tests.kit.shell import Shell


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[Client]:
    """Of a service whose topic `small` has limits."""
    config = tmp_path / "jobqueue.toml"
    config.write_text("[topics.small]\nmax_pending = 10\nmax_dead = 1\n")
    async with (
        ServiceProcess("--data", str(tmp_path / "data"), "--config", str(config)) as service,
        Client(service.url) as client,
    ):
        yield client


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not much time between the two looks, and jobs count as late soon."""
    monkeypatch.setattr(service, "_LOOK_S", 0.3)
    monkeypatch.setattr(judged, "_LATE_S", 0.2)
    monkeypatch.setattr(judged, "_ALONE_S", 0.2)


async def warnings(client: Client) -> dict[str, list[str]]:
    """The sentences of the warnings, by subject."""
    found: dict[str, list[str]] = {}
    async for finding in check_running(client.url):
        assert finding.level != "bad"
        if finding.level == "warn":
            found.setdefault(finding.subject, []).append(finding.sentence)
    return found


async def add(client: Client, topic: str, number: int = 1) -> None:
    await client.batch([{"command": "add", "topic": topic, "body": 1} for _ in range(number)])


async def test_a_service_without_trouble_has_no_warning(client: Client) -> None:
    await client.ask("add", topic="t", body=1, delay=60)
    first, *others, last = [finding async for finding in check_running(client.url)]
    assert str(first) == f"ok   service: ready at {client.url}"
    assert str(last) == "ok   jobs: topics: 1; none waits for workers, is full, or has dead letters"
    assert {each.level for each in others} == {"ok"} and {each.subject for each in others} >= {"redis", "access"}


async def test_what_the_service_finds_is_reported_over_its_url(client: Client, tmp_path: Path) -> None:
    """As of a Redis that is full, which lets a service be ready."""
    redis = Redis(f"unix://{tmp_path}/data/redis.sock")
    await redis.read("CONFIG", "SET", "maxmemory-policy", "noeviction", "maxmemory", "1")
    await redis.close()
    found = [finding async for finding in check_running(client.url)]
    assert str(found[0]) == f"ok   service: ready at {client.url}"
    (full,) = [each.sentence for each in found if each.level == "bad" and each.subject == "redis"]
    assert "full" in full and "NO_ROOM" in full


def test_jobs_that_redis_lost_are_for_the_service_to_find() -> None:
    assert not service._is_looked_at_here(Finding("bad", "jobs", "the journal knows 8 live jobs that Redis does not"))
    for subject in ("jobs", "topics", "topic t", "service"):
        assert service._is_looked_at_here(Finding("ok", subject, ""))


async def test_ready_jobs_that_nobody_polls_are_found(client: Client) -> None:
    await add(client, "t", 3)
    (sentence,) = (await warnings(client))["topic t"]
    assert sentence.startswith("no worker polls it; 3 jobs ready, the oldest for 0.")
    assert sentence.endswith(": jobqueue workers t")


def test_where_not_all_workers_are_listed_it_does_not_say_that_nobody_polls() -> None:
    topic = {"topic": "t", "counts": {"ready": 1, "delayed": 0, "dead": 0}, "oldest_ready_s": 9.0}
    topic |= {"paused": False, "workers": 0}
    polling = {"workers": [], "others": {"parked": 3, "jobs": 0}}
    ((level, sentence),) = judged.of_topic(topic | {"oldest_ready_s": 3600.0}, 0.0, polling)
    assert level == "warn" and sentence.startswith("none of the listed workers polls it; 1 job ready")


def test_jobs_that_wait_for_their_keys_are_not_for_a_worker_to_take() -> None:
    counts = {"ready": 9, "delayed": 0, "dead": 0, "reserved": 1}
    topic: dict[str, Any] = {"topic": "t", "counts": counts, "blocked": 9, "oldest_ready_s": None}
    topic |= {"paused": False, "workers": 0}
    polling = {"workers": [], "others": {"parked": 0, "jobs": 0}}
    assert not list(judged.of_topic(topic, 0.0, polling))
    ((_, sentence),) = judged.of_topic(topic | {"blocked": 6, "oldest_ready_s": 3600.0}, 0.0, polling)
    assert "3 jobs ready, the oldest for 1 h (6 more wait for their keys)." in sentence
    limited = topic | {"blocked": 6, "oldest_ready_s": 9.0, "workers": 1}
    ((_, sentence),) = judged.of_topic(limited | {"rate": 0.5}, 0.0, polling)
    assert "so these take 6 s" in sentence


def test_what_keeps_adds_or_deliveries_from_working_now_is_bad() -> None:
    counts = {"ready": 1, "delayed": 9, "dead": 0}
    topic = {"topic": "t", "counts": counts, "oldest_ready_s": 59.0, "paused": False, "workers": 0}
    polling = {"workers": [], "others": {"parked": 0, "jobs": 0}}

    def levels(**other: Any) -> list[str]:
        return [level for level, _ in judged.of_topic(topic | other, 0.0, polling)]

    assert levels() == ["warn"]
    assert levels(oldest_ready_s=60.0) == ["bad"]
    assert levels(oldest_ready_s=60.0, workers=1) == ["warn"]
    assert levels(oldest_ready_s=60.0, paused=True, paused_until=None) == ["warn"]
    assert levels(workers=1, max_pending=11) == ["warn", "warn"]
    assert levels(workers=1, max_pending=10) == ["warn", "bad"]


async def test_jobs_that_wait_for_busy_workers_are_found(client: Client) -> None:
    await add(client, "t", 3)
    await client.ask("pop", topic="t", worker="w", count=2)
    (sentence,) = (await warnings(client))["topic t"]
    assert sentence.startswith("1 job ready, the oldest for 0.")
    assert sentence.endswith("; workers: 1, waiting for a job: 0, with 2 jobs in hand: jobqueue workers t")


async def test_a_paused_topic_with_waiting_jobs_is_found(client: Client) -> None:
    await add(client, "t")
    await client.ask("pause", topic="t")
    await client.ask("pause", topic="empty")
    found = await warnings(client)
    (sentence,) = found["topic t"]
    assert sentence.startswith("paused until it is resumed; 1 job ready") and sentence.endswith(": jobqueue resume t")
    assert list(found) == ["topic t"]


async def test_dead_letters_are_found_with_the_newest_and_its_reason(client: Client) -> None:
    for name in ("older", "newer"):
        await client.ask("add", topic="t", id=name, body=1)
        await client.ask("pop", topic="t")
        await client.ask("bury", id=name, reason=f"because {name}")
    (sentence,) = (await warnings(client))["topic t"]
    assert sentence.startswith("2 dead letters; the newest died ")
    assert sentence.endswith(": newer (buried, because newer): jobqueue peek t --state dead")


async def test_a_backlog_that_grows_is_found(client: Client) -> None:
    await add(client, "t", 2)
    checking = asyncio.create_task(warnings(client))
    while not checking.done():
        await add(client, "t")
        await asyncio.sleep(0.02)
    assert any("the backlog grows, by " in sentence for sentence in (await checking)["topic t"])


async def test_limits_that_are_reached_are_found(client: Client) -> None:
    await add(client, "small")
    await client.ask("bury", id=(await client.ask("pop", topic="small", worker="w"))["id"])
    for _ in range(9):
        await client.ask("add", topic="small", body=1, delay=60)
    found = (await warnings(client))["topic small"]
    assert any(sentence.startswith("9 of at most 10 pending jobs (max_pending)") for sentence in found)
    assert any(sentence.startswith("as many dead letters as it may have (max_dead 1)") for sentence in found)


async def test_the_check_takes_its_service_from_the_environment_or_an_option(client: Client) -> None:
    await add(client, "t")
    await asyncio.sleep(1)  # as long as a job without workers may be ready before it is worth a line
    for ran in (await Shell(client.url).run("check"), await Shell("").run("check", "--url", client.url)):
        assert ran.code == 0
        assert f"ok   service: ready at {client.url}" in ran.out
        assert "warn topic t: no worker polls it" in ran.out


async def test_a_service_that_is_not_there_is_bad_and_its_options_exclude_those_of_serve() -> None:
    shell = Shell("http://127.0.0.1:1")
    ran = await shell.run("check")
    assert (ran.code, ran.out.startswith("bad  service: none is listening at http://127.0.0.1:1")) == (1, True)
    ran = await shell.run("check", "--url", "localhost:8000")
    assert (ran.code, ran.out) == (1, "bad  service: localhost:8000 is not a URL such as http://127.0.0.1:8000\n")
    ran = await shell.run("check", "--url", "http://127.0.0.1:1", "--port", "0")
    assert (ran.code, "--url checks a running service" in ran.err) == (2, True)


def test_a_finding_is_one_line() -> None:
    assert str(Finding("warn", "topic t", "x")) == "warn topic t: x"
