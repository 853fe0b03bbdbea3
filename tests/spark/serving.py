"""A real service for blocking tests: those of Spark."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, Self

from tests.kit.service import Client, ServiceProcess

PATIENCE_S = 60.0


class Serving:
    """A `ServiceProcess` and a client of it, for blocking code. A context manager."""

    def __init__(self, *flags: str) -> None:
        self._runner = asyncio.Runner()
        self.process = ServiceProcess(*flags)
        self.url = self.process.url

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._runner.run(self.process.__aexit__())
        self._runner.close()

    def start(self) -> None:
        """Start it, or restart it on the same port, and wait until it is ready."""
        self._runner.run(self.process.start())

    def stop(self) -> None:
        """Send SIGTERM and wait until it has ended."""
        self._runner.run(self.process.stop())

    def kill(self) -> None:
        """Kill it with SIGKILL."""
        self._runner.run(self.process.kill())

    def ask(self, command: str, **fields: Any) -> Any:
        """The answer to one command."""

        async def asked() -> Any:
            async with Client(self.url) as client:
                return await client.ask(command, **fields)

        return self._runner.run(asked())

    def batch(self, commands: list[dict[str, Any]]) -> Any:
        """The answers to an array of commands."""

        async def asked() -> Any:
            async with Client(self.url) as client:
                return await client.batch(commands)

        return self._runner.run(asked())

    def jobs(self, topic: str) -> dict[str, dict[str, Any]]:
        """All jobs of a topic by id, as `peek` reports them."""
        found: dict[str, dict[str, Any]] = {}
        cursor = None
        while True:
            page = self.ask("peek", topic=topic, count=1000, cursor=cursor)
            found.update({job["id"]: job for job in page["jobs"]})
            cursor = page["cursor"]
            if cursor is None:
                return found

    def totals(self, topic: str) -> dict[str, int]:
        """How many jobs of a topic have ever been created, delivered, finished, …"""
        return dict(self.ask("stats", topic=topic)["totals"])


def until(reached: Callable[[], bool], patience_s: float = PATIENCE_S) -> None:
    """Wait until a condition holds, instead of sleeping for a fixed time."""
    end = time.monotonic() + patience_s
    while not reached():
        assert time.monotonic() < end, "the condition never held"
        time.sleep(0.05)
