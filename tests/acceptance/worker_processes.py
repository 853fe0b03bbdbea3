"""A service with several worker processes, seen from outside: its log, its processes, its metrics."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any

import aiohttp

from tests.acceptance.test_metrics import told
from tests.kit.service import ServiceProcess
from tests.kit.waiting import until


def lines(log: Path, event: str = "") -> list[dict[str, Any]]:
    """The parsed lines of a log, empty without one; with `event` only the lines of that event."""
    if not log.exists():
        return []
    all_lines = [json.loads(line) for line in log.read_text().splitlines()]
    return [line for line in all_lines if event in ("", line["event"])]


def pids(log: Path) -> dict[int, int]:
    """The pid of each worker's newest process, by the worker's number."""
    return {line["worker"]: line["pid"] for line in lines(log, "worker.started")}


def lives(pid: int) -> bool:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False


async def all_ended(processes: dict[int, int]) -> None:
    await until(lambda: not any(map(lives, processes.values())))


async def serving(service: ServiceProcess, log: Path) -> ServiceProcess:
    """Start it, and wait until all of its workers are listening."""
    before = len(lines(log, "service.started"))
    await service.start()
    await until(lambda: len(lines(log, "service.started")) > before)
    return service


async def started(log: Path, number: int) -> None:
    """Wait until `number` worker processes have been started in all."""
    await until(lambda: len(lines(log, "worker.started")) >= number)


async def on_connections(url: str, number: int, command: dict[str, Any]) -> list[tuple[str, Any]]:
    """Send a command on `number` new connections; for each the prefix of the request's id, which identifies the
    worker, and the answer."""
    answers = []
    connector = aiohttp.TCPConnector(force_close=True)
    async with aiohttp.ClientSession(connector=connector) as session:
        for _ in range(number):
            async with session.post(url + "/command", data=json.dumps(command).encode()) as response:
                answers.append((response.headers["X-Request-Id"].partition("-")[0], await response.json()))
    return answers


async def count(service: ServiceProcess, command: str) -> float:
    """How many commands of a kind succeeded, by the metrics of whichever worker answers."""
    return (await told(service.url)).get(("jobqueue_commands_total", "OK", command, "native"), 0)


async def counted(service: ServiceProcess, command: str, number: float) -> None:
    """Wait until the metrics say that so many commands of a kind succeeded: a worker that has too little CPU may report
    its last ones after the scrape."""

    async def are_counted() -> bool:
        return await count(service, command) == number

    await until(are_counted)
