"""The handlers at work: one task for each job in hand, from its begin until its end was answered."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Coroutine, Mapping
from typing import Any

from jobqueue_client import commands
from jobqueue_client.ends import Ends
from jobqueue_client.errors import Refused
from jobqueue_client.events import Events, log
from jobqueue_client.job import Job, Lost
from jobqueue_client.leases import Leases, lost_by
from jobqueue_client.outcomes import Bury, Retry, outcome
from jobqueue_client.threads import Handler, Threads


class Crew:
    """Runs up to `concurrency` handlers at a time."""

    def __init__(
        self, handlers: Mapping[str, Handler], concurrency: int, ends: Ends, leases: Leases, events: Events
    ) -> None:
        self._handlers = handlers
        self._concurrency = concurrency
        self._ends = ends
        self._leases = leases
        self._events = events
        self._threads = Threads(0 if all(map(_is_async, handlers.values())) else concurrency)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._running: dict[Job, tuple[asyncio.Task[Any], float]] = {}
        self._freed = asyncio.Event()

    @property
    def running(self) -> int:
        """How many handlers run."""
        return len(self._running)

    @property
    def room(self) -> int:
        """How many jobs can begin at once. A handler keeps its place until the end of its job was answered."""
        return self._concurrency - len(self._running) - self._ends.open

    async def has_room(self) -> None:
        """Wait until a job can begin."""
        while self.room <= 0:
            await self._one_ends()

    async def idle(self) -> None:
        """Wait until no job is in hand."""
        while self._tasks:
            await self._one_ends()

    def begin(self, job: Job) -> None:
        """Start the handler of a job."""
        if job.ttr:  # its lease runs from now on, whenever the handler comes to its turn
            self._leases.hold(job)
        self._running[job] = (self._start(self._work(job)), time.monotonic())

    def give_back(self, job: Job) -> None:
        """Release a job that was not begun. One with TTR 0 cannot go back: it is begun, for else it would be gone."""
        if job.ttr:
            self._start(self._give_back(job))
        else:
            self.begin(job)

    def release_all(self) -> None:
        """Tell the handlers that still run that they are to stop, and release their jobs."""
        for job in self._running:
            self._leases.drop(job)
            job.lose("stopping")
            if job.ttr and job.lost == "stopping":  # else it is lost already
                self._start(self._release(job, attempt=True))

    def abandon(self) -> None:
        """Wait for the handlers no longer. Async ones are cancelled, threads are left."""
        running, self._running = self._running, {}
        for job, (task, began) in running.items():
            task.cancel()
            self._tell("job.lost", job, time.monotonic() - began, job.lost)

    def close(self) -> None:
        """Stop waiting for what has not ended."""
        self._threads.close()
        for task in self._tasks:
            task.cancel()

    async def _work(self, job: Job) -> None:
        began = time.monotonic()
        late_s = round(time.time() - job.due, 3)
        self._events.tell("job.started", topic=job.topic, id=job.id, attempt=job.attempt, late_s=late_s)
        error = await self._attempt(job)
        self._leases.drop(job)
        if self._running.pop(job, None):  # else abandoned: a handler may swallow that it is cancelled
            await self._tell_end(job, began, error)

    async def _attempt(self, job: Job) -> BaseException | None:
        """Run the handler; what it raised."""
        try:
            handler = self._handlers[job.topic]
            if not _is_async(handler):
                return await self._threads.run(handler, job)
            await handler(job)
        except BaseException as error:  # SystemExit too: a handler may end its job, not the worker
            task = asyncio.current_task()
            if isinstance(error, asyncio.CancelledError) and task and task.cancelling():  # by `abandon` or `close`
                raise
            return error
        return None

    async def _tell_end(self, job: Job, began: float, error: BaseException | None) -> None:
        seconds = time.monotonic() - began
        event, command, reason = outcome(job, error)
        if command is not None:
            try:
                await self._ends.send(command)
            except Refused as refused:
                event, reason = "job.lost", lost_by(refused)
        trace = None if error is None or isinstance(error, Retry | Bury | Lost) else error
        self._tell(event, job, seconds, reason, trace)

    def _tell(
        self, event: str, job: Job, seconds: float, reason: str | None, trace: BaseException | None = None
    ) -> None:
        why = {} if event == "job.finished" else {"reason": reason}
        self._events.tell(event, trace, topic=job.topic, id=job.id, seconds=round(seconds, 3), **why)

    async def _give_back(self, job: Job) -> None:
        if await self._release(job, attempt=False):
            self._events.tell("job.returned", topic=job.topic, id=job.id)

    async def _release(self, job: Job, *, attempt: bool) -> bool:
        """Another worker may have it at once: it is not the job's fault that this one stops. Whether it went back."""
        try:
            await self._ends.send(commands.release(job, delay=0, attempt=attempt).fields)
        except Refused as error:  # it is with another one already
            log.debug("the job %r could not be released: %s", job.id, error)
            return False
        return True

    def _start(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        self._freed.set()
        if not task.cancelled() and (error := task.exception()):
            log.error("a defect of jobqueue_client; the worker goes on", exc_info=error)

    async def _one_ends(self) -> None:
        self._freed.clear()
        await self._freed.wait()


def _is_async(handler: Handler) -> bool:
    call = getattr(handler, "__call__", None)  # noqa: B004  # of an object, perhaps with an `async def __call__`
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(call)
