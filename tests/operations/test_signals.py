"""Signals that mean something to other programs end none of ours, and SIGUSR1 drains beanstalkd's protocol."""

from __future__ import annotations

import os
import signal
from functools import partial
from pathlib import Path

import pytest

from tests.kit.beanstalkd import client
from tests.kit.forked import started
from tests.kit.ports import free_port
from tests.kit.redis_server import RedisServer
from tests.kit.service import Client, ServiceProcess
from tests.kit.waiting import until

_SINK = """
url = "{url}"
[sinks.elsewhere]
kind = "http"
topics = ["t"]
url = "{url}"
networks = ["127.0.0.0/8"]
"""


def is_logged(log: Path, number: signal.Signals) -> bool:
    return number.name in log.read_text()


def catches(pid: int, number: signal.Signals, log: Path) -> bool:
    """Whether a process has a handler for a signal."""
    assert Path(f"/proc/{pid}").exists(), log.read_text()
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    mask = next(line.split()[1] for line in lines if line.startswith("SigCgt"))
    return bool(int(mask, 16) >> (number - 1) & 1)


@pytest.mark.parametrize("workers", [1, 2])
async def test_sigusr1_drains_beanstalkds_protocol_and_nothing_else(tmp_path: Path, workers: int) -> None:
    port, config, log = free_port(), tmp_path / "jobqueue.toml", tmp_path / "log"
    config.write_text(f"[protocols.beanstalkd]\nport = {port}\n")

    async def put() -> str:
        """The answer on a new connection, to whichever worker."""
        async with client(port) as connected:
            return await connected.ask("put 1 0 60 1", "x")

    with RedisServer(tmp_path) as redis:
        flags = ("--redis", redis.url, "--config", str(config))
        async with ServiceProcess(*flags, log=log, workers=workers) as service, client(port) as before:
            number = (await before.ask("put 1 0 60 1", "x")).split()[1]
            service.signal(signal.SIGUSR2)
            await until(lambda: "signal.ignored" in log.read_text())
            assert (await put()).startswith("INSERTED")
            service.signal(signal.SIGUSR1)

            async def is_drained() -> bool:
                return {await put() for _ in range(16)} == {"DRAINING"}

            await until(is_drained)
            assert await before.ask("put 1 0 60 1", "x") == "DRAINING"
            assert (await before.document("stats"))["draining"] == "true"
            assert await before.ask(f"reserve-job {number}") == f"RESERVED {number} 1"
            assert await before.line() == "x"
            assert await before.ask(f"release {number} 1 0") == "RELEASED"
            async with Client(service.url) as native:
                assert (await native.ask("add", topic="t", body=1))["success"]
            assert log.read_text().count("service.draining") == 1


async def test_a_service_without_that_protocol_logs_the_signal(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with RedisServer(tmp_path) as redis:
        async with ServiceProcess("--redis", redis.url, log=log) as service, Client(service.url) as native:
            for number in (signal.SIGUSR1, signal.SIGUSR2):
                service.signal(number)
                await until(partial(is_logged, log, number))
            assert (await native.ask("add", topic="t", body=1))["success"]


async def test_the_other_programs_log_them_too_and_end_in_order_at_sighup(tmp_path: Path) -> None:
    sinks = tmp_path / "sinks.toml"
    with RedisServer(tmp_path) as redis:
        async with ServiceProcess("--redis", redis.url) as service:
            sinks.write_text(_SINK.format(url=service.url))
            for number, arguments in enumerate(
                (
                    ["callbacks", "--topic", "t", "--url", service.url],
                    ["deliver", "--config", str(sinks)],
                    ["journal", "run", "--redis", redis.url, "--to", f"sqlite:///{tmp_path}/journal.sqlite"],
                    ["console", "--url", service.url, "--port", str(free_port())],
                )
            ):
                log = tmp_path / f"log-{number}"
                with log.open("wb") as output:
                    process = await started(arguments, os.environ, stdout=output, stderr=output)
                await until(partial(catches, process.pid, signal.SIGUSR2, log))
                for sent in (signal.SIGUSR1, signal.SIGUSR2):
                    process.send_signal(sent)
                    await until(partial(is_logged, log, sent))
                assert process.returncode is None
                process.send_signal(signal.SIGTERM if arguments[0] == "deliver" else signal.SIGHUP)
                assert await process.wait() == 0, log.read_text()
