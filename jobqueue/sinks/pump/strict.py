"""The pump of a sink in strict order: it sends one job at a time, across all processes.

The right to send is itself a job, the turn, which one process holds; when that process dies, another one gets the turn.
A job that fails is noted, in a job beside the turn, before it is released: the process with the turn settles the noted
job before any other job of its topic.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
import time
from collections import deque
from collections.abc import AsyncIterator, Sequence, Set
from typing import Any, NamedTuple

import structlog
from jobqueue_client import AsyncClient, Bury, Job, JobQueueError, NotFound, Refused, Retry
from jobqueue_client.access import AccessFields
from jobqueue_client.answers import Details
from jobqueue_client.errors import Reserved
from jobqueue_client.retry import is_final
from jobqueue_client.worker.lease import Leases
from jobqueue_client.worker.report import Contact, Report

from jobqueue.sinks import Common, delivered_at
from jobqueue.sinks.pump.file import kind_of
from jobqueue.sinks.pump.messages import NotSent, Sender, TopicWaits
from jobqueue.sinks.pump.notices import Figures, Notices, loads
from jobqueue.sinks.pump.way import Pauses, Trial, Way

log = structlog.get_logger()

TURN_TTR_S = 10.0
_WAIT_S = 20.0
_A_LIFE_S = 10 * 365 * 86_400.0
_TEN_YEARS_S = 315_360_000
_LOOK_S = 5.0  # while a job waits for its next try: somebody may delete it, or run it
_AGAIN_S = 1.0  # after a failure of the service


class _TurnLost(Exception):
    """Another process has the turn by now."""


class _Held(NamedTuple):
    """The job that holds up its topic, and when to look at it again, by the loop's time."""

    job_id: str
    at: float


class StrictPump:
    """One sink at work."""

    def __init__(self, name: str, settings: Common, url: str, access: AccessFields, figures: Figures) -> None:
        self.name, self.settings = name, settings
        self._url, self._access = url, access
        self._notices = Notices(name, settings, url, access)
        self._way = Way(name, settings, figures, self._note_way, self._suspect, self._notices)
        self._sender = Sender(name, settings, self._way.send, figures)
        self._trial = Trial(settings)
        self._trial_sender = Sender(name, settings, self._trial.send, figures)
        self._pauses = Pauses(name, figures, self._notices)
        self._topics = deque(settings.topics)
        self._held: dict[str, _Held] = {}
        """By topic."""
        self._topic = f"sink-turn:{name}"
        self._note = f"{self._topic}:held"
        self._worker = f"sink-{name}-{secrets.token_hex(4)}"
        self._ahead_s = 0.0  # by how much Redis's clock is ahead of the monotonic one
        self._is_up, self._stopping, self._woken = asyncio.Event(), asyncio.Event(), asyncio.Event()
        figures.show(name)

    async def run(self) -> bool:
        """Work until stopped. Returns whether everything was settled. Raises the client's Refused."""
        sink = kind_of(self.settings).Sink(self.settings, self._way)
        report = Report()
        async with AsyncClient(self._url, loads=loads, **self._access) as self._client:
            self._leases = Leases(self._client, Contact(report), report, _A_LIFE_S)
            loops = [asyncio.create_task(run) for run in (self._way.run(sink), self._leases.run(), self._notices.run())]
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
        self._woken.set()
        self._is_up.set()
        self._way.stop()
        if self.settings.confirm_s is None:
            self._trial.stop()

    def try_again(self) -> None:
        """Try the way to the broker now, if it is down, and the topics that are held up."""
        self._way.try_again()
        self._held = {topic: held._replace(at=0.0) for topic, held in self._held.items()}
        self._woken.set()

    def _note_way(self, takes: bool) -> None:
        if takes or self._stopping.is_set():
            self._is_up.set()
        else:
            self._is_up.clear()

    def _suspect(self, topics: Set[str], reason: str) -> None:
        """Try these topics over connections of their own."""
        for topic in topics:
            self._pauses.failed(topic, reason)

    async def _work(self) -> None:
        is_lost = False
        while not self._stopping.is_set():
            await self._is_up.wait()
            try:
                async with self._turn() as turn:
                    if is_lost:
                        log.info("sink.continued", sink=self.name)
                    is_lost = False
                    if turn is not None:
                        await self._settle_all(turn)
            except _TurnLost:
                log.warning("sink.overtaken", sink=self.name)
            except JobQueueError as error:
                if is_final(error):
                    raise
                if not is_lost:
                    log.warning("sink.interrupted", sink=self.name, reason=str(error))
                is_lost = True
                await self._wait(_AGAIN_S)

    @contextlib.asynccontextmanager
    async def _turn(self) -> AsyncIterator[Job | None]:
        """The turn, or None if it was not available for a while."""
        await self._client.add(self._topic, None, id=self._topic, if_exists="renew", tries=0, ttr=TURN_TTR_S)
        turn = await self._popped([self._topic])
        if turn is None:
            yield None
            return
        self._ahead_s = delivered_at(turn.lease) - time.monotonic()
        self._leases.hold(turn)
        try:
            yield turn
        finally:
            self._leases.drop(turn)
            with contextlib.suppress(JobQueueError):  # else it comes back by itself
                await self._client.release(turn, delay=0, attempt=False)

    async def _settle_all(self, turn: Job) -> None:
        """Settle jobs, one after the other, while the broker accepts messages. Raises _TurnLost."""
        self._held = await self._left_over()
        while not self._stopping.is_set() and self._way.takes:
            job = await self._next()
            if turn.lost:
                raise _TurnLost
            if job is not None:
                await self._settle(job)

    async def _next(self) -> Job | None:
        """The job to settle next, or None if there is none for now. For a topic that is held up, it is the job that
        holds it up."""
        now = asyncio.get_running_loop().time()
        for topic, held in self._held.items():
            if held.at <= now:
                return await self._again(topic, held.job_id)
        self._topics.rotate(-1)
        wait_s = min([_WAIT_S, *(held.at - now for held in self._held.values())])
        if free := [topic for topic in self._topics if topic not in self._held]:
            return await self._popped(free, wait_s)
        await self._wait(wait_s)
        return None

    async def _settle(self, job: Job) -> None:
        """Settle a job, or release it if the broker does not accept its message."""
        if job.ttr:
            self._leases.hold(job)
        sender = self._trial_sender if job.topic in self._pauses else self._sender
        try:
            await sender.send(job)
        except Bury as end:
            await self._end(job, end)
        except TopicWaits as waits:
            await self._release(job, waits, self._pauses.failed(job.topic, waits.why))
            return
        except NotSent as again:
            pause_s = self._pauses.failed(job.topic, again.why) if sender is self._trial_sender else 0.0
            await self._release(job, again, pause_s)
            return
        except Retry as again:
            await self._release(job, again)
        else:
            await self._end(job, None)
        self._pauses.works(job.topic)

    async def _end(self, job: Job, end: Bury | None) -> None:
        """Finish or bury a job, which then no longer holds up its topic."""
        self._leases.drop(job)
        if job.ttr:
            try:
                await (self._client.bury(job, reason=end.reason) if end else self._client.finish(job))
            except Refused:
                self._sender.was_lost()
        await self._let_go(job.topic)

    async def _release(self, job: Job, again: Retry, pause_s: float = 0.0) -> None:
        """Release a job, which then holds up its topic. `pause_s`: for how many seconds it is not looked at."""
        self._leases.drop(job)
        if not job.ttr:
            await self._let_go(job.topic)
            return
        self._held[job.topic] = _Held(job.id, asyncio.get_running_loop().time() + pause_s)
        await self._write_note()
        attempt = None if again.attempt else False
        with contextlib.suppress(Refused):  # it was deleted, or has another lease: the note still names it
            await self._client.release(job, delay=again.after, attempt=attempt, reason=again.reason)

    async def _again(self, topic: str, job_id: str) -> Job | None:
        """The job that holds up its topic, or None if its time has not come yet, or if the job has ended."""
        known: Details | None = None
        with contextlib.suppress(NotFound):
            known = await self._client.get(job_id)
        if known is None or known["state"] not in ("delayed", "ready", "reserved"):
            await self._let_go(topic)
            return None
        left_s = known["until"] - self._ahead_s - time.monotonic() if known["state"] == "delayed" else 0.0
        if known.get("paused"):
            left_s = _LOOK_S
        job = await self._taken(job_id) if left_s <= 0 else None
        look_s = min(left_s, _LOOK_S) if left_s > 0 else _AGAIN_S
        self._held[topic] = _Held(job_id, asyncio.get_running_loop().time() + look_s)
        return job

    async def _left_over(self) -> dict[str, _Held]:
        """The jobs that failed last and are not settled yet, or that a dead process has left reserved."""
        noted = await self._noted()
        found = {topic: noted.get(topic) or await self._reserved(topic) for topic in self.settings.topics}
        return {topic: _Held(job_id, 0.0) for topic, job_id in found.items() if job_id}

    async def _noted(self) -> dict[str, str]:
        try:
            note = await self._client.get(self._note)
        except NotFound:
            return {}
        value: Any = note.get("value")
        return dict(json.loads(value)) if value and note["state"] == "delayed" else {}

    async def _write_note(self) -> None:
        """Note the jobs that hold up their topics."""
        ids = {topic: held.job_id for topic, held in self._held.items()}
        more: dict[str, Any] = {"if_exists": "replace", "tries": 0, "ttr": TURN_TTR_S}
        await self._client.add(self._topic, ids, _TEN_YEARS_S, id=self._note, **more)

    async def _let_go(self, topic: str) -> None:
        """Note that nothing holds up a topic any longer."""
        if self._held.pop(topic, None) is None:
            return
        if self._held:
            await self._write_note()
        else:
            with contextlib.suppress(Refused):
                await self._client.delete(self._note)

    async def _reserved(self, topic: str) -> str | None:
        """The job that a dead process had reserved, or None: only the process with the turn takes jobs of these
        topics."""
        peeked = await self._client.peek(topic, state="reserved", count=1)
        return peeked["jobs"][0]["id"] if peeked["jobs"] else None

    async def _taken(self, job_id: str) -> Job | None:
        """Reserve a job, even if another process had it. Returns None if it can no longer be reserved."""
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

    async def _popped(self, topics: Sequence[str], wait_s: float = _WAIT_S) -> Job | None:
        """The next job, or None if none came for a while, or the pump was woken."""
        popping = asyncio.create_task(self._client.pop(list(topics), wait=wait_s, worker=self._worker))
        await self._wait(wait_s + _AGAIN_S, popping)
        if not popping.done():
            with contextlib.suppress(JobQueueError):
                await self._client.leave(self._worker)
        return await popping

    async def _wait(self, seconds: float, *others: asyncio.Task[Any]) -> None:
        """Wait for a time, for other tasks, or to be woken."""
        if not self._stopping.is_set():
            self._woken.clear()
        woken = asyncio.create_task(self._woken.wait())
        await asyncio.wait({woken, *others}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        woken.cancel()
