"""The requests of a worker: long polls, and batches of job ends, each with a pop that does not wait."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from typing import Any

from jobqueue_client import commands
from jobqueue_client.answers import Answer
from jobqueue_client.async_client import AsyncClient
from jobqueue_client.calls import result_of
from jobqueue_client.commands import Command
from jobqueue_client.errors import JobQueueError, Unreachable
from jobqueue_client.job import Job
from jobqueue_client.retry import is_final, is_gone, longest_s, pause_s
from jobqueue_client.worker.handlers import Handlers
from jobqueue_client.worker.outbox import Outbox
from jobqueue_client.worker.report import Contact, Report, survive

_MOST_JOBS = 1000  # the protocol's limit for a pop
_LEAVE_S = 1.0


class Poll:
    """Sends one pop at a time, as a long poll or with job ends, for as many jobs as can start."""

    def __init__(
        self,
        client: AsyncClient,
        handlers: Handlers,
        contact: Contact,
        report: Report,
        topics: Iterable[str],
        name: str,
        poll_s: float,
    ) -> None:
        self._client = client
        self._handlers = handlers
        self._contact = contact
        self._report = report
        self._topics = deque(topics)
        self._paused: frozenset[str | None] = frozenset()
        self._asked: set[str] = set()
        """The topics that the last poll asked for."""
        self._name = name
        self._poll_s = poll_s
        self._in_flight: asyncio.Task[None] | None = None
        self._none_beside = asyncio.Event()
        self._none_beside.set()
        self._stopping = False
        self._failures = 0
        self._leaving: asyncio.Task[None] | None = None
        self._route = client.route()

    async def run(self) -> None:
        """Poll until stopped. Raises Refused if no retry can help."""
        while not self._stopping:
            await survive(self.tick, self._report)

    async def tick(self) -> None:
        """Poll once, as soon as jobs can start that no other pop is fetching; after a failure, pause."""
        await self._handlers.has_room()
        await self._none_beside.wait()
        free = self._handlers.room
        if self._stopping or free <= 0:  # this may have changed while waiting
            return
        self._in_flight = asyncio.create_task(self._pop(free))
        try:
            await self._in_flight
            self._failures = 0
            self._contact.answered()
        except JobQueueError as error:
            if is_final(error):
                raise
            self._failures += 1
            if is_gone(error) and self._route.goes_on:  # a poll is not safe to repeat, but the next one need not wait
                return
            self._contact.failed(error)
            await asyncio.sleep(pause_s(self._failures, error.retry_after))
        finally:
            self._in_flight = None

    @contextlib.contextmanager
    def beside(self, ends: int) -> Iterator[Command[list[Job]] | None]:
        """Yield the pop to send with this many ends, for the slots that they free and those already free; or None for
        no pop."""
        room = min(self._handlers.room_after(ends), _MOST_JOBS)
        if self._stopping or self._in_flight or room <= 0:
            yield None
            return
        self._none_beside.clear()
        try:
            yield commands.pop_many(self._rotated(), room, worker=self._name)
        finally:
            self._none_beside.set()

    def take(self, pop: Command[list[Job]], result: Answer | JobQueueError) -> None:
        """Start the jobs of a pop from `beside`. An error is ignored: the slots stay free, and the next poll reports
        it."""
        if not isinstance(result, JobQueueError):
            with contextlib.suppress(Unreachable):
                self._begin(result_of(pop, result))

    def pause(self, paused: frozenset[str | None]) -> None:
        """Ask for no jobs of these topics, and for none at all if None is among them. A waiting poll is ended unless it
        already asks for exactly the remaining topics; jobs that it still returns are started."""
        self._paused = paused
        self._handlers.pause(paused=None in paused or paused.issuperset(self._topics))
        if self._in_flight and self._leaving is None and self._asked != self._open:
            self._leaving = asyncio.create_task(self._leave())
            self._leaving.add_done_callback(self._has_left)

    @property
    def _open(self) -> set[str]:
        """The topics that a poll would ask for."""
        return set() if None in self._paused else {*self._topics} - {*self._paused}

    def _has_left(self, _: object) -> None:
        self._leaving = None

    async def stop(self) -> None:
        """Start no new jobs. A waiting poll ends at once; jobs that it still returns are released."""
        self._stopping = True
        if self._in_flight is None:
            return
        leave = asyncio.create_task(self._leave())
        await asyncio.wait({self._in_flight}, timeout=_LEAVE_S)  # an older service does not know `leave`
        leave.cancel()

    async def _leave(self) -> None:
        with contextlib.suppress(JobQueueError):
            await self._client.leave(self._name)

    async def _pop(self, free: int) -> None:
        # Do not wait after a failure, or only the next job would show that the service is back.
        wait_s = 0 if self._failures else self._poll_s
        topics = self._rotated()
        self._asked = set(topics)
        if not topics:  # all topics were paused meanwhile
            return
        pop = commands.pop_many(topics, min(free, _MOST_JOBS), wait=wait_s, worker=self._name)
        self._begin(await self._client.send(pop, self._route))

    def _rotated(self) -> list[str]:
        """The topics that are not paused, rotated so that each is first in turn."""
        self._topics.rotate(-1)
        return [topic for topic in self._topics if topic not in self._paused]

    def _begin(self, jobs: list[Job]) -> None:
        for job in jobs:
            if self._stopping:
                self._handlers.give_back(job)
            else:
                self._handlers.begin(job)


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
        """Send one request, and pause if any of its ends must be sent again."""
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
        """Whether the address is down and the next one must be tried at once."""
        gone = [each for each in again if isinstance(each, JobQueueError) and is_gone(each)]
        return bool(gone) and len(gone) == len(again) and self._route.goes_on
