"""`jobqueue check`: what it finds on real Redis servers, and that it changes nothing."""

from __future__ import annotations

import asyncio
import encodings.idna  # noqa: F401 - a test leaves Python no path to load it from when a host is resolved
import os
import re
import tempfile
from pathlib import Path
from typing import Any

import pytest

from buckets import Pool, Redis
from jobqueue.cli.check.check import check
from jobqueue.health.findings import Finding
from jobqueue.workers.cores import usable
from tests.kit.ports import free_port
from tests.kit.redis_server import RedisServer
from tests.kit.service import ServiceProcess
from tests.kit.shell import Shell


@pytest.fixture(autouse=True)
def no_settings_of_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in os.environ:
        if name.startswith("JOBQUEUE_"):  # those of `make test-long` too, which are no settings
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


async def found(**flags: Any) -> list[Finding]:
    flags.setdefault("port", free_port())
    return [finding async for finding in check(flags, None)]


def told(findings: list[Finding], subject: str) -> list[tuple[str, str]]:
    return [(each.level, each.sentence) for each in findings if each.subject == subject]


async def test_wrong_settings_are_told_and_end_the_check() -> None:
    (finding,) = await found(port=70_000)
    assert str(finding) == "bad  settings: port in the flags: Expected `int` <= 65535"


@pytest.mark.parametrize(
    ("installed", "levels"),
    [(["jobqueue", "jobqueue_client"], ["warn"]), (["jobqueue"], []), (["jobqueue_client"], [])],
    ids=["both", "service", "client"],
)
async def test_a_client_that_is_installed_beside_the_service_is_warned_of(
    installed: list[str], levels: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in installed:
        folder = tmp_path / f"{name}-9.9.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: 9.9\n")
    monkeypatch.setattr("sys.path", [str(tmp_path)])  # where distributions are looked for
    findings = [finding async for finding in check({"redis": "nonsense", "port": 0}, None)]
    assert [level for level, _ in told(findings, "packages")] == levels
    assert all("Uninstall both" in words for _, words in told(findings, "packages"))


async def test_more_workers_than_cores_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    assert told(await found(redis="nonsense"), "workers")[0][0] == "ok"
    monkeypatch.setenv("JOBQUEUE_WORKERS", "64")
    ((level, words),) = told(await found(redis="nonsense"), "workers")
    assert level == "warn"
    assert words.startswith(f"serve starts 64; cores available: {usable()}")


async def test_a_namespace_that_is_not_founded_is_told_and_not_founded(redis: Redis, redis_server: RedisServer) -> None:
    findings = await found(redis=redis_server.url)
    ((level, words),) = told(findings, "namespace jq")
    assert (level, words) == ("ok", "not there yet; serve will create it with shards: 1, buckets: 8")
    assert await redis.read("DBSIZE") == 0
    (first, *warnings) = told(findings, "redis")
    assert first[0] == "ok"
    assert "maxmemory-policy noeviction, no append-only file, no replica" in first[1]
    assert [level for level, _ in warnings] == ["warn"]  # it keeps nothing on disk
    ((level, words),) = told(findings, "clock")
    assert level == "ok" and re.fullmatch(r"the clocks of this host and of Redis are \d+ ms apart", words)
    assert told(findings, "service")[0][0] == "warn"


async def test_what_is_set_aside_and_a_setting_without_effect_are_told(redis: Redis, redis_server: RedisServer) -> None:
    pool = await Pool.open(redis, buckets=4)
    await redis.read("HSET", pool.keys[0].aside, "broken", "x")
    shape, effect, aside = told(await found(redis=redis_server.url, buckets=8), "namespace jq")
    assert shape == ("ok", "format 2, shards: 1, buckets: 4")
    assert effect == ("warn", "the setting buckets = 8 has no effect: the namespace was created with 4")
    assert aside == ("warn", "unreadable records that were set aside: 1, in {jq:0}:x")


async def test_a_namespace_of_another_version_is_bad(redis: Redis, redis_server: RedisServer) -> None:
    await redis.read("HSET", "{jq:0}:meta", "format", "99", "hash", "crc32")
    ((level, words),) = told(await found(redis=redis_server.url), "namespace jq")
    assert (level, "another version" in words) == ("bad", True)


async def test_a_redis_that_may_drop_jobs_is_bad(own_server: RedisServer) -> None:
    redis = Redis(own_server.url)
    await redis.read("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    await redis.close()
    levels = [level for level, _ in told(await found(redis=own_server.url), "redis")]
    assert levels == ["ok", "bad"]


async def test_a_redis_that_is_away_is_bad_and_its_password_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JOBQUEUE_REDIS_TIMEOUT_S", "0.2")
    findings = await found(redis="redis://user:secret@127.0.0.1:1")
    ((level, words),) = told(findings, "redis")
    assert level == "bad"
    assert words.startswith("the Redis at redis://127.0.0.1:1 cannot be used: no connection to 127.0.0.1:1: conn")
    assert "secret" not in str(findings)
    assert told(await found(redis="nonsense"), "redis")[0][0] == "bad"


async def test_our_own_server_is_looked_for_and_not_started(tmp_path: Path) -> None:
    data = tmp_path / "data"
    ((level, words),) = told(await found(data=str(data)), "redis")
    assert (level, "is not running; it would be" in words) == ("ok", True)
    assert not data.exists()


async def test_our_own_server_and_the_service_are_found_when_they_run() -> None:
    with tempfile.TemporaryDirectory(prefix="jq-") as folder:
        async with ServiceProcess("--data", folder) as service:
            findings = await found(data=folder, port=service.port)
    assert told(findings, "redis")[0] == ("ok", f"the embedded Redis runs on {folder}")
    assert told(findings, "service") == [("ok", f"ready at {service.url}")]
    assert {finding.level for finding in findings} == {"ok"}


async def test_what_is_no_service_is_bad() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")
        writer.close()

    port = free_port()
    async with await asyncio.start_server(answer, "127.0.0.1", port):
        ((level, words),) = told(await found(port=port), "service")
    assert (level, "does not answer like a service" in words) == ("bad", True)


async def test_the_command_prints_a_line_a_finding_and_ends_with_1_when_one_is_bad() -> None:
    ran = await Shell("").run("check", "--redis", "nonsense", "--port", "0")
    assert (ran.code, ran.err) == (1, "")
    assert [line.split()[0] for line in ran.out.splitlines()] == ["ok", "ok", "ok", "bad", "ok"]


async def test_a_secret_whose_file_anybody_may_read_is_warned_of(tmp_path: Path) -> None:
    file = tmp_path / "redis-url"
    file.write_text("redis://a:marked@127.0.0.1:1\n")
    for mode, levels in ((0o644, ["warn"]), (0o600, [])):
        file.chmod(mode)
        findings = await found(redis_file=str(file), redis_timeout_s=0.1)
        assert [level for level, _ in told(findings, "redis_file")] == levels
        assert "marked" not in "".join(map(str, findings))
