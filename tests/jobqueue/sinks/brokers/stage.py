"""A broker, a service over a Redis of its own, and `jobqueue deliver` between them."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import aiohttp
from jobqueue_client import AsyncClient

from tests.kit import forked
from tests.kit.brokers import Broker, Received
from tests.kit.service import ServiceProcess

PATIENCE_S = 150.0  # up to 60 s pass between two tries


class DeliverProcess:
    """`jobqueue deliver` as a process; it may be killed and started again."""

    def __init__(self, config: Path, log: Path) -> None:
        self._config, self._log = config, log
        self.process: forked.Process | None = None

    async def start(self) -> None:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("JOBQUEUE_")}
        with self._log.open("ab") as log:
            arguments = ("deliver", "--config", str(self._config), "--log-format", "json")
            self.process = await forked.started(arguments, environment, stdout=log, stderr=log)

    async def stop(self, number: int = signal.SIGTERM) -> int:
        """Send a signal, and wait for the exit code."""
        assert self.process
        if self.process.returncode is None:
            self.process.send_signal(number)
        async with asyncio.timeout(PATIENCE_S):
            return await self.process.wait()

    def reload(self) -> None:
        """Have it read its file again."""
        assert self.process
        self.process.send_signal(signal.SIGHUP)

    def logged(self, event: str) -> list[dict[str, Any]]:
        """The lines of an event."""
        lines = (line for line in self._log.read_text().splitlines() if line.startswith("{"))
        return [line for line in map(json.loads, lines) if line["event"] == event]

    @property
    def text(self) -> str:
        return self._log.read_text()


class Stage:
    """All of it. `deliver` is not started."""

    def __init__(self, broker: Broker, service: ServiceProcess, client: AsyncClient, folder: Path) -> None:
        self.broker, self.service, self.client, self._folder = broker, service, client, folder
        self.deliver = DeliverProcess(folder / "deliver.toml", folder / "deliver.log")
        self._delivers = [self.deliver]

    def another(self) -> DeliverProcess:
        """One more process with the same file."""
        log = self._folder / f"deliver-{len(self._delivers)}.log"
        self._delivers.append(DeliverProcess(self._folder / "deliver.toml", log))
        return self._delivers[-1]

    async def end(self) -> None:
        """Kill what runs."""
        for deliver in self._delivers:
            if deliver.process and deliver.process.returncode is None:
                await deliver.stop(signal.SIGKILL)

    def write(self, topics: Sequence[str] = ("jobs",), metrics_port: int = 0, **settings: Any) -> None:
        """The file of `deliver`: one sink, named `under-test`."""
        table = {**self.broker.table(), "topics": list(topics), **settings}
        lines = [
            f'url = "{self.service.url}"',
            f"metrics_port = {metrics_port}",
            "[sinks.under-test]",
            *(f"{name} = {toml(table[name])}" for name in table),
        ]
        (self._folder / "deliver.toml").write_text("\n".join(lines))

    async def check(self) -> int:
        """`deliver --check`; the exit code. `check_text` is what it prints."""
        ran = await forked.ran(("deliver", "--config", str(self._folder / "deliver.toml"), "--check"), os.environ)
        self.check_text = ran.out + ran.err
        return ran.code

    async def add(self, jobs: Sequence[dict[str, Any]]) -> None:
        """Add jobs, given by their fields."""
        for first in range(0, len(jobs), 200):
            answers = await self.client.batch([{"command": "add", **job} for job in jobs[first : first + 200]])
            for answer in answers:
                assert not isinstance(answer, Exception), answer

    async def add_raw(self, jobs: Sequence[dict[str, Any]], bodies: Sequence[str]) -> None:
        """Add jobs whose bodies are JSON as it is to travel."""
        async with aiohttp.ClientSession() as session:
            for job, body in zip(jobs, bodies, strict=True):
                data = json.dumps({"command": "add", **job})[:-1] + f', "body": {body}}}'
                async with session.post(f"{self.service.url}/command", data=data.encode()) as response:
                    assert (await response.json())["success"]

    async def left(self, topic: str = "jobs") -> int:
        """How many jobs are neither finished nor dead."""
        counts = (await self.client.stats(topic))["counts"]
        return int(counts["delayed"] + counts["ready"] + counts["reserved"])

    async def until_none_is_left(self, topic: str = "jobs", within_s: float = PATIENCE_S) -> None:
        async with asyncio.timeout(within_s):
            while await self.left(topic):  # noqa: ASYNC110 - in another process
                await asyncio.sleep(0.05)

    async def dead(self, topic: str = "jobs") -> dict[str, str]:
        """The reasons of the dead letters, by id."""
        peeked = await self.client.peek(topic, state="dead", count=1000)
        return {job["id"]: job["reason"] or "" for job in peeked["jobs"]}

    async def received(self) -> list[Received]:
        return await self.broker.received()


def toml(value: Any) -> str:
    """A value as TOML has it."""
    if isinstance(value, dict):
        return "{" + ", ".join(f'"{name}" = {toml(each)}' for name, each in value.items()) + "}"
    return json.dumps(value, ensure_ascii=False)
