"""Services under load, for what is scraped meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from tests.kit.redis_server import RedisServer
from tests.kit.service import Client, ServiceProcess
from tests.kit.waiting import until

_TOPIC = "example-mail"  # one of those that the rules list for the objective `delivered`
_PATIENCE_S = 60
_TIMERS = 8


class Stage:
    """Services over a Redis of their own. `async with`."""

    def __init__(self, ports: list[int], settings: str = "", redis: tuple[str, ...] = ()) -> None:
        """`ports`: of one service each."""
        self._folder = tempfile.TemporaryDirectory(prefix="jq-")
        folder = Path(self._folder.name)
        config = folder / "jobqueue.toml"
        config.write_text(settings)
        self.redis = RedisServer(folder, *redis)
        flags = ("--redis", self.redis.url, "--config", str(config))
        self.services = [ServiceProcess(*flags, port=port) for port in ports]
        self.targets = [f"127.0.0.1:{service.port}" for service in self.services]

    async def __aenter__(self) -> Stage:
        async with AsyncExitStack() as stack:
            stack.enter_context(self._folder)
            stack.enter_context(self.redis)
            for service in self.services:
                await stack.enter_async_context(service)
            self.client = await stack.enter_async_context(Client(self.services[0].url))
            await until(self._all_held, _PATIENCE_S, every_s=0.05)
            self._stack = stack.pop_all()
        return self

    async def _all_held(self) -> bool:
        held = [await service.figure("jobqueue_locks_held") for service in self.services]
        return sum(held) == _TIMERS and all(held)

    async def second_holds_all(self) -> bool:
        """Whether the second service has all timers."""
        return await self.services[1].figure("jobqueue_locks_held") == _TIMERS

    async def is_worked_off(self) -> bool:
        """Whether no job waits for long."""
        return ((await self.client.ask("stats", topic=_TOPIC))["oldest_ready"] or 0) < 1

    async def is_full(self) -> bool:
        """Whether Redis has refused a job for want of room."""
        return await self.services[0].figure('jobqueue_redis_errors_total{code="NO_ROOM"}') > 0

    async def __aexit__(self, *exception: object) -> None:
        await self._stack.aclose()


async def add_for_ever(client: Client, topic: str = _TOPIC, number: int = 5, **fields: Any) -> None:
    """Some jobs every quarter of a second, taken or not."""
    while True:
        await client.batch([{"command": "add", "topic": topic, "body": "", **fields}] * number)
        await asyncio.sleep(0.25)


async def work_for_ever(client: Client, topic: str = _TOPIC, end: str = "finish") -> None:
    """Pop jobs of a topic and end each, with `finish` or `bury`."""
    while True:
        for job in (await client.ask("pop", topic=topic, count=50, wait=1)).get("jobs", []):
            await client.ask(end, id=job["id"], lease=job["lease"])


@contextlib.asynccontextmanager
async def background(*work: Any) -> AsyncIterator[None]:
    """Coroutines that run until the end of the block."""
    tasks = [asyncio.create_task(each) for each in work]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
