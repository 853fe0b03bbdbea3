"""`GET /metrics` of real services: what was done is what is counted."""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from buckets.events.switch import stream_key, switch_on
from buckets.namespace import Switch
from buckets.redis.client import Redis
from buckets.shards import Shards
from jobqueue import __version__
from tests.jobqueue.metrics.test_process import Values, values
from tests.kit.redis_server import RedisServer
from tests.kit.service import Client, ServiceProcess
from tests.kit.waiting import until

READY = "jobqueue_due_to_ready_seconds_count"
DELIVERED = "jobqueue_due_to_delivered_seconds_count"


@pytest.fixture
async def client(redis_server: RedisServer, redis: Any) -> AsyncIterator[Client]:
    """A client of a service on the tests' own Redis, which is empty."""
    async with ServiceProcess("--redis", redis_server.url) as service, Client(service.url) as client:
        yield client


async def scrape(url: str) -> str:
    async with aiohttp.ClientSession() as session, session.get(url + "/metrics") as response:
        assert response.status == 200
        assert response.headers["Content-Type"].startswith("text/plain; version=")
        return await response.text()


async def told(url: str) -> Values:
    return values(await scrape(url))


def part(all_values: Values, name: str) -> dict[tuple[str, ...], float]:
    """The samples of one name."""
    return {key[1:]: value for key, value in all_values.items() if key[0] == name}


def command(name: str, **fields: Any) -> bytes:
    return json.dumps({"command": name, **fields}).encode()


async def test_every_command_and_refusal_is_counted_by_its_code(client: Client) -> None:
    await client.ask("add", topic="t", id="a", body=1)
    await client.ask("add", topic="t", id="a", body=1, if_exists="reject")
    await client.ask("add", topic="t t", id="b", body=1)
    await client.batch(
        [
            *({"command": "add", "topic": "t", "id": f"n{n}", "body": 1} for n in range(5)),
            {"command": "add", "topic": "t"},
            {"command": "pop", "topic": "t", "count": 3},
            {"command": "pop", "topic": "nothing", "wait": 0.01},
        ]
    )
    await client.ask("finish", id="a", lease=1)
    await client.ask("finish", id="a")
    await client.ask("finish", id="nobody")
    await client.ask("get", id="nobody")
    await client.ask("fnish", id="a")
    for data in (b"{", b"", b"\xff", b"[]"):
        await client.post(data)
    all_values = await told(client.url)
    assert part(all_values, "jobqueue_commands_total") == {
        ("OK", "add", "native"): 6,
        ("ALREADY_EXISTS", "add", "native"): 1,
        ("BAD_FIELD", "unreadable", "native"): 2,
        ("OK", "pop", "native"): 2,
        ("STALE_LEASE", "finish", "native"): 1,
        ("OK", "finish", "native"): 1,
        ("NOT_FOUND", "finish", "native"): 1,
        ("NOT_FOUND", "get", "native"): 1,
        ("UNKNOWN_COMMAND", "unreadable", "native"): 1,
        ("BAD_JSON", "unreadable", "native"): 3,
        ("TOO_MANY", "unreadable", "native"): 1,
    }
    assert part(all_values, "jobqueue_command_duration_seconds_count") == {
        ("add", "native"): 7,
        ("pop", "native"): 1,
        ("pop_waiting", "native"): 1,
        ("finish", "native"): 3,
        ("get", "native"): 1,
    }
    assert part(all_values, "jobqueue_redis_errors_total") == {("NO_ROOM",): 0}


async def test_lateness_is_counted_once_a_job_and_never_below_what_it_was(client: Client) -> None:
    await client.batch([{"command": "add", "topic": "t", "delay": 0.05 + n / 500, "body": n} for n in range(40)])
    await client.batch([{"command": "add", "topic": "u", "body": n} for n in range(10)])
    popped: list[Any] = []
    while len(popped) < 50:
        popped += (await client.ask("pop", topics=["t", "u"], count=50, wait=5, ttr=4))["jobs"]
    all_values = await told(client.url)
    assert part(all_values, READY) == {("t",): 40}
    assert part(all_values, DELIVERED) == {("t",): 40, ("u",): 10}
    late = sum(job["lease"] / 1e6 - job["due"] for job in popped if job["topic"] == "t")
    assert all_values["jobqueue_due_to_delivered_seconds_sum", "t"] == pytest.approx(late, abs=1e-4)
    assert 0 < all_values["jobqueue_due_to_ready_seconds_sum", "t"] <= late

    while len(popped) < 100:  # all leases run out, and all jobs are delivered again
        popped += (await client.ask("pop", topics=["t", "u"], count=50, wait=5, ttr=60))["jobs"]
    all_values = await told(client.url)
    assert part(all_values, READY) == {("t",): 80, ("u",): 10}
    assert part(all_values, DELIVERED) == {("t",): 40, ("u",): 10}
    assert all_values["jobqueue_timer_moves_total",] == 90


async def test_jobs_and_totals_are_those_of_redis(client: Client) -> None:
    await client.batch(
        [{"command": "add", "topic": "t", "id": str(n), "delay": 60 * (n > 5), "body": n} for n in range(9)]
    )
    await client.ask("pop", topic="t", count=4)
    await client.ask("finish", id="0")
    await client.ask("bury", id="1")
    await client.ask("delete", id="8")
    await client.ask("add", topic="t", id="7", body=1, delay=60, if_exists="replace")
    all_values = await told(client.url)
    assert part(all_values, "jobqueue_jobs") == {
        ("delayed", "t"): 2, ("ready", "t"): 2, ("reserved", "t"): 2, ("dead", "t"): 1,
    }  # fmt: skip
    assert part(all_values, "jobqueue_job_events_total") == {
        ("created", "t"): 9, ("replaced", "t"): 1, ("delivered", "t"): 4, ("finished", "t"): 1, ("deleted", "t"): 2,
        ("died_buried", "t"): 1,
    }  # fmt: skip
    assert 0 <= all_values["jobqueue_oldest_ready_age_seconds", "t"] < 60


async def test_a_parked_pop_counts_once_whatever_its_topics(client: Client) -> None:
    popping = asyncio.create_task(client.ask("pop", topics=["t", "u", "v"], wait=30))

    async def parked() -> bool:
        return (await told(client.url))["jobqueue_parked_pops",] == 1

    await until(parked)
    await client.ask("add", topic="v", id="a", body=1)
    assert (await popping)["id"] == "a"
    assert (await told(client.url))["jobqueue_parked_pops",] == 0


async def test_a_topic_has_its_pause_and_the_number_of_workers_that_poll_it(client: Client) -> None:
    for name in ("t", "u"):
        await client.ask("add", topic=name, body=1, delay=60)
        await client.ask("pop", topics=[name, "t"], worker=name)
    await client.ask("pause", topic="u")
    all_values = await told(client.url)
    assert part(all_values, "jobqueue_topic_paused") == {("t",): 0, ("u",): 1}
    assert part(all_values, "jobqueue_polling_workers") == {("t",): 2, ("u",): 1}


async def test_a_topic_has_the_workers_that_take_no_jobs_and_the_age_of_its_oldest_dead_letter(
    client: Client, redis: Redis
) -> None:
    await client.ask("pop", topic="t", worker="w", wait=0)
    await client.ask("pop", topic="t", worker="sink", wait=0, blocked="sink x: connection refused")
    for number in range(2):
        await client.ask("add", topic="t", id=f"{number}", body=1)
        await client.ask("bury", id=(await client.ask("pop", topic="t", worker="w"))["id"])
    await redis.read("ZADD", "{jq:0}:d:t", int(time.time() - 3600) * 1000, "0")

    async def is_told() -> bool:
        all_values = await told(client.url)
        oldest_s = part(all_values, "jobqueue_oldest_dead_age_seconds")["t",]
        blocked, polling = (part(all_values, f"jobqueue_{each}_workers").get(("t",)) for each in ("blocked", "polling"))
        return 3600 <= oldest_s < 3700 and (blocked, polling) == (1, 2)

    await until(is_told)
    await client.ask("delete", id="0")
    assert part(await told(client.url), "jobqueue_oldest_dead_age_seconds")["t",] < 3600


async def test_the_memory_of_redis_and_its_limit_are_there(own_server: RedisServer) -> None:
    async with ServiceProcess("--redis", own_server.url) as service:
        assert list(part(await told(service.url), "jobqueue_redis_memory_max_bytes").values()) == [0]
        redis = Redis(own_server.url)
        await redis.read("CONFIG", "SET", "maxmemory", str(64 << 20))
        await redis.close()
        all_values = await told(service.url)
    (used,), (most,) = (part(all_values, f"jobqueue_redis_memory_{each}_bytes").values() for each in ("used", "max"))
    assert 0 < used < most == 64 << 20


async def test_the_streams_of_events_have_their_bytes_where_they_are_on(
    redis_server: RedisServer, redis: Redis
) -> None:
    shards = await Shards.open(redis, shards=2)
    async with ServiceProcess("--redis", redis_server.url) as service:
        assert part(await told(service.url), "jobqueue_journal_stream_bytes") == {}
    for shard in range(2):
        await switch_on(shards, shard, Switch(1_000))
    await redis.read("XADD", stream_key(shards, 1), "*", "m", "x" * 100_000)
    async with ServiceProcess("--redis", redis_server.url) as service:
        figures = part(await told(service.url), "jobqueue_journal_stream_bytes")
    assert figures.keys() == {("0",), ("1",)}
    assert 0 < figures["0",] < 100_000 <= figures["1",] < 200_000


async def test_occurrences_are_counted_by_what_became_of_them(client: Client) -> None:
    await client.ask("schedule", name="s", topic="t", every=1, body=1)
    await client.ask("schedule", name="once", topic="u", every=1, overlap="skip", body=1)
    await client.ask("schedule", name="paused", topic="t", every=1, paused=True, body=1)

    async def both_came_twice() -> bool:
        counted = part(await told(client.url), "jobqueue_occurrences_total")
        return counted.get(("made", "t"), 0) >= 2 and counted.get(("skipped", "u"), 0) >= 1

    await until(both_came_twice, every_s=0.1)
    all_values = await told(client.url)
    assert all_values["jobqueue_occurrences_total", "made", "u"] == 1
    assert all_values["jobqueue_schedules",] == 3
    popped = (await client.ask("pop", topic="t", count=100))["jobs"]
    assert len(popped) == part(await told(client.url), "jobqueue_occurrences_total")["made", "t"]


async def test_adds_that_come_together_share_a_script(client: Client) -> None:
    await asyncio.gather(*(client.ask("add", topic="t", body=n) for n in range(200)))
    all_values = await told(client.url)
    calls = part(all_values, "jobqueue_redis_calls_total")
    assert 1 <= calls["add",] <= 150
    assert all_values["jobqueue_redis_commands_per_write_sum",] >= sum(calls.values())
    assert (
        all_values["jobqueue_redis_commands_per_write_count",] <= all_values["jobqueue_redis_commands_per_write_sum",]
    )


async def test_the_version_is_that_of_the_package(client: Client) -> None:
    assert part(await told(client.url), "jobqueue_build_info") == {(__version__,): 1}


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not on PATH (Debian: prometheus)")
async def test_promtool_finds_nothing_to_say_against_it(client: Client) -> None:
    await client.batch([{"command": "add", "topic": topic, "delay": 0.01, "body": 1} for topic in ("t", "u")])
    for topic in ("t", "u"):
        await client.ask("pop", topic=topic, wait=5)
    await client.post(b"{")
    text = (await scrape(client.url)).encode()
    lint = await asyncio.create_subprocess_exec(
        *("promtool", "check", "metrics"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await lint.communicate(text)
    assert (lint.returncode, said.decode()) == (0, "")


async def test_a_scrape_while_redis_is_away_answers_soon_and_says_so(own_server: RedisServer, tmp_path: Path) -> None:
    (tmp_path / "jobqueue.toml").write_text("redis_timeout_s = 60")
    flags = ("--redis", own_server.url, "--config", str(tmp_path / "jobqueue.toml"))
    async with ServiceProcess(*flags) as service, Client(service.url) as client:
        await client.ask("add", topic="t", body=1)
        own_server.freeze()
        begun = time.monotonic()
        all_values = await told(service.url)
        assert time.monotonic() - begun < 30, "it waited for Redis"
        assert all_values["jobqueue_redis_up",] == 0
        assert all_values["jobqueue_commands_total", "OK", "add", "native"] == 1
        assert part(all_values, "jobqueue_jobs") == {}
        own_server.thaw()

        async def up() -> bool:
            return (await told(service.url))["jobqueue_redis_up",] == 1

        await until(up)
        assert (await told(service.url))["jobqueue_jobs", "ready", "t"] == 1


async def test_commands_that_follow_one_that_redis_did_not_answer_are_counted_but_took_no_time(
    own_server: RedisServer, tmp_path: Path
) -> None:
    config = tmp_path / "jobqueue.toml"
    config.write_text("redis_timeout_s = 0.3\nmax_request_bytes = 1024\n")
    flags = ("--redis", own_server.url, "--config", str(config))
    async with ServiceProcess(*flags) as service, Client(service.url) as client:
        await client.ask("get", id="x" * 2000)
        own_server.freeze()
        await client.batch([*({"command": "get", "id": each} for each in "abc"), {"command": "git"}])
        all_values = await told(service.url)
        own_server.thaw()
        assert part(all_values, "jobqueue_commands_total") == {
            ("TOO_LARGE", "unreadable", "native"): 1, ("UNAVAILABLE", "get", "native"): 3,
            ("UNKNOWN_COMMAND", "unreadable", "native"): 1,
        }  # fmt: skip
        assert part(all_values, "jobqueue_command_duration_seconds_count") == {("get", "native"): 1}
        assert all_values["jobqueue_redis_errors_total", "UNAVAILABLE"] >= 2


async def test_the_number_of_topics_with_figures_of_their_own_is_a_setting(
    redis_server: RedisServer, redis: Any, tmp_path: Path
) -> None:
    config = tmp_path / "jobqueue.toml"
    config.write_text("metrics_topics = 2\n")
    flags = ("--redis", redis_server.url, "--config", str(config))
    async with ServiceProcess(*flags) as service, Client(service.url) as client:
        await client.batch([{"command": "add", "topic": f"t{n}", "body": 1} for n in range(300)])
        jobs = part(await told(service.url), "jobqueue_jobs")
        assert len({topic for _, topic in jobs}) == 3
        assert jobs["ready", "other"] == 298
        assert sum(jobs.values()) == 300


async def test_processes_that_share_a_folder_each_answer_with_the_sum_of_all(
    redis_server: RedisServer, redis: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(tmp_path / "shared"))
    one, two = (ServiceProcess("--redis", redis_server.url) for _ in range(2))
    async with one, two, Client(one.url) as first, Client(two.url) as second:
        for number in range(7):
            await first.ask("add", topic="t", body=number, delay=0.01)
        for _ in range(7):
            assert (await second.ask("pop", topic="t", wait=5, ttr=0))["id"]
        await second.ask("get", id="nobody")

        async def summed(url: str, locks: float) -> bool:
            all_values = await told(url)
            counts = part(all_values, "jobqueue_commands_total")
            return (
                counts == {("OK", "add", "native"): 7, ("OK", "pop", "native"): 7, ("NOT_FOUND", "get", "native"): 1}
                and part(all_values, READY) == part(all_values, DELIVERED) == {("t",): 7}
                and all_values["jobqueue_jobs", "ready", "t"] == 0
                and all_values["jobqueue_locks_held",] == locks
            )

        for url in (one.url, two.url):
            await until(lambda url=url: summed(url, 8))  # type: ignore[misc]
        await one.kill()
        await until(lambda: summed(two.url, 8))  # its locks are the other's now, its counts stay
        assert await two.stop() == 0
        assert list((tmp_path / "shared").glob("gauge_live*")) == []


async def test_a_folder_to_share_in_that_cannot_be_made_is_refused_in_words(
    redis_server: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(tmp_path / "file" / "shared"))
    said = await ServiceProcess("--redis", redis_server.url, log=tmp_path / "log").refusal()
    assert "PROMETHEUS_MULTIPROC_DIR cannot be used as the folder for metrics" in said
