"""Load on a service, with a record of what was promised and what was delivered, for tests that break things."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from tests.kit.service import Client
from tests.kit.waiting import until

_LEAST = 100  # jobs that are some load

TOPICS = ("order-close", "payment-poll", "call-back")


@dataclass
class Delivery:
    """A delivered job. Times in seconds of Redis's clock: a lease is the time of the delivery in µs."""

    id: str
    due: float
    at: float
    attempt: int


@dataclass
class Load:
    """Producers and workers on one or more services, until they are stopped."""

    urls: list[str]
    ttr_s: float = 1.0
    longest_delay_s: float = 1.5
    acknowledged: dict[str, float] = field(default_factory=dict)
    acknowledged_at: dict[str, float] = field(default_factory=dict)  # s, of time.monotonic
    deliveries: list[Delivery] = field(default_factory=list)
    finished: set[str] = field(default_factory=set)
    refused: list[Any] = field(default_factory=list)
    producing: bool = True
    _stop: asyncio.Event = field(default_factory=asyncio.Event)

    async def produce(self, name: str, seed: int) -> None:
        chance = random.Random(seed)
        async with Client(self.urls[seed % len(self.urls)]) as client:
            number = 0
            while self.producing:
                number += 1
                job, delay = f"{name}-{number}", round(chance.uniform(0, self.longest_delay_s), 3)
                fields = {"topic": chance.choice(TOPICS), "id": job, "delay": delay, "ttr": self.ttr_s}
                answer = await client.insist("add", body=number, tries=0, retention=600, **fields)
                if answer["success"]:
                    self.acknowledged[job] = answer["due"]
                    self.acknowledged_at[job] = time.monotonic()
                else:
                    self.refused.append(answer)
                await asyncio.sleep(0.002)

    async def work(self, place: int) -> None:
        async with Client(self.urls[place % len(self.urls)]) as client:
            while not self._stop.is_set():
                with contextlib.suppress(aiohttp.ClientError, ConnectionError):
                    answer = await client.ask("pop", topics=TOPICS, count=5, wait=0.5)
                    for job in answer.get("jobs", ()):
                        await self._finish(client, job)

    async def _finish(self, client: Client, job: dict[str, Any]) -> None:
        self.deliveries.append(Delivery(job["id"], job["due"], job["lease"] / 1e6, job["attempt"]))
        # Repeated until it is answered: the job may be finished and the answer lost with the service.
        answer = await client.insist("finish", id=job["id"], lease=job["lease"])
        if answer["success"]:
            self.finished.add(job["id"])
        elif answer["code"] != "STALE_LEASE":
            self.refused.append(answer)

    @contextlib.asynccontextmanager
    async def running(self, producers: int = 3, workers: int = 4) -> AsyncIterator[None]:
        """Apply load while the block runs, and on a busy machine for longer, until it was some; then wait until every
        acknowledged job is finished."""
        async with asyncio.TaskGroup() as group:
            makers = [group.create_task(self.produce(f"p{each}", each)) for each in range(producers)]
            for each in range(workers):
                group.create_task(self.work(each))
            try:
                yield
                await until(lambda: len(self.acknowledged) > _LEAST)
                self.producing = False
                await asyncio.wait(makers)
                await self.drained()
            finally:
                self.producing = False
                self._stop.set()

    def forgive(self, since: float, until: float) -> None:
        """Excuse the loss of what was acknowledged between two times."""
        for job, at in self.acknowledged_at.items():
            if since <= at <= until and job not in self.finished:
                self.acknowledged.pop(job, None)

    async def drained(self, within_s: float = 60) -> None:
        """Wait until every acknowledged job is finished."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while self.acknowledged.keys() - self.finished:  # noqa: ASYNC110 - workers of other tasks do it
                    await asyncio.sleep(0.05)

    def check(self) -> None:
        """Nothing lost, nothing early, nothing delivered that nobody added, no odd answer."""
        lost = self.acknowledged.keys() - self.finished
        assert not lost, f"{len(lost)} of {len(self.acknowledged)} acknowledged jobs were lost: {sorted(lost)[:5]}"
        early = [each for each in self.deliveries if each.at < each.due]
        assert not early, f"{len(early)} deliveries were early: {early[:5]}"
        assert not self.refused, self.refused[:5]
