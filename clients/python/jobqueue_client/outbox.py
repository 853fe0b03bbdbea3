"""The way out for the ends of jobs, and with them in for the jobs that follow."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from typing import Any

from jobqueue_client.answers import Answer
from jobqueue_client.async_client import AsyncClient
from jobqueue_client.ends import Ends
from jobqueue_client.errors import JobQueueError
from jobqueue_client.loops import survive
from jobqueue_client.polling import Polling
from jobqueue_client.reach import Reach
from jobqueue_client.retry import longest_s, pause_s


class Outbox:
    """One request at a time with all ends that wait, and a pop as its last command. Ends are sent until answered."""

    def __init__(self, client: AsyncClient, ends: Ends, polling: Polling, reach: Reach) -> None:
        self._client = client
        self._ends = ends
        self._polling = polling
        self._reach = reach
        self._failures = 0

    async def run(self) -> None:
        """Send what comes, until cancelled."""
        while True:
            await survive(self.tick)

    async def tick(self) -> None:
        """One request; after it a pause, when an end of it must be sent again."""
        batch = await self._ends.take()
        # No pop with a repetition: else the ends that are refused for now would heap up.
        with nullcontext() if self._failures else self._polling.beside(len(batch)) as pop:
            results = await self._sent([end.command for end in batch] + ([pop.fields] if pop else []))
            again = self._ends.settle(batch, results[: len(batch)])
            if pop:
                self._polling.take(pop, results[-1])
        self._failures = self._failures + 1 if again else 0
        if again:
            await asyncio.sleep(pause_s(self._failures, longest_s(again)))

    async def _sent(self, commands: list[dict[str, Any]]) -> list[Answer | JobQueueError]:
        results: list[Answer | JobQueueError]
        try:
            results = await self._client.batch(commands)
        except JobQueueError as error:
            results = [error] * len(commands)
        self._reach.told(results)
        return results
