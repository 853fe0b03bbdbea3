"""The pump of a sink in strict order: one job of it at a time, over all processes.

The right to send is a job itself, the turn, which one process holds; when it dies, another gets it. A job that fails is
noted, in a job beside the turn, before it is released: whoever has the turn settles that one before any other.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
import time
from collections.abc import AsyncIterator
from typing import Any

import structlog
from jobqueue_client import AsyncClient, Bury, Job, JobQueueError, NotFound, Refused, Retry
from jobqueue_client.access.options import AccessFields
from jobqueue_client.errors import Reserved
from jobqueue_client.retry import is_final
from jobqueue_client.worker.contact import Contact
from jobqueue_client.worker.lease import Leases
from jobqueue_client.worker.report import Report

from jobqueue.sinks import Common
from jobqueue.sinks.pump.answers import loads
from jobqueue.sinks.pump.figures import Figures
from jobqueue.sinks.pump.file import kind_of
from jobqueue.sinks.pump.sender import Sender
from jobqueue.sinks.pump.way import Way

log = structlog.get_logger()

TURN_TTR_S = 10.0
_WAIT_S = 20.0
_A_LIFE_S = 10 * 365 * 86_400.0
_TEN_YEARS_S = 315_360_000
_LOOK_S = 5.0  # while a job waits for its next try: somebody may delete it, or run it
_AGAIN_S = 1.0  # after a failure of the service


class _TurnLost(Exception):
    """Another process has the turn by now."""


class StrictPump:
    """One sink at work."""

    def __init__(self, name: str, settings: Common, url: str, access: AccessFields, figures: Figures) -> None:
        self.name, self.settings = name, settings
        self._url, self._access = url, access
        self._way = Way(name, settings, figures, self._note_way)
        self._sender = Sender(name, settings, self._way, figures)
        self._topic = f"sink-turn:{name}"
        self._note = f"{self._topic}:held"
        self._worker = f"sink-{name}-{secrets.token_hex(4)}"
        self._is_up, self._stopping = asyncio.Event(), asyncio.Event()
        figures.show(name)

    async def run(self) -> bool:
        """Work until stopped. Whether everything had been settled. Raises Refused of the client."""
        sink = kind_of(self.settings).Sink(self.settings, self._way)
        report = Report()
        async with AsyncClient(self._url, loads=loads, **self._access) as self._client:
            self._leases = Leases(self._client, Contact(report), report, _A_LIFE_S)
            loops = [asyncio.create_task(run) for run in (self._way.run(sink), self._leases.run())]
            try:
                await self._work()
                return True
            finally:
                for loop in loops:
                    loop.cancel()
                await asyncio.gather(*loops, return_exceptions=True)

    def stop(self) -> None:
        """Take no more jobs, and end once the one in flight is settled."""
        self._stopping.set()
        self._is_up.set()
        self._way.stop()

    def try_again(self) -> None:
        """Try the way to the broker now, if it is down."""
        self._way.try_again()

    def _note_way(self, takes: bool) -> None:
        if takes or self._stopping.is_set():
            self._is_up.set()
        else:
            self._is_up.clear()

    async def _work(self) -> None:
        is_lost = False
        while not self._stopping.is_set():
            await self._is_up.wait()
            try:
                async with self._turn() as turn:
                    if turn is not None:
                        await self._settle_all(turn)
                is_lost = False
            except _TurnLost:
                log.warning("sink.overtaken", sink=self.name)
            except JobQueueError as error:
                if is_final(error):
                    raise
                if not is_lost:
                    log.warning("sink.interrupted", sink=self.name, reason=str(error))
                is_lost = True
                await self._pause(_AGAIN_S)

    @contextlib.asynccontextmanager
    async def _turn(self) -> AsyncIterator[Job | None]:
        """The turn; None: it did not come for a while."""
        await self._client.add(self._topic, None, id=self._topic, tries=0, ttr=TURN_TTR_S)
        turn = await self._popped([self._topic])
        if turn is None:
            yield None
            return
        self._leases.hold(turn)
        try:
            yield turn
        finally:
            self._leases.drop(turn)
            with contextlib.suppress(JobQueueError):  # else it comes back by itself
                await self._client.release(turn, delay=0, attempt=False)

    async def _settle_all(self, turn: Job) -> None:
        """Settle jobs, one after the other, while the broker takes them. Raises _TurnLost."""
        job = await self._left_over()
        while not self._stopping.is_set() and self._way.takes:
            if job is None:
                job = await self._popped(self.settings.topics)
            if turn.lost:
                raise _TurnLost
            if job is not None:
                job = await self._settle(job)

    async def _settle(self, job: Job) -> Job | None:
        """Settle a job as far as the broker lets; the same job where it is its turn again."""
        if job.ttr:
            self._leases.hold(job)
        try:
            await self._sender.send(job)
        except Bury as end:
            await self._end(job, end)
        except Retry as again:
            return await self._release(job, again)
        else:
            await self._end(job, None)
        return None

    async def _end(self, job: Job, end: Bury | None) -> None:
        """Finish or bury a job, and forget that it had failed."""
        self._leases.drop(job)
        if not job.ttr:
            return
        try:
            await (self._client.bury(job, reason=end.reason) if end else self._client.finish(job))
        except Refused:
            self._sender.was_lost()
        if job.attempt > 1 or job.ready is not None:
            await self._forget()

    async def _release(self, job: Job, again: Retry) -> Job | None:
        """Release a job that goes on holding up all behind it; returns it when its time has come."""
        self._leases.drop(job)
        if not job.ttr:
            return None
        await self._client.add(
            self._topic, {"id": job.id}, _TEN_YEARS_S, id=self._note, if_exists="replace", tries=0, ttr=TURN_TTR_S
        )
        attempt = None if again.attempt else False
        with contextlib.suppress(Refused):  # it was deleted, or has another lease: the note says which it is
            await self._client.release(job, delay=again.after, attempt=attempt, reason=again.reason)
        return await self._left_over() if again.attempt else None

    async def _left_over(self) -> Job | None:
        """The job that failed last and is not settled, or that a process which died has left."""
        noted = await self._noted()
        if noted is None:
            return await self._taken(await self._reserved())
        while not self._stopping.is_set() and self._way.takes:
            try:
                known = await self._client.get(noted)
            except NotFound:
                break
            if known["state"] not in ("delayed", "ready", "reserved"):
                break
            left_s = known["until"] - time.time() if known["state"] == "delayed" else 0.0
            if known.get("paused"):
                left_s = _LOOK_S
            if left_s <= 0:
                return await self._taken(noted)
            await self._pause(min(left_s, _LOOK_S))
        else:
            return None
        await self._forget()
        return None

    async def _noted(self) -> str | None:
        try:
            note = await self._client.get(self._note)
        except NotFound:
            return None
        value: Any = note.get("value")
        return json.loads(value)["id"] if value and note["state"] == "delayed" else None

    async def _forget(self) -> None:
        with contextlib.suppress(Refused):
            await self._client.delete(self._note)

    async def _reserved(self) -> str | None:
        """The job that a process which died had in hand: none but the one with the turn takes jobs of these topics."""
        for topic in self.settings.topics:
            peeked = await self._client.peek(topic, state="reserved", count=1)
            if peeked["jobs"]:
                return peeked["jobs"][0]["id"]
        return None

    async def _taken(self, job_id: str | None) -> Job | None:
        """Reserve a job, even from one that had it."""
        if job_id is None:
            return None
        try:
            return await self._popped_by_id(job_id)
        except Reserved:
            with contextlib.suppress(Refused):
                await self._client.release(job_id, delay=0, attempt=False)
            return await self._popped_by_id(job_id)
        except Refused:
            return None

    async def _popped_by_id(self, job_id: str) -> Job:
        (answer,) = await self._client.batch([{"command": "pop", "id": job_id, "worker": self._worker}])
        if isinstance(answer, JobQueueError):
            raise answer
        return Job.read(answer)

    async def _popped(self, topics: Any) -> Job | None:
        """The next job; None: none came for a while, or it is to stop."""
        popping = asyncio.create_task(self._client.pop(list(topics), wait=_WAIT_S, worker=self._worker))
        stopping = asyncio.create_task(self._stopping.wait())
        await asyncio.wait({popping, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not popping.done():
            with contextlib.suppress(JobQueueError):
                await self._client.leave(self._worker)
        return await popping

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
