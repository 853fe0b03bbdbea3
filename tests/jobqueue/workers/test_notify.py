"""What the service manager is notified of: real services that notify a real datagram socket."""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from jobqueue.process import Notify, taken_from
from tests.acceptance.worker_processes import lines, on_connections, pids
from tests.jobqueue.service_manager import ServiceManager
from tests.kit import forked
from tests.kit.ports import free_port
from tests.kit.redis_server import RedisServer
from tests.kit.service import JOBQUEUE
from tests.kit.waiting import until

WATCHDOG_S = 0.3
ADD = {"command": "add", "topic": "paid", "body": 1}
VIRTUAL = '[virtual_topics]\npaid = ["invoice", "mail"]\n'


async def test_a_reload_that_ends_while_the_service_stops_is_not_told() -> None:
    with tempfile.TemporaryDirectory(prefix="jq-") as name, ServiceManager(f"{name}/notify") as manager:
        notify = Notify(manager.address, WATCHDOG_S)
        notify.stopping()
        notify.ready()
        notify.answers()
        await manager.hears_watchdog(1)
        assert manager.heard == ["STOPPING=1"]


class Notifying:
    """A service, the manager that it notifies, its log and its settings file."""

    def __init__(self, manager: ServiceManager, folder: Path, port: int) -> None:
        self.manager = manager
        self.url = f"http://127.0.0.1:{port}"
        self.log = folder / "service.log"
        self.settings = folder / "jobqueue.toml"
        self.process: forked.Process

    async def adds(self, number: int = 20) -> list[dict[str, Any]]:
        """The answers to adds, each on a connection of its own, so that every worker gets some."""
        return [answer for _, answer in await on_connections(self.url, number, ADD)]

    async def stopped(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return await self.process.wait()


@asynccontextmanager
async def notifying(
    redis_url: str, workers: int, socket: str = "", *, is_forked: bool = True
) -> AsyncIterator[Notifying]:
    """A service that has just been started, and need not listen yet. `socket`: another than the manager's;
    `is_forked`: False for a program whose environment can be read."""
    with tempfile.TemporaryDirectory(prefix="jq-") as name, ServiceManager(f"{name}/notify") as manager:
        port = free_port()
        service = Notifying(manager, Path(name), port)
        service.settings.touch()
        where = ("--port", str(port), "--redis", redis_url, "--config", str(service.settings))
        flags = ("serve", "--workers", str(workers), *where)
        asked = {"NOTIFY_SOCKET": socket or manager.address, "WATCHDOG_USEC": str(int(WATCHDOG_S * 1e6))}
        environment = os.environ | asked
        with service.log.open("wb") as log:
            if is_forked:
                service.process = await forked.started(flags, environment, stdout=log, stderr=log)
            else:
                service.process = await asyncio.create_subprocess_exec(
                    *JOBQUEUE, *flags, stdout=log, stderr=log, env=environment
                )
        try:
            yield service
        finally:
            if service.process.returncode is None:
                service.process.kill()
            await service.process.wait()


async def stop(*processes: int) -> None:
    """SIGSTOP, and wait until none of them can do anything more."""
    for pid in processes:
        os.kill(pid, signal.SIGSTOP)
    for pid in processes:
        await until(lambda pid=pid: "State:\tT" in Path(f"/proc/{pid}/status").read_text())  # type: ignore[misc]


def knows_of_a_manager(pid: int) -> bool:
    return b"NOTIFY_SOCKET" in Path(f"/proc/{pid}/environ").read_bytes()


def go_on(*processes: int) -> None:
    for pid in processes:
        os.kill(pid, signal.SIGCONT)


@pytest.mark.parametrize("workers", [1, 2])
async def test_a_service_is_ready_when_it_answers_and_again_when_it_has_reloaded(
    workers: int, redis_server: RedisServer, redis: object
) -> None:
    async with notifying(redis_server.url, workers) as service:
        await service.manager.hears("READY=1")
        assert not any("jobs" in answer for answer in await service.adds())
        service.settings.write_text(VIRTUAL)
        before_us = time.monotonic_ns() // 1000
        service.process.send_signal(signal.SIGHUP)
        await service.manager.hears("READY=1", "RELOADING=1", "READY=1")
        assert all("jobs" in answer for answer in await service.adds())
        (reloading,) = (message for message in service.manager.messages if message.startswith("RELOADING=1"))
        assert before_us <= int(reloading.removeprefix("RELOADING=1\nMONOTONIC_USEC=")) <= time.monotonic_ns() // 1000

        service.settings.write_text("wrong")  # changes nothing, and is no reason to be reloading for ever
        service.process.send_signal(signal.SIGHUP)
        so_far = ("READY=1", "RELOADING=1", "READY=1", "RELOADING=1", "READY=1")
        await service.manager.hears(*so_far)
        assert lines(service.log, "settings.refused")
        assert await service.stopped() == 0
        await service.manager.hears(*so_far, "STOPPING=1")
        assert all(line["message"] == "WATCHDOG=1" for line in lines(service.log, "notify.failed"))


async def test_a_reload_is_over_when_the_slowest_worker_has_the_new_settings(
    redis_server: RedisServer, redis: object
) -> None:
    async with notifying(redis_server.url, 2) as service:
        await service.manager.hears("READY=1")
        slow = pids(service.log)[1]
        await stop(slow)
        service.settings.write_text(VIRTUAL)
        service.process.send_signal(signal.SIGHUP)
        await until(lambda: len(lines(service.log, "settings.reloaded")) == 1, within_s=30)
        await service.manager.hears_watchdog(2)  # from the other worker: all that was sent before has come
        assert service.manager.heard == ["READY=1", "RELOADING=1"]
        go_on(slow)
        await service.manager.hears("READY=1", "RELOADING=1", "READY=1")
        assert all("jobs" in answer for answer in await service.adds())


async def test_the_watchdog_hears_of_a_service_while_its_loop_and_one_worker_answer(
    redis_server: RedisServer, redis: object
) -> None:
    async with notifying(redis_server.url, 2, is_forked=False) as service:
        manager = service.manager
        await manager.hears("READY=1")
        workers = list(pids(service.log).values())
        assert not any(map(knows_of_a_manager, workers))
        await stop(workers[0])
        await manager.hears_watchdog(4)
        await stop(workers[1])
        await manager.hears_nothing(WATCHDOG_S)
        go_on(workers[1])
        await manager.hears_watchdog(2)
        go_on(workers[0])
        await stop(service.process.pid)
        await manager.hears_nothing(WATCHDOG_S)
        go_on(service.process.pid)
        await manager.hears_watchdog(2)
        os.kill(workers[0], signal.SIGKILL)
        os.kill(workers[1], signal.SIGKILL)
        await until(lambda: len(lines(service.log, "worker.started")) == 4, within_s=60)
        await manager.hears_watchdog(4)
        assert await service.stopped() == 0


async def test_a_service_of_one_process_has_a_watchdog_too(redis_server: RedisServer, redis: object) -> None:
    async with notifying(redis_server.url, 1) as service:
        await service.manager.hears_watchdog(3)
        await stop(service.process.pid)
        await service.manager.hears_nothing(WATCHDOG_S)
        go_on(service.process.pid)
        await service.manager.hears_watchdog(2)


async def test_a_manager_that_is_not_there_is_logged_and_no_reason_to_fail(
    redis_server: RedisServer, redis: object
) -> None:
    async with notifying(redis_server.url, 1, socket="/nowhere/notify") as service:
        await until(lambda: len(lines(service.log, "notify.failed")) > 1, within_s=30)
        await until(lambda: len(lines(service.log, "service.started")) == 1, within_s=30)
        assert await service.adds(1)
        assert await service.stopped() == 0
        failed = lines(service.log, "notify.failed")
        assert {line["message"] for line in failed} == {"READY=1", "WATCHDOG=1", "STOPPING=1"}
        assert all("No such file" in line["error"] for line in failed)


async def test_an_abstract_socket_is_notified() -> None:
    with ServiceManager(f"@jobqueue-test-{os.getpid()}") as manager:
        Notify(manager.address).ready()
        await manager.hears("READY=1")


@pytest.mark.parametrize(
    ("watchdog", "seconds"),
    [
        ({}, 0),
        ({"WATCHDOG_USEC": "30000000"}, 30),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "7"}, 30),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "8"}, 0),
        ({"WATCHDOG_USEC": "soon"}, 0),
    ],
)
def test_the_watchdog_of_another_process_is_not_ours(watchdog: dict[str, str], seconds: float) -> None:
    environment = {"PATH": "/bin", "NOTIFY_SOCKET": "/run/notify", **watchdog}
    assert taken_from(environment, 7).watchdog_s == seconds
    assert environment == {"PATH": "/bin"}


def test_without_a_manager_nothing_is_watched_or_sent() -> None:
    notify = taken_from({"WATCHDOG_USEC": "30000000"}, 7)
    assert notify.watchdog_s == 0
    notify.ready()
