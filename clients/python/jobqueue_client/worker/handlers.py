"""The running handlers: one task per job, from its start until the end of the job is answered."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Coroutine, Mapping
from typing import Any

from jobqueue_client import commands
from jobqueue_client.errors import Refused
from jobqueue_client.job import Job, Lost
from jobqueue_client.worker.lease import Leases, lost_by
from jobqueue_client.worker.outbox import Outbox
from jobqueue_client.worker.outcome import Bury, Retry, outcome
from jobqueue_client.worker.report import Report, log
from jobqueue_client.worker.threads import Handler, HandlerThreads


class Handlers:
    """Runs up to `concurrency` handlers at a time."""

    def __init__(
        self, handlers: Mapping[str, Handler], concurrency: int, outbox: Outbox, leases: Leases, report: Report
    ) -> None:
        self._handlers = handlers
        self._concurrency = concurrency
        self._outbox = outbox
        self._leases = leases
        self._report = report
        self._threads = HandlerThreads(0 if all(map(is_async, handlers.values())) else concurrency)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._running: dict[Job, tuple[asyncio.Task[Any], float]] = {}
        self._freed = asyncio.Event()

    @property
    def running(self) -> int:
        """The number of running handlers."""
        return len(self._running)

    @property
    def room(self) -> int:
        """The number of jobs that can start now. A job keeps its slot until its end is answered."""
        return self._concurrency - len(self._running) - self._outbox.open

    async def has_room(self) -> None:
        """Wait until a job can start."""
        while self.room <= 0:
            await self._task_ended()

    async def idle(self) -> None:
        """Wait until no job is left."""
        while self._tasks:
            await self._task_ended()

    def begin(self, job: Job) -> None:
        """Start the handler of a job."""
        if job.ttr:  # its lease runs from now on, even if the handler has to wait for a thread
            self._leases.hold(job)
        self._running[job] = (self._start(self._work(job)), time.monotonic())

    def give_back(self, job: Job) -> None:
        """Release a job that was not started. One with TTR 0 cannot go back: it is started, or it would be lost."""
        if job.ttr:
            self._start(self._give_back(job))
        else:
            self.begin(job)

    def release_all(self) -> None:
        """Mark the jobs of the running handlers as lost, and release them."""
        for job in self._running:
            self._leases.drop(job)
            job.lose("stopping")
            if job.ttr and job.lost == "stopping":  # any other was lost before
                self._start(self._release(job, attempt=True))

    def abandon(self) -> None:
        """Stop waiting for handlers: async ones are cancelled, threads are left running."""
        running, self._running = self._running, {}
        for job, (task, began) in running.items():
            task.cancel()
            self._report_end("job.lost", job, time.monotonic() - began, job.lost)

    def close(self) -> None:
        """Cancel everything that has not ended."""
        self._threads.close()
        for task in self._tasks:
            task.cancel()

    async def _work(self, job: Job) -> None:
        began = time.monotonic()
        late_s = round(time.time() - job.due, 3)
        self._report.event("job.started", topic=job.topic, id=job.id, attempt=job.attempt, late_s=late_s)
        error = await self._attempt(job)
        self._leases.drop(job)
        if self._running.pop(job, None):  # otherwise abandoned: a handler may swallow its cancellation
            await self._end(job, began, error)

    async def _attempt(self, job: Job) -> BaseException | None:
        """Run the handler; gives the exception that it raised."""
        try:
            handler = self._handlers[job.topic]
            if not is_async(handler):
                return await self._threads.run(handler, job)
            await handler(job)
        except BaseException as error:  # even SystemExit: a handler may end its job, not the worker
            task = asyncio.current_task()
            if isinstance(error, asyncio.CancelledError) and task and task.cancelling():  # by `abandon` or `close`
                raise
            return error
        return None

    async def _end(self, job: Job, began: float, error: BaseException | None) -> None:
        seconds = time.monotonic() - began
        event, command, reason = outcome(job, error)
        if command is not None:
            try:
                await self._outbox.send(command)
            except Refused as refused:
                event, reason = "job.lost", lost_by(refused)
        trace = None if error is None or isinstance(error, Retry | Bury | Lost) else error
        self._report_end(event, job, seconds, reason, trace)

    def _report_end(
        self, event: str, job: Job, seconds: float, reason: str | None, trace: BaseException | None = None
    ) -> None:
        why = {} if event == "job.finished" else {"reason": reason}
        self._report.event(event, trace, topic=job.topic, id=job.id, seconds=round(seconds, 3), **why)

    async def _give_back(self, job: Job) -> None:
        if await self._release(job, attempt=False):
            self._report.event("job.returned", topic=job.topic, id=job.id)

    async def _release(self, job: Job, *, attempt: bool) -> bool:
        """Release a job without delay: the job is not to blame if this worker stops. False if it was refused."""
        try:
            await self._outbox.send(commands.release(job, delay=0, attempt=attempt).fields)
        except Refused as error:  # another worker has it by now
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
            log.error("a defect of jobqueue_client; the worker continues", exc_info=error)

    async def _task_ended(self) -> None:
        self._freed.clear()
        await self._freed.wait()


def is_async(handler: Handler) -> bool:
    """Whether a handler runs as a task, not in a thread."""
    call = getattr(handler, "__call__", None)  # noqa: B004  # a callable object may have an `async def __call__`
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(call)
