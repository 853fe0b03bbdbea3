"""The sender of the outbox: it sends the ends of jobs, and along with them a pop for the jobs that follow."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from typing import Any

from jobqueue_client.answers import Answer
from jobqueue_client.async_client import AsyncClient
from jobqueue_client.errors import JobQueueError
from jobqueue_client.retry import is_gone, longest_s, pause_s
from jobqueue_client.worker.contact import Contact
from jobqueue_client.worker.defects import survive
from jobqueue_client.worker.outbox import Outbox
from jobqueue_client.worker.poll import Poll
from jobqueue_client.worker.report import Report


class OutboxSender:
    """Sends one request at a time: all queued ends and, as its last command, a pop. Ends are sent until answered."""

    def __init__(self, client: AsyncClient, outbox: Outbox, poll: Poll, contact: Contact, report: Report) -> None:
        self._client = client
        self._outbox = outbox
        self._poll = poll
        self._contact = contact
        self._report = report
        self._failures = 0
        self._route = client.route()

    async def run(self) -> None:
        """Send until cancelled."""
        while True:
            await survive(self.tick, self._report)

    async def tick(self) -> None:
        """One request, and a pause if any of its ends must be sent again."""
        batch = await self._outbox.take()
        # No pop on a retry: its jobs would pile up behind the ends that keep being refused.
        with nullcontext() if self._failures else self._poll.beside(len(batch)) as pop:
            results = await self._send([end.command for end in batch] + ([pop.fields] if pop else []))
            again = self._outbox.settle(batch, results[: len(batch)])
            if pop:
                self._poll.take(pop, results[-1])
        self._failures = self._failures + 1 if again else 0
        if self._goes_on(again):
            return
        self._contact.batch_answered(results)
        if again:
            await asyncio.sleep(pause_s(self._failures, longest_s(again)))

    async def _send(self, commands: list[dict[str, Any]]) -> list[Answer | JobQueueError]:
        results: list[Answer | JobQueueError]
        try:
            results = await self._client.send_many(commands, self._route)
        except JobQueueError as error:
            results = [error] * len(commands)
        return results

    def _goes_on(self, again: list[Answer | JobQueueError]) -> bool:
        """Whether the address is gone and the next one is to be asked at once."""
        gone = [each for each in again if isinstance(each, JobQueueError) and is_gone(each)]
        return bool(gone) and len(gone) == len(again) and self._route.goes_on
