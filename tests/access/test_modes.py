"""Open or closed: where a service starts without tokens, where it does not, and its Unix socket."""

from __future__ import annotations

import json
import socket
import stat
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.jobqueue.access.authorities import Files
from tests.kit.ports import free_port
from tests.kit.redis_server import RedisServer
from tests.kit.service import ServiceProcess
from tests.kit.waiting import until

EVERYWHERE = "0.0.0.0"  # noqa: S104 - the point of these tests
ADD = {"command": "add", "topic": "t", "id": "a", "body": 1}


def service(server: RedisServer, folder: Path, *lines: str, host: str = EVERYWHERE, workers: int = 1) -> ServiceProcess:
    config = folder / "jobqueue.toml"
    config.write_text("\n".join(lines))
    flags = ("--redis", server.url, "--host", host, "--config", str(config))
    return ServiceProcess(*flags, log=folder / "service.log", workers=workers)


@pytest.mark.parametrize("host", [EVERYWHERE, "::"])
@pytest.mark.parametrize("workers", [1, 2])
async def test_an_open_service_does_not_start_where_other_machines_reach_it(
    redis_server: RedisServer, tmp_path: Path, host: str, workers: int
) -> None:
    said = await service(redis_server, tmp_path, host=host, workers=workers).refusal()
    assert 'access = "tokens"' in said and "allow_open = true" in said


async def test_where_it_is_meant_an_open_service_starts_and_warns(redis_server: RedisServer, tmp_path: Path) -> None:
    async with service(redis_server, tmp_path, "allow_open = true") as started:
        assert await ask(started.url) == 200
    (warning,) = [line for line in (tmp_path / "service.log").read_text().splitlines() if "access.open" in line]
    assert EVERYWHERE in warning and '"level":"warning"' in warning.replace(" ", "")


async def test_with_tokens_a_service_starts_anywhere_and_lets_nobody_in_without_one(
    redis_server: RedisServer, tmp_path: Path
) -> None:
    async with service(redis_server, tmp_path, 'access = "tokens"') as started:
        assert await ask(started.url) == 401
    assert "access.open" not in (tmp_path / "service.log").read_text()


@pytest.mark.parametrize("name", ["beanstalkd", "queue_server"])
async def test_a_protocol_without_tls_does_not_open_to_other_machines_beside_tls(
    redis_server: RedisServer, tmp_path: Path, name: str
) -> None:
    lines = [Files(tmp_path).toml(), 'access = "tokens"', f"[protocols.{name}]", f"port = {free_port()}"]
    said = await service(redis_server, tmp_path, *lines, 'act_as = "a"').refusal()
    assert f"protocols.{name}" in said and "allow_plain" in said


@pytest.mark.parametrize("workers", [1, 2])
async def test_the_unix_socket_is_for_the_owner_and_the_group_and_goes_with_the_service(
    redis_server: RedisServer, tmp_path: Path, workers: int
) -> None:
    path = tmp_path / "jobqueue.sock"
    lines = [f'socket = "{path}"']
    for number in range(2):  # what a killed service left is replaced
        killed = service(redis_server, tmp_path, *lines, host="127.0.0.1", workers=workers)
        async with killed:
            assert stat.S_IMODE(path.stat().st_mode) == 0o660
            assert await ask("http://any.name", str(path)) == 200
            if not number:
                await killed.kill()
                await until(lambda: not listens(path))  # its workers end a moment after it
                assert path.exists()
    assert not path.exists()


async def test_tokens_are_asked_for_at_the_unix_socket_too(redis_server: RedisServer, tmp_path: Path) -> None:
    path = tmp_path / "jobqueue.sock"
    lines = [f'socket = "{path}"', 'access = "tokens"']
    async with service(redis_server, tmp_path, *lines, host="127.0.0.1"):
        assert await ask("http://localhost", str(path)) == 401


async def test_a_file_of_somebody_and_a_socket_in_use_are_left_alone(redis_server: RedisServer, tmp_path: Path) -> None:
    path = tmp_path / "jobqueue.sock"
    path.write_text("precious")
    lines = [f'socket = "{path}"']
    said = await service(redis_server, tmp_path, *lines, host="127.0.0.1").refusal()
    assert str(path) in said and path.read_text() == "precious"
    path.unlink()
    (tmp_path / "second").mkdir()
    async with service(redis_server, tmp_path, *lines, host="127.0.0.1"):
        second = service(redis_server, tmp_path / "second", *lines, host="127.0.0.1")
        assert "is in use" in await second.refusal()
        assert await ask("http://localhost", str(path)) == 200


def listens(path: Path) -> bool:
    """Whether a process listens on a Unix socket."""
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(str(path)) == 0


async def ask(url: str, socket: str = "") -> int:
    """The status of an add."""
    connector: Any = aiohttp.UnixConnector(socket) if socket else None
    async with (
        aiohttp.ClientSession(connector=connector) as session,
        session.post(f"{url}/command", data=json.dumps(ADD)) as answer,
    ):
        return answer.status
