"""Load by one dialect on a service that is broken meanwhile, with a record of what was promised and delivered."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

from tests.kit.waiting import until
from tests.wires.drivers import Driver, RefusedError, Taken

TOPIC = "load/q"
_LEAST = 50  # jobs that are some load
_ANSWER_S = 5.0
_PAUSE_S = 0.02


@dataclass
class Load:
    """Producers and workers until they are stopped. `adder`, `popper`: make a client; its `ttr_s` is short. `is_empty`:
    whether the topic has no job left."""

    adder: Callable[[], Driver]
    popper: Callable[[], Driver]
    is_empty: Callable[[], Awaitable[bool]]
    longest_delay_s: float = 2.0
    due: dict[bytes, float] = field(default_factory=dict)
    """Of each job that was acknowledged, by its body."""
    deliveries: list[Taken] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    _producing: bool = True
    _working: bool = True

    async def _produce(self, name: str) -> None:
        chance = random.Random(name)
        number = 0
        async with self.adder() as client:
            while self._producing:
                number += 1
                body = f"{name}-{number}".encode()
                delay = chance.choice((0.0, chance.uniform(0, self.longest_delay_s)))
                delay = float(round(delay)) if client.SECONDS else round(delay, 3)
                async with self._trouble(client):
                    self.due[body] = (await client.add(TOPIC, body, delay_s=delay)).due
                await asyncio.sleep(0.005)

    async def _work(self) -> None:
        async with self.popper() as client:
            while self._working:
                async with self._trouble(client):
                    job = await client.pop(TOPIC, 1)
                    if job is not None:
                        self.deliveries.append(job)
                        await client.finish(job)

    @contextlib.asynccontextmanager
    async def _trouble(self, client: Driver) -> AsyncIterator[None]:
        """A service that is away, and its refusals meanwhile: try again on another connection."""
        try:
            async with asyncio.timeout(_ANSWER_S):
                yield
            return
        except (OSError, TimeoutError, ValueError):
            pass
        except RefusedError as error:
            self.refused.append(str(error))
        await client.close()
        await asyncio.sleep(_PAUSE_S)

    @contextlib.asynccontextmanager
    async def running(self, producers: int = 3, workers: int = 4) -> AsyncIterator[None]:
        """Apply load while the block runs, and on a busy machine for longer, until it was some; then wait until no job
        is left."""
        async with asyncio.TaskGroup() as group:
            makers = [group.create_task(self._produce(f"p{each}")) for each in range(producers)]
            for _ in range(workers):
                group.create_task(self._work())
            try:
                yield
                await until(lambda: len(self.due) > _LEAST)
                self._producing = False
                await asyncio.wait(makers)
                await self._drained()
            finally:
                self._producing = self._working = False

    async def _drained(self) -> None:
        with contextlib.suppress(TimeoutError):
            await until(self.is_empty, within_s=60, every_s=0.05)

    async def check(self) -> None:
        """Nothing acknowledged is lost, nothing stays, and none was early. (The answer to a finish may be lost with the
        service; so it is not asked which were finished.)"""
        assert await self.is_empty()
        lost = self.due.keys() - {job.body for job in self.deliveries}
        assert not lost, f"{len(lost)} of {len(self.due)} acknowledged jobs were lost: {sorted(lost)[:5]}"
        early = [job for job in self.deliveries if job.at < self.due.get(job.body, 0)]
        assert not early, f"{len(early)} deliveries were early: {early[:5]}"
