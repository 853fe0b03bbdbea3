"""Faults, one by one: `check`, `doctor`, the log and docs/late.md each name the cause, and what to type next."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from buckets import Redis
from jobqueue.cli.check.doctor import Patient, examine
from jobqueue.journal.database import open_store
from jobqueue.journal.url import address
from tests.acceptance.test_late_page import PAGE
from tests.jobqueue.access.authorities import Files
from tests.kit.databases import PostgreSQL
from tests.kit.forked import Process, started
from tests.kit.ports import free_port
from tests.kit.redis_server import RedisServer
from tests.kit.service import Client, ServiceProcess
from tests.kit.shell import Shell, environment
from tests.kit.waiting import until

_WITHOUT_DRIVER = (
    "import sys, importlib.util as util; real = util.find_spec;"
    "util.find_spec = lambda name, *rest: None if name == 'aiosqlite' else real(name, *rest);"
    "from jobqueue.cli.main import main; main()"
)


class Stage:
    """A Redis, a service on it, and what was logged. `program`: what runs the service and the commands, if that is not
    the usual one."""

    def __init__(
        self, folder: Path, server: RedisServer, settings: str, program: tuple[str, ...] | None = None
    ) -> None:
        self.folder, self.server, self.program = folder, server, program
        self.log = folder / "log"
        self.config = folder / "jobqueue.toml"
        self.config.write_text(f"redis = '{server.url}'\nredis_timeout_s = 0.5\n{settings}\n")
        self.service = ServiceProcess("--config", str(self.config), log=self.log, program=program)
        self.redis = Redis(server.url)
        self.beside: Process | None = None

    async def listens(self) -> bool:
        return self.log.exists() and "service.started" in self.log.read_text()

    async def ask(self, command: str, **fields: object) -> None:
        async with Client(self.service.url) as client:
            await client.ask(command, **fields)

    async def said(self, command: str) -> str:
        """What a command says about the service of these settings."""
        arguments = (command, "--config", str(self.config), "--port", str(self.service.port))
        if self.program is None:
            return (await Shell("").run(*arguments)).out
        process = await asyncio.create_subprocess_exec(
            *(*self.program, *arguments), stdout=asyncio.subprocess.PIPE, env=environment("")
        )
        out, _ = await process.communicate()
        return out.decode()


async def none(stage: Stage) -> None:
    """The fault is in the settings."""


async def full(stage: Stage) -> None:
    await stage.redis.read("SETRANGE", "filler", 20 << 20, "x")
    await stage.redis.read("CONFIG", "SET", "maxmemory", 10 << 20)
    await stage.ask("add", topic="t", body=1)


async def down(stage: Stage) -> None:
    stage.server.kill()
    await stage.ask("add", topic="t", body=1)


async def frozen(stage: Stage) -> None:
    stage.server.freeze()
    await stage.ask("add", topic="t", body=1)


async def other_password(stage: Stage) -> None:
    await stage.redis.read("CONFIG", "SET", "requirepass", "other")
    await stage.redis.read("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "no")
    await stage.ask("add", topic="t", body=1)


async def made_a_replica(stage: Stage) -> None:
    await stage.redis.read("REPLICAOF", "127.0.0.1", 1)
    await stage.ask("add", topic="t", body=1)


async def emptied(stage: Stage) -> None:
    """While no service runs that could write its tokens back."""
    await stage.service.kill()
    await stage.redis.read("FLUSHALL")
    stage.log.unlink()
    await stage.service.spawn()
    await until(stage.listens)


async def without_token(stage: Stage) -> None:
    await stage.ask("stats")


async def no_certificate(stage: Stage) -> None:
    (stage.folder / "cert.pem").unlink()
    stage.service.signal(1)


async def nobody_polls(stage: Stage) -> None:
    await stage.ask("add", topic="t", body=1)


async def broker_away(stage: Stage) -> None:
    sinks = stage.folder / "sinks.toml"
    sinks.write_text(
        f'url = "{stage.service.url}"\n'
        '[sinks.stream]\nkind = "redis-stream"\nurl = "redis://127.0.0.1:1"\ntopics = ["t"]\ntimeout_s = 1\n'
    )
    with stage.log.open("ab") as log:
        arguments = ["deliver", "--config", str(sinks)]
        stage.beside = await started(arguments, environment(""), stdout=log, stderr=log)
    await stage.ask("add", topic="t", body=1)


class Fault(NamedTuple):
    """How a fault is made, and the words that name it and the next command: in what `check` and `doctor` print, in the
    log, and in docs/late.md. No words for the log: nothing happens that could be logged."""

    make: Callable[[Stage], Awaitable[None]]
    findings: tuple[str, ...]
    log: tuple[str, ...]
    page: tuple[str, ...]
    settings: str = ""


_JOURNAL = "journal = '{}'\njournal_run = true"
FAULTS: Mapping[str, Fault] = {
    "redis full": Fault(
        full,
        ("bad  redis: full: ", "adds are refused (NO_ROOM)", "jobqueue topics"),
        ("command.refused", "NO_ROOM", '"topic":"t"'),
        ("redis … full, or nearly", "`NO_ROOM` instead means that Redis has reached its `maxmemory`"),
    ),
    "redis down": Fault(
        down,
        ("bad  redis: the Redis at ", "connection refused; try it: redis-cli -s "),
        ("redis.lost", "connection refused", "command.refused"),
        ("| connection refused, or did not answer in time | Redis is down", "redis-cli … PING"),
    ),
    "redis frozen": Fault(
        frozen,
        ("bad  redis: the Redis at ", "did not answer in time", "; try it: redis-cli -s "),
        ("redis.lost", "no answer in time"),
        ("did not answer in time | Redis is down, or frozen",),
    ),
    "wrong password": Fault(
        other_password,
        ("bad  redis: the Redis at ", "Authentication required; try it: redis-cli"),
        ("redis.lost", "Authentication required"),
        ("Authentication required, WRONGPASS", "correct `redis` (or `redis_file`)"),
    ),
    "replica": Fault(
        made_a_replica,
        ("bad  redis: this Redis is a replica and takes no jobs; use its master, 127.0.0.1:1",),
        ("READONLY",),
        ("this Redis is a replica, READONLY", "`redis-cli ROLE` names it"),
    ),
    "empty with tokens on": Fault(
        emptied,
        ("bad  access: no token exists", "jobqueue token create NAME --may admin", "docs/redis-lost.md"),
        ("tokens.none", "jobqueue token create NAME --may admin"),
        ("no token exists (`tokens.none` in the log) | `jobqueue token create NAME --may admin`", "(redis-lost.md)"),
        'access = "tokens"',
    ),
    "no token": Fault(
        without_token,
        ("the request needs a valid token (UNAUTHORIZED); set JOBQUEUE_TOKEN, or use --token-file",),
        ("access.refused", "missing"),
        ("the request needs a valid token (`access.refused` in the log)", "`jobqueue token list`"),
        'access = "tokens"',
    ),
    "journal without folder": Fault(
        none,
        ("bad  journal: it cannot be written: ", "none can be made in /nowhere", "then: jobqueue check"),
        ("journal.ended", "there is no folder /nowhere"),
        ("there is no folder, none can be made | make the folder", "then `jobqueue check`"),
        _JOURNAL.format("sqlite:////nowhere/journal.db"),
    ),
    "journal without database": Fault(
        none,
        ("bad  journal: it cannot be written: ", "Connection refused. Mend that, then: jobqueue check"),
        ("database.lost", "Connection refused"),
        ("Connection refused, does not answer | start the database",),
        _JOURNAL.format("postgresql://127.0.0.1:1/journal"),
    ),
    "certificate gone": Fault(
        no_certificate,
        ("bad  tls: the TLS files cannot be used: ", "cert.pem: No such file or directory"),
        ("tls.refused", "cert.pem: No such file or directory"),
        ("the TLS files cannot be used | bring the file back that it names", "SIGHUP"),
    ),
    "worker missing": Fault(
        nobody_polls,
        ("topic t: no worker polls it; 1 job ready", "Start its workers; who polls: jobqueue workers t"),
        (),
        ("no worker polls it", "The list is empty: the workers are not running"),
    ),
    "broker of a sink away": Fault(
        broker_away,
        ("bad  topic t: its sink stream: ", "connection refused", "jobqueue workers t"),
        ("sink.down", "connection refused"),
        (
            "`check` says `its sink stream: no connection to …: connection refused`",
            "`jobqueue deliver --config FILE --check`",
        ),
    ),
}


@asynccontextmanager
async def staged(folder: Path, fault: Fault) -> AsyncIterator[Stage]:
    settings = fault.settings
    if fault.make is no_certificate:
        settings = Files(folder).toml()
    with RedisServer(folder) as server:
        stage = Stage(folder, server, settings)
        await stage.service.spawn()
        try:
            await until(stage.listens)
            yield stage
        finally:
            if stage.beside:
                stage.beside.send_signal(signal.SIGKILL)
                await stage.beside.wait()
            await stage.service.kill()
            await stage.redis.close()


@pytest.mark.parametrize("name", FAULTS)
async def test_each_fault_is_named_everywhere_with_what_to_type_next(name: str, tmp_path: Path) -> None:
    fault = FAULTS[name]
    assert [words for words in fault.page if words not in PAGE] == []
    async with staged(tmp_path, fault) as stage:
        await fault.make(stage)

        async def is_logged() -> bool:
            return all(words in stage.log.read_text() for words in fault.log)

        async def is_found() -> bool:
            said = await stage.said("check")
            return all(words in said for words in fault.findings)

        await until(is_logged)
        await until(is_found)
        said = await stage.said("doctor")
        assert [words for words in fault.findings if words not in said] == []


async def test_a_journal_without_its_driver_names_the_command_that_installs_it(tmp_path: Path) -> None:
    program = (sys.executable, "-c", _WITHOUT_DRIVER)
    with RedisServer(tmp_path) as server:
        stage = Stage(tmp_path, server, _JOURNAL.format(f"sqlite:///{tmp_path}/journal.db"), program)
        said = [await stage.service.refusal(), await stage.said("check"), await stage.said("doctor")]
        await stage.redis.close()
    for text in said:
        assert "sqlite:// needs the library aiosqlite: install the extra [journal] of jobqueue: " in text
        assert f"{sys.executable} -m pip install" in text or "uv pip install" in text
    assert "| needs the library … | type the command that it names" in PAGE


async def test_a_journal_that_may_not_be_written_names_the_rights(tmp_path: Path) -> None:
    words = "permission denied for table"
    with PostgreSQL() as database, RedisServer(tmp_path) as server:
        url = database.new_database()
        await (await open_store(url)).close()
        grant = "CREATE ROLE reader LOGIN; GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader"
        database.sql(grant, address(url).database)
        stage = Stage(tmp_path, server, _JOURNAL.format(url.replace("//jobqueue@", "//reader@")))
        await stage.service.spawn()
        try:
            await until(stage.listens)
            await stage.ask("add", topic="t", body=1)

            async def is_logged() -> bool:
                return words in stage.log.read_text()

            await until(is_logged)
            said = [await stage.said("check"), await stage.said("doctor")]
        finally:
            await stage.service.kill()
            await stage.redis.close()
    for text in said:
        assert "bad  journal: it cannot be written: " in text and words in text and "then: jobqueue check" in text
    assert "| permission denied, denied to user, readonly database | give the user the rights to write" in PAGE


async def test_a_port_that_is_taken_is_named_with_what_shows_by_whom(tmp_path: Path) -> None:
    with RedisServer(tmp_path) as server:
        stage = Stage(tmp_path, server, "")
        with socket.create_server(("127.0.0.1", stage.service.port)):
            said = [await stage.service.refusal(), await stage.said("check"), await stage.said("doctor")]
        await stage.redis.close()
    for text in said:
        assert f"port {stage.service.port} is in use; by whom: ss -tulnp 'sport = :{stage.service.port}'" in text
    assert "| port … is in use | type the `ss` that it names" in PAGE


async def test_a_clock_that_is_off_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with RedisServer(tmp_path) as server:
        real = time.time
        monkeypatch.setattr(time, "time", lambda: real() + 60)
        flags = {"redis": server.url, "port": free_port()}
        found = [str(each) async for each in examine(Patient(None, flags, None, {}), None)]
    (clock,) = [line for line in found if line.startswith("warn clock: ")]
    assert "this host's clock is 60.0 s ahead of that of Redis" in clock and clock.endswith("chronyc tracking")
    assert "the host of the service and that of Redis disagree" in PAGE and "`chronyc tracking`" in PAGE
