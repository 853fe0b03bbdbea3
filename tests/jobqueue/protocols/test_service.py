"""All dialects of one service, as an operator sees them: several workers, logs, a port that is taken, a reload."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
from pathlib import Path

import aiohttp
import pytest

from buckets import Redis
from tests.kit.ports import free_ports
from tests.kit.redis_server import RedisServer
from tests.kit.service import Client, ServiceProcess
from tests.kit.waiting import until

HTTP = {"camellia": "/camellia/health/check", "mykit": "/nowhere", "lmstfy": "/api/n/q/size"}
SOCKETS = ("queue_server", "beanstalkd")


def tables(ports: dict[str, int], extra: str = "") -> str:
    return "".join(f"[protocols.{name}]\nport = {port}\n{extra}" for name, port in ports.items())


@pytest.mark.parametrize("workers", [1, 2])
async def test_all_dialects_share_a_service_with_its_workers(
    redis_server: RedisServer, redis: Redis, tmp_path: Path, workers: int
) -> None:
    ports = dict(zip((*HTTP, *SOCKETS), free_ports(5), strict=True))
    config, log = tmp_path / "jobqueue.toml", tmp_path / "log"
    config.write_text(tables(ports))
    flags = ("--redis", redis_server.url, "--config", str(config), "--log-format", "json")
    async with ServiceProcess(*flags, workers=workers, log=log) as service:
        async with Client(service.url) as client:
            assert (await client.ask("stats"))["success"]
        for name, path in HTTP.items():
            for _ in range(4):  # so that each worker gets some
                assert await status(ports[name], "/healthz") == 200
                assert await status(ports[name], path) in (200, 404)
        for _ in range(4):
            reader, writer = await asyncio.open_connection("127.0.0.1", ports["beanstalkd"])
            writer.write(b"put 1 0 60 1\r\n7\r\n")
            assert (await reader.readline()).startswith(b"INSERTED ")
            writer.close()
        config.write_text(tables(ports, 'allow = ["192.0.2.1"]\n').replace(str(ports["mykit"]), "1"))
        await until(lambda: "service.started" in log.read_text())  # its workers answer before it tells
        assert service.process
        service.process.send_signal(signal.SIGHUP)
        for port in ports.values():
            await until(lambda port=port: is_closed(port))  # type: ignore[misc]
        assert await service.stop() == 0
    events = {line["event"]: line for line in map(json.loads, log.read_text().splitlines())}
    started = events["service.started"]["protocols"]
    assert started["beanstalkd"] == f"127.0.0.1:{ports['beanstalkd']}"
    assert started["queue_server"] == f"127.0.0.1:{ports['queue_server']}, also by UDP"
    assert started["lmstfy"] == f"http://127.0.0.1:{ports['lmstfy']}"
    assert events["settings.reloaded"]["need_a_restart"] == ["protocols.mykit.port"]


async def status(port: int, path: str) -> int:
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}{path}") as response:
        return response.status


async def is_closed(port: int) -> bool:
    """Whether a connection is closed at once, several times in a row, so that each worker was asked."""
    for _ in range(6):
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            async with asyncio.timeout(0.5):
                data = await reader.read(1)
            writer.close()
        except TimeoutError:
            writer.close()
            return False
        except ConnectionError:
            continue
        if data:
            return False
    return True


@pytest.mark.parametrize("workers", [1, 2])
async def test_the_port_of_a_dialect_that_is_taken_is_named(
    redis_server: RedisServer, redis: Redis, tmp_path: Path, workers: int
) -> None:
    config, log = tmp_path / "jobqueue.toml", tmp_path / "log"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        config.write_text(tables({"beanstalkd": port}))
        flags = ("--redis", redis_server.url, "--config", str(config))
        said = await ServiceProcess(*flags, workers=workers, log=log).refusal()
    assert f"the port {port} of protocols.beanstalkd is in use" in said
