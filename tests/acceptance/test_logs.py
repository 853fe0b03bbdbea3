"""What a running service logs, and what it never logs."""

from __future__ import annotations

import asyncio
import json
import re
import sys
import tempfile
from pathlib import Path

import aiohttp

from tests.kit.redis_server import RedisServer
from tests.kit.service import Client, ServiceProcess

SECRET = "hunter2-of-the-customer"  # noqa: S105 - it is no password anywhere else


async def test_logs_are_json_lines_without_bodies_and_passwords(tmp_path: Path) -> None:
    log = tmp_path / "service.log"
    with tempfile.TemporaryDirectory(prefix="jq-") as folder:
        redis = RedisServer(Path(folder), "--requirepass", SECRET)
        redis.start()
        try:
            url = f"unix://{redis.socket}?password={SECRET}"
            async with ServiceProcess("--redis", url, log=log) as service, Client(service.url) as client:
                await client.ask("add", topic="t", id="a", body={"card": SECRET}, headers={"token": SECRET})
                await client.ask("pop", topic="t")
                await client.post(b'{"command":"add","topic":"t","body":"' + SECRET.encode())
                redis.kill()
                data = json.dumps({"command": "add", "topic": "t", "body": SECRET}).encode()
                headers = {"X-Request-Id": "mine-7"}
                async with (
                    aiohttp.ClientSession() as session,
                    session.post(service.url + "/command", data=data, headers=headers) as response,
                ):
                    assert response.status == 503
                    assert int(response.headers["Retry-After"]) >= 1
                    assert (await response.json())["code"] == "UNAVAILABLE"
                redis.start()
        finally:
            redis.kill()
    text = log.read_text()
    assert SECRET not in text
    lines = [json.loads(line) for line in text.splitlines()]
    assert all(list(line)[:3] == ["time", "level", "event"] for line in lines)
    events = [line["event"] for line in lines]
    for event in ("service.started", "redis.lost", "redis.found", "command.refused", "service.stopping"):
        assert event in events, events
    outages = [line for line in lines if line["event"].endswith(".lost") and line["event"] != "namespace.lost"]
    assert all(line["error"] for line in outages)
    refused = next(line for line in lines if line["event"] == "command.refused")
    assert (refused["code"], refused["command"], refused["topic"]) == ("UNAVAILABLE", "add", "t")
    assert refused["request"] == "mine-7"
    assert "redis.judged" in events  # this Redis persists nothing, and the service warns about it
    assert events[-1] == "service.stopped"


async def test_a_line_for_people_begins_with_its_time_too() -> None:
    code = (
        "from jobqueue import logs; import structlog; logs.set_up('info', 'text'); structlog.get_logger().info('a.b')"
    )
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stderr=asyncio.subprocess.PIPE)
    _, said = await process.communicate()
    assert re.match(rb"\S*\d{4}-\d\d-\d\dT", said), said


async def test_at_level_debug_each_command_has_a_line_with_its_ids_and_no_body(tmp_path: Path) -> None:
    log, config = tmp_path / "service.log", tmp_path / "jobqueue.toml"
    config.write_text('log_level = "debug"\n')
    flags = ("--data", str(tmp_path / "data"), "--config", str(config), "--log-format", "json")
    async with ServiceProcess(*flags, log=log) as service, Client(service.url) as client:
        adds = [{"command": "add", "topic": name, "id": name, "body": SECRET} for name in ("t", "u")]
        await client.batch(adds)
        await client.ask("pop", topics=["t", "u"], count=2, worker="w")
        await client.ask("finish", id="t")
        await client.ask("finish", id="nobody")
        await client.ask("release", id="u", delay=9)
    assert SECRET not in log.read_text()
    lines = [json.loads(line) for line in log.read_text().splitlines() if "command.answered" in line]
    assert [(line["command"], line["code"], line["id"]) for line in lines] == [
        ("add", "OK", "t"),
        ("add", "OK", "u"),
        ("pop", "OK", ["t", "u"]),
        ("finish", "OK", "t"),
        ("finish", "NOT_FOUND", "nobody"),
        ("release", "OK", "u"),
    ]


async def test_an_answer_that_is_our_bug_is_told_without_its_trace(tmp_path: Path) -> None:
    """A set of topics of another program's making: no rule foresees it."""
    log = tmp_path / "service.log"
    data = tmp_path / "data"
    async with ServiceProcess("--data", str(data), log=log) as service, Client(service.url) as client:
        reader, writer = await asyncio.open_unix_connection(data / "redis.sock")
        writer.write(b"SET {jq:0}:t 1\r\n")
        assert await reader.readline() == b"+OK\r\n"
        writer.close()
        status, answer = await client.post(b'{"command":"topics"}')
        assert (status, answer["code"]) == (500, "INTERNAL")
        assert "WRONGTYPE" not in answer["error"]
        assert (await client.ask("add", topic="u", body=1))["success"]
    assert "command.failed" in log.read_text()


async def test_wrong_settings_and_a_redis_that_does_not_fit_end_with_a_sentence(tmp_path: Path) -> None:
    config = tmp_path / "jobqueue.toml"
    config.write_text("prot = 8000\n")
    said = await ServiceProcess("--config", str(config), log=tmp_path / "1.log").refusal()
    assert "unknown setting prot in the file" in said and "did you mean port?" in said
    with tempfile.TemporaryDirectory(prefix="jq-") as folder:
        options = ("--maxmemory", "10mb", "--maxmemory-policy", "allkeys-lru")
        with RedisServer(Path(folder), *options) as redis:
            said = await ServiceProcess("--redis", redis.url, log=tmp_path / "2.log").refusal()
    assert "allkeys-lru" in said
    said = await ServiceProcess("--redis", "redis://127.0.0.1:1", log=tmp_path / "3.log").refusal()
    assert "the Redis at redis://127.0.0.1:1 cannot be used" in said
    said = await ServiceProcess("--redis", "somewhere", log=tmp_path / "4.log").refusal()
    assert "the setting redis is not a valid Redis URL" in said
    assert "Traceback" not in said
    assert len([line for line in said.splitlines() if line.startswith("Error")]) == 1
