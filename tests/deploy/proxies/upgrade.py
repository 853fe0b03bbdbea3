"""The upgrade of docs/upgrade.md behind proxies: two instances are replaced in turn by another version, and back, while
workers in three languages get jobs through nginx and through HAProxy.

The gap of a worker is the longest time in which it receives nothing while an instance is replaced, although a job falls
due every 10 ms. The first step replaces nothing: it shows the share of the machine in the others.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jobqueue_client import AsyncClient

from tests.clients.gaps.programs import Program
from tests.deploy.proxies.programs import PROXIES, Proxy
from tests.kit.redis_server import RedisServer
from tests.kit.service import JOBQUEUE
from tests.kit.waiting import until
from tests.packaging.older import Older
from tests.packaging.test_upgrade import Place, both_find_no_fault, two_places

EVERY_S = 0.01  # a job falls due this often, for each worker
AHEAD_S = 2.0  # jobs are added this long before they are due, so that the producer's own gaps do not show
JOBS = 50  # that each worker gets in each step at least
PATIENCE_S = 60.0
STEPS = ("nothing", "upgrade first", "upgrade second", "downgrade first", "downgrade second")


@dataclass
class Worked:
    """A worker's program behind a proxy, its jobs, and what it received."""

    program: Program
    proxy: Proxy
    every_s: float
    """Between two jobs."""
    added: int = 0
    times: list[float] = field(default_factory=list)
    ids: set[str] = field(default_factory=set)
    again: int = 0
    early: list[Any] = field(default_factory=list)
    gaps: dict[str, float] = field(default_factory=dict)
    """In seconds, by the step."""

    @property
    def topic(self) -> str:
        return f"{self.program.name}-{self.proxy.name}"

    def receive(self, line: dict[str, Any]) -> None:
        """Note a line of the worker. A lease is the time of the delivery in µs, and like the due time Redis's."""
        self.again += line["id"] in self.ids
        self.ids.add(line["id"])
        self.times.append(line["at"])
        if line["lease"] < round(line["due"] * 1e6):
            self.early.append(line)

    def gap(self, since: float) -> float:
        """The longest time between two jobs, of which the second came after `since`, in seconds."""
        return max((later - sooner for sooner, later in itertools.pairwise(self.times) if later > since), default=0.0)


@dataclass
class Result:
    """What a run showed."""

    workers: list[Worked]
    errors: dict[str, int]
    """The answers of 500 and above that clients got, by the proxy; they repeated these requests."""


async def run(
    programs: Sequence[tuple[Program, type[Proxy]]], older: Older, folder: Path, every_s: float = EVERY_S
) -> Result:
    """Replace both instances and go back, in a folder for logs, with these workers, for each of which a job falls due
    every so many seconds."""
    old = [older.program]
    with RedisServer(folder) as redis:
        async with two_places(redis.url, folder) as places, contextlib.AsyncExitStack() as stack:
            await asyncio.gather(*(place.run(old) for place in places))
            ports = [place.service.port for place in places if place.service]
            proxies = {kind: await stack.enter_async_context(kind(folder, ports)) for kind in PROXIES}
            workers = [Worked(program, proxies[kind], every_s) for program, kind in programs]
            await _Upgrade(places, workers, [*proxies.values()]).run(old)
            await both_find_no_fault(older, redis.url)
            for place in places:
                place.check_log()
            return Result(workers, {each.name: await each.errors() for each in proxies.values()})


class _Upgrade:
    def __init__(self, places: list[Place], workers: list[Worked], proxies: list[Proxy]) -> None:
        self._places = places
        self._workers = workers
        self._proxies = proxies

    async def run(self, old: Sequence[str]) -> None:
        first, second = self._places
        moves = [(first, JOBQUEUE), (second, JOBQUEUE), (first, old), (second, old)]
        async with contextlib.AsyncExitStack() as stack:
            for worker in self._workers:
                await stack.enter_async_context(_working(worker))
                await stack.enter_async_context(_adding(worker))
            await self._all_get_jobs()
            await self._step(STEPS[0])
            for name, (place, program) in zip(STEPS[1:], moves, strict=True):
                await self._step(name, place, program)

    async def _step(self, name: str, place: Place | None = None, program: Sequence[str] = ()) -> None:
        """SIGTERM, the other version, and on once each proxy sends it requests: the steps of docs/upgrade.md."""
        begun = time.monotonic()
        if place:
            await place.run(program)
            for proxy in self._proxies:
                await until(lambda proxy=proxy: proxy.uses(place.port), PATIENCE_S, 0.05)  # type: ignore[misc]
            await until(place.holds_locks, PATIENCE_S)
        await self._all_get_jobs()
        for worker in self._workers:
            worker.gaps[name] = worker.gap(begun)

    async def _all_get_jobs(self) -> None:
        for worker in self._workers:
            wanted = len(worker.ids) + JOBS
            await until(lambda worker=worker, wanted=wanted: len(worker.ids) >= wanted, PATIENCE_S)  # type: ignore[misc]


@contextlib.asynccontextmanager
async def _adding(worker: Worked) -> AsyncIterator[None]:
    """Add jobs ahead of time, through the worker's proxy; a client's error ends the run. Then wait until all are
    finished."""
    over = asyncio.Event()
    async with AsyncClient(worker.proxy.url, ca_file=worker.proxy.ca) as client:
        adding = asyncio.create_task(_add(worker, client, over))
        try:
            yield
        finally:
            over.set()
            await adding

        async def none_left() -> bool:
            return not sum((await client.stats(worker.topic))["counts"].values())

        await until(none_left, PATIENCE_S, every_s=0.1)


async def _add(worker: Worked, client: AsyncClient, over: asyncio.Event) -> None:
    due = time.time() + 0.5
    while not over.is_set():
        batch: list[dict[str, Any]] = []
        while due < time.time() + AHEAD_S:
            job = {"id": f"{worker.topic}:{worker.added}", "topic": worker.topic, "body": 1, "at": due, "ttr": 3}
            batch.append({"command": "add", **job})
            worker.added += 1
            due += worker.every_s
        answers = await client.batch(batch) if batch else []
        assert not any(isinstance(answer, Exception) for answer in answers), answers
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(over.wait(), 0.2)


@contextlib.asynccontextmanager
async def _working(worker: Worked) -> AsyncIterator[None]:
    """The worker's process, which must end in order."""
    arguments = (json.dumps([worker.proxy.url]), worker.topic, str(worker.proxy.ca))
    with (worker.proxy.folder / f"{worker.topic}.log").open("wb") as log:
        async with worker.program.running(*arguments, log=log, heard=worker.receive) as process:
            yield
    assert process.returncode == 0
