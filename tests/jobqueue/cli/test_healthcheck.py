"""`jobqueue healthcheck`, asked of real services."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trustme

from jobqueue import settings
from jobqueue.cli import healthcheck
from tests.access.secure import Secure
from tests.jobqueue.access.authorities import Files
from tests.kit.forked import Ran
from tests.kit.ports import free_port
from tests.kit.redis_server import RedisServer
from tests.kit.service import ServiceProcess
from tests.kit.shell import Shell
from tests.kit.waiting import until


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    with RedisServer(tmp_path) as server:
        yield server


async def asked(*arguments: str, **environment: str) -> Ran:
    return await Shell("", **environment).run("healthcheck", *arguments)


async def until_code(code: int, *arguments: str) -> Ran:
    """Wait until the health check ends so; what it printed."""
    last: list[Ran] = []

    async def ended() -> bool:
        last[:] = [await asked(*arguments)]
        return last[0].code == code

    await until(ended, within_s=30)
    return last[0]


async def test_the_exit_code_follows_the_service(redis: RedisServer) -> None:
    async with ServiceProcess("--redis", redis.url) as service:
        port = ("--port", str(service.port))
        assert await asked(*port) == (0, f"the service at {service.url} is ready\n", "")
        assert await asked(JOBQUEUE_PORT=str(service.port)) == (0, f"the service at {service.url} is ready\n", "")
        redis.kill()
        ran = await until_code(1, *port)
        assert ran.err.startswith(f"Error: the service at {service.url} is not ready; failed checks: ")
        assert await asked(*port, "--live") == (0, f"the service at {service.url} is live\n", "")
    for more in ((), ("--live",)):
        ran = await asked(*port, *more)
        assert (ran.code, ran.out) == (1, "")
        assert ran.err == f"Error: the service at {service.url} cannot be asked: Connection refused\n"


async def test_a_service_that_asks_for_tokens_is_ready_without_one(redis: RedisServer, tmp_path: Path) -> None:
    """Of /readyz the service tells the status to everybody, and the checks only to those who show a token."""
    file = tmp_path / "jobqueue.toml"
    # It is asked at a name that allowed_hosts does not have.
    file.write_text('access = "tokens"\nhost = "0.0.0.0"\nallowed_hosts = ["queue.example"]\n')
    async with ServiceProcess("--redis", redis.url, "--config", str(file)) as service:
        given = ("--config", str(file), "--port", str(service.port))
        assert await asked(*given) == (0, f"the service at {service.url} is ready\n", "")
        redis.kill()
        assert (await until_code(1, *given)).err == f"Error: the service at {service.url} is not ready\n"


async def test_a_unix_socket_is_asked_before_the_port(redis: RedisServer, tmp_path: Path) -> None:
    file, own = tmp_path / "jobqueue.toml", tmp_path / "own.sock"
    file.write_text(f'socket = "{own}"\n')
    async with ServiceProcess("--redis", redis.url, "--config", str(file)) as service:
        said = f"the service at {own} is ready\n"
        assert await asked("--config", str(file), JOBQUEUE_PORT=str(free_port())) == (0, said, "")
        assert await asked(JOBQUEUE_CONFIG=str(file)) == (0, said, "")
        assert await asked(JOBQUEUE_SOCKET=str(own), JOBQUEUE_PORT="0") == (0, said, "")
        ran = await asked("--config", str(file), "--port", str(service.port))
        assert (ran.code, ran.out) == (0, f"the service at {service.url} is ready\n")
    ran = await asked("--config", str(file))
    assert ran == (1, "", f"Error: the service at {own} cannot be asked: No such file or directory\n")


def _old(file: Path) -> None:
    """Let a file seem to have been written an hour ago."""
    os.utime(file, (time.time() - 3600,) * 2)


async def test_over_tls_the_certificate_of_the_settings_is_asked_for(redis: RedisServer, tmp_path: Path) -> None:
    files = Files(tmp_path)
    files.issue("queue.example")
    shown = files.cert.read_text()
    async with Secure(tmp_path, redis.url, files, workers=1) as service:
        given = ("--config", str(tmp_path / "jobqueue.toml"), "--port", str(service.port))
        said = (0, f"the service at https://127.0.0.1:{service.port} is ready\n", "")
        _old(files.cert)
        assert await asked(*given) == said
        await asyncio.to_thread(files.issue)
        assert await asked(*given) == said  # the service takes it up within a minute
        files.cert.write_text(files.cert.read_text() + shown)  # only the first of a chain is the service's own
        _old(files.cert)
        ran = await asked(*given)
        assert ran.code == 1
        assert "shows another certificate than that of tls_cert" in ran.err
        files.cert.unlink()
        assert (await asked(*given)).err.endswith(f"cannot be asked: {files.cert}: No such file or directory\n")


async def test_a_certificate_that_ended_is_not_healthy(redis: RedisServer, tmp_path: Path) -> None:
    files = Files(tmp_path, days=-1)
    _old(files.cert)
    async with Secure(tmp_path, redis.url, files, workers=1) as service:
        ran = await asked("--config", str(tmp_path / "jobqueue.toml"), "--port", str(service.port))
    assert ran.code == 1
    assert "certificate has expired" in ran.err


async def test_where_clients_need_certificates_it_says_to_set_a_socket(redis: RedisServer, tmp_path: Path) -> None:
    files = Files(tmp_path, clients=trustme.CA())
    async with Secure(tmp_path, redis.url, files, workers=1) as service:
        file = str(tmp_path / "jobqueue.toml")
        ran = await asked("--config", file, "--port", str(service.port))
        assert (ran.code, ran.out) == (2, "")
        assert "set socket, where none is needed" in ran.err
        assert (await asked("--config", file)).code == 0


@asynccontextmanager
async def answering(answer: bytes) -> AsyncIterator[str]:
    """The port of a program that is not a service."""

    async def answered(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answered, "127.0.0.1", 0)
    async with server:
        yield str(server.sockets[0].getsockname()[1])


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"HTTP/1.1 401 Unauthorized\r\n\r\n", "answered 401 to GET /readyz"),
        (b"HTTP/1.1 302 Found\r\nLocation: /\r\n\r\n", "answered 302 to GET /readyz"),
        (b"HTTP/1.1 503 Busy\r\n\r\n<html>", "is not ready"),
        (b'HTTP/1.1 503 Busy\r\n\r\n["ready"]', "is not ready"),
        (b"NOT_FOUND 200 OK\r\n", "does not answer as HTTP"),
        (b"HTTP/1.1\r\n", "does not answer as HTTP"),
        (b"", "does not answer as HTTP"),
    ],
)
async def test_another_program_on_the_port_is_not_healthy(answer: bytes, why: str) -> None:
    async with answering(answer) as port:
        assert await asked("--port", port) == (1, "", f"Error: the service at http://127.0.0.1:{port} {why}\n")


def test_a_service_that_does_not_answer_is_not_healthy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(healthcheck, "_WITHIN_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as frozen:
        place = healthcheck.Place("127.0.0.1", frozen.getsockname()[1], "", "")
        assert healthcheck.fault_at(place, "/readyz") == "did not answer within 0 s"


@pytest.mark.parametrize(
    ("arguments", "toml", "why"),
    [
        (("--port", "queue"), "", "port must be a number up to 65535, not 'queue'"),
        (("--port", "65536"), "", "port must be a number up to 65535"),
        ((), "port = 0", "port = 0 is any free port"),
        ((), "port =", "is not TOML"),
        (("--config", "absent.toml"), "", "the settings file absent.toml cannot be read: No such file or directory"),
        (("--wait",), "", "unrecognized arguments: --wait"),
    ],
)
async def test_what_cannot_be_asked_is_told_apart_from_what_is_unhealthy(
    arguments: tuple[str, ...], toml: str, why: str, tmp_path: Path
) -> None:
    file = tmp_path / "jobqueue.toml"
    file.write_text(toml)
    ran = await asked(*arguments, JOBQUEUE_CONFIG=str(file))
    assert (ran.code, ran.out) == (2, "")
    assert why in ran.err


@pytest.mark.parametrize(
    ("flags", "toml", "environment"),
    [
        ({}, "", {}),
        ({}, 'port = 1\nhost = "10.0.0.1"\nsocket = "/a"\n', {}),
        ({}, "port = 1", {"JOBQUEUE_PORT": "2", "JOBQUEUE_SOCKET": "/b"}),
        ({}, 'port = 1\nsocket = "/a"', {"JOBQUEUE_SOCKET": ""}),
        ({"port": 3}, "port = 1", {"JOBQUEUE_PORT": "2"}),
        ({"host": "10.0.0.3"}, 'host = "10.0.0.1"', {"JOBQUEUE_HOST": "10.0.0.2"}),
        ({}, "port = 1", {"JOBQUEUE_PORT": "tcp://10.0.0.1:8000", "JOBQUEUE_PORT_8000_TCP": "tcp://10.0.0.1:8000"}),
        ({}, "", {"JOBQUEUE_TLS_CERT": "/cert.pem", "JOBQUEUE_TLS_KEY": "/key.pem"}),
        ({}, 'tls_cert = "/c.pem"\ntls_key = "/c.pem"\nworkers = 2\n[topics.t]\ntries = 1', {}),
    ],
)
def test_it_reads_the_settings_as_serve_does(
    flags: dict[str, str | int], toml: str, environment: Mapping[str, str], tmp_path: Path
) -> None:
    file = tmp_path / "jobqueue.toml"
    file.write_text(toml)
    chosen = settings.load(flags, str(file), environment)
    typed = {name: str(value) for name, value in flags.items()}
    place = healthcheck.place_of(typed, str(file), environment)
    assert (place.host, place.port, place.tls_cert) == (chosen.host, chosen.port, chosen.tls_cert)
    assert place.socket == ("" if flags else chosen.socket)


@pytest.mark.parametrize(
    ("host", "asked_at"),
    [("0.0.0.0", "http://127.0.0.1:8000"), ("::", "http://[::1]:8000"), ("", "http://127.0.0.1:8000")],  # noqa: S104
)
def test_a_service_on_all_addresses_is_asked_on_loopback(host: str, asked_at: str) -> None:
    assert str(healthcheck.place_of({}, None, {"JOBQUEUE_HOST": host})) == asked_at


_LOADED = """
import json, sys
before = set(sys.modules)
from jobqueue.cli import entry
try:
    entry.main()
except SystemExit:
    json.dump(sorted(set(sys.modules) - before), sys.stdout)
"""


@pytest.mark.parametrize("arguments", [(), ("--live", "--port", "1")])
def test_it_loads_nothing_but_the_standard_library(arguments: tuple[str, ...], tmp_path: Path) -> None:
    """A container starts it every few seconds: `jobqueue --version`, which loads more, takes five times as long."""
    file = tmp_path / "jobqueue.toml"
    file.write_text(f"port = {free_port()}")
    command = [sys.executable, "-c", _LOADED, "healthcheck", *arguments]
    environment = os.environ | {"JOBQUEUE_CONFIG": str(file)}
    ran = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30, env=environment)
    loaded: Any = json.loads(ran.stdout)
    own = [name for name in loaded if name.partition(".")[0] not in sys.stdlib_module_names]
    assert sorted(own) == ["jobqueue", "jobqueue.cli", "jobqueue.cli.entry", "jobqueue.cli.healthcheck"]
    assert {"asyncio", "http", "urllib.request", "ssl"}.isdisjoint(loaded)


async def test_the_help_lists_it_with_its_options() -> None:
    shell = Shell("")
    assert "healthcheck  Say by the exit code whether the service here is ready" in (await shell.run("--help")).out
    help_text = (await shell.run("healthcheck", "--help")).out
    assert all(f"--{name} " in help_text for name in ("config", "host", "port", "live"))
