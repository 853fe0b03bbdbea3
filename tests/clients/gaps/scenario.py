"""The scenario: two instances on one Redis, each of which is stopped and killed in turn, while jobs fall due.

A worker's gap is the longest time in which it receives nothing, although a job falls due every 5 ms. It counts from
the signal on, and so includes the takeover of the timers. Jobs that the worker holds at a kill may come a second time;
those are counted apart. Each run first measures the gap while nothing happens: the share of the machine in the others.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jobqueue_client import AsyncClient

from tests.clients.gaps.programs import Program
from tests.kit.redis_server import RedisServer
from tests.kit.service import ServiceProcess
from tests.kit.waiting import until

TOPIC = "gaps"
EVERY_S = 0.005  # a job falls due this often
AHEAD_S = 2.0  # jobs are added this long before they are due, so that the producer's own gaps do not show
WINDOW_S = 1.5  # after the signal, in which a gap belongs to it
WAYS = ("none", "stop", "kill")  # what is done to an instance
JOBS_AFTER = 50  # that arrive through the other instance before the first one is started again


@dataclass
class Received:
    """What the worker wrote."""

    times: list[float] = field(default_factory=list)
    ids: set[str] = field(default_factory=set)
    again: int = 0

    def add(self, line: dict[str, Any]) -> None:
        self.again += line["id"] in self.ids
        self.ids.add(line["id"])
        self.times.append(line["at"])

    def gap(self, since: float) -> float:
        """The longest time without a job in the window after `since`."""
        before = max((at for at in self.times if at <= since), default=since)
        within = sorted(at for at in self.times if since < at <= since + WINDOW_S)
        return max(later - sooner for sooner, later in itertools.pairwise([before, *within, since + WINDOW_S]))


@dataclass
class Result:
    """What one run showed."""

    gaps: dict[str, list[float]] = field(default_factory=lambda: {way: [] for way in WAYS})
    """In seconds, by what was done to an instance."""
    added: int = 0
    received: Received = field(default_factory=Received)
    unfinished: int = 0


async def run(program: Program, folder: Path, log: int | None = None) -> Result:
    """Run the scenario once with a worker."""
    with RedisServer(folder) as redis:
        instances = [ServiceProcess("--redis", redis.url) for _ in range(2)]
        async with instances[0], instances[1]:
            return await _Run(program, instances, log).run()


class _Run:
    def __init__(self, program: Program, instances: list[ServiceProcess], log: int | None) -> None:
        self._program = program
        self._instances = instances
        self._urls = [instance.url for instance in instances]
        self._log = log
        self.result = Result()

    async def run(self) -> Result:
        async with AsyncClient(urls=self._urls, retry_for_s=60) as client, self._working(), self._adding(client):
            await self._arrive(JOBS_AFTER)
            for way in WAYS:
                for instance in self._instances:
                    await self._lose(instance, way)
        return self.result

    async def _lose(self, instance: ServiceProcess, way: str) -> None:
        """Stop or kill an instance, see that jobs go on through the other one, and start it again."""
        ways: dict[str, Callable[[], Awaitable[object]]] = {"stop": instance.stop, "kill": instance.kill}
        end = ways.get(way, _nothing)
        begun = time.monotonic()
        ending = asyncio.create_task(_await(end))
        await until(lambda: time.monotonic() > begun + WINDOW_S)
        await ending
        await self._arrive(JOBS_AFTER)
        self.result.gaps[way].append(self.result.received.gap(begun))
        if way != "none":
            await instance.start()
        await self._arrive(JOBS_AFTER)

    async def _arrive(self, more: int) -> None:
        """Wait until this many more jobs have arrived."""
        received = self.result.received.ids
        wanted = len(received) + more
        await until(lambda: len(received) >= wanted, within_s=30)

    @contextlib.asynccontextmanager
    async def _adding(self, client: AsyncClient) -> AsyncIterator[None]:
        """Add jobs ahead of time."""
        over = asyncio.Event()
        adding = asyncio.create_task(self._add(client, over))
        try:
            yield
        finally:
            over.set()
            await adding

    async def _add(self, client: AsyncClient, over: asyncio.Event) -> None:
        due = time.time() + 0.5
        while not over.is_set():
            batch: list[dict[str, Any]] = []
            while due < time.time() + AHEAD_S and len(batch) < 1000:
                batch.append(
                    {"command": "add", "topic": TOPIC, "id": f"gap:{self.result.added}", "body": 1, "at": due, "ttr": 3}
                )
                self.result.added += 1
                due += EVERY_S
            if batch:
                answers = await client.batch(batch)
                assert not any(isinstance(answer, Exception) for answer in answers), answers
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(over.wait(), 0.2)

    @contextlib.asynccontextmanager
    async def _working(self) -> AsyncIterator[None]:
        """The worker, until every job is finished."""
        received = self.result.received
        async with self._program.running(json.dumps(self._urls), TOPIC, log=self._log, heard=received.add):
            yield
            await self._all_finished()

    async def _all_finished(self) -> None:
        """Wait for the last jobs, those of a kill included, which come after their TTR."""
        async with AsyncClient(urls=self._urls, retry_for_s=60) as client:

            async def none_left() -> bool:
                counts = (await client.stats(TOPIC))["counts"]
                self.result.unfinished = sum(counts.values())
                return not self.result.unfinished

            await until(none_left, within_s=60, every_s=0.1)


async def _nothing() -> None:
    pass


async def _await(end: Callable[[], Awaitable[object]]) -> None:
    await end()
