"""A shift: workers of one client on one topic of a stage, and the state of its jobs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.conformance.participants import Participant, Worker
from tests.conformance.stage import Stage
from tests.kit.waiting import until


class Shift:
    """Workers of one client on one topic of a stage."""

    def __init__(self, participant: Participant, stage: Stage, topic: str) -> None:
        self.participant, self.stage, self.topic = participant, stage, topic

    @asynccontextmanager
    async def worker(self, **options: Any) -> AsyncIterator[Worker]:
        """A worker that has started; killed at the end if it is still running."""
        async with self._at(self.stage.service.url, options) as worker:
            yield worker

    @asynccontextmanager
    async def worker_through_the_proxy(self, **options: Any) -> AsyncIterator[Worker]:
        """A worker with, by default, one handler at a time, so that its requests arrive one by one."""
        proxy = self.stage.proxy
        proxy.faults.clear()
        proxy.requests.clear()
        proxy.wanted_token = None
        async with self._at(proxy.url, {"concurrency": 1, **options}) as worker:
            yield worker

    @asynccontextmanager
    async def _at(self, url: str, options: dict[str, Any]) -> AsyncIterator[Worker]:
        if not self.participant.concurrent:
            options.pop("concurrency", None)
        async with Worker(self.participant, url, {"topics": [self.topic], **options}) as worker:
            await worker.event("worker.started")
            yield worker
            if worker.process.returncode is None:
                worker.process.kill()

    def sent(self, command: str) -> int:
        """The number of times that the proxy has seen a command."""
        return sum(each["command"] == command for request in self.stage.proxy.requests for each in request.commands)

    async def add(self, job_id: str, body: Any, **fields: Any) -> str:
        """Add a job; gives its id, which starts with the topic."""
        told = await self.stage.client.insist("add", topic=self.topic, id=f"{self.topic}:{job_id}", body=body, **fields)
        assert told["success"], told
        return str(told["id"])

    async def get(self, job_id: str) -> dict[str, Any]:
        told: dict[str, Any] = await self.stage.client.ask("get", id=job_id)
        return told

    async def becomes(self, job_id: str, state: str) -> dict[str, Any]:
        """Wait until a job is in a state; gives the answer to get."""

        async def there() -> bool:
            return bool((await self.get(job_id))["state"] == state)

        await until(there)
        return await self.get(job_id)

    async def reserved(self) -> int:
        return int((await self.stage.figures(self.topic))["reserved"])
