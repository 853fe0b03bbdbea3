"""The running handlers: one task per job, from its start until the service has answered how the job ended."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple

from jobqueue_client import commands
from jobqueue_client.errors import Refused
from jobqueue_client.job import Job, Lost
from jobqueue_client.tracing import traces
from jobqueue_client.worker.lease import Leases, lost_by
from jobqueue_client.worker.middleware import Handler, HandlerThreads, Middleware, call_of, is_async
from jobqueue_client.worker.outbox import Outbox
from jobqueue_client.worker.outcome import Bury, Outcome, Retry, outcome
from jobqueue_client.worker.report import Report
from jobqueue_client.worker.stopping import Limits

if TYPE_CHECKING:
    from opentelemetry.trace import Span


class Work(NamedTuple):
    """What a worker runs: a handler for each topic, and the middleware around all of them."""

    handlers: Mapping[str, Handler]
    middleware: Sequence[Middleware]


class Handlers:
    """Runs up to `concurrency` handlers at a time."""

    def __init__(
        self, work: Work, concurrency: int, limits: Limits, outbox: Outbox, leases: Leases, report: Report
    ) -> None:
        self._concurrency = concurrency
        self._limits = limits
        self._outbox = outbox
        self._leases = leases
        self._report = report
        self._threads = HandlerThreads(0 if all(map(is_async, work.handlers.values())) else concurrency)
        self._calls = {
            topic: call_of(handler, work.middleware, self._threads) for topic, handler in work.handlers.items()
        }
        self._tasks: set[asyncio.Task[Any]] = set()
        self._running: dict[Job, tuple[asyncio.Task[Any], float]] = {}
        self._freed = asyncio.Event()
        self._is_paused = False

    @property
    def running(self) -> int:
        """The number of running handlers."""
        return len(self._running)

    @property
    def room(self) -> int:
        """The number of jobs that can start now. A job keeps its slot until the command that ends it is answered."""
        return self.room_after(0)

    def room_after(self, ends: int) -> int:
        """The number of jobs that can start once this many more have ended."""
        if self._is_paused:
            return 0
        return min(self._concurrency - len(self._running) - self._outbox.open + ends, self._limits.left)

    def pause(self, *, paused: bool) -> None:
        """While `paused` is True, no job can start, even when others end."""
        self._is_paused = paused
        self._freed.set()

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
        self._limits.begin()
        self._running[job] = (self._start(self._work(job)), time.monotonic())

    def give_back(self, job: Job) -> None:
        """Release a job that was not started. A job with TTR 0 cannot be released: start it, or it would be lost."""
        if job.ttr:
            self._start(self._give_back(job))
        else:
            self.begin(job)

    def release_all(self) -> None:
        """Mark the jobs of the running handlers as lost, and release them."""
        for job, (_, began) in self._running.items():
            self._leases.drop(job)
            job.lose("stopping")
            if job.ttr and job.lost == "stopping":  # any other job was already lost
                self._start(self._take_away(job, time.monotonic() - began))

    def abandon(self) -> None:
        """Stop waiting for handlers: async ones are cancelled, threads are left running."""
        running, self._running = self._running, {}
        for job, (task, began) in running.items():
            task.cancel()
            self._report_end(job, Outcome("job.lost", None, job.lost), time.monotonic() - began)

    def close(self) -> None:
        """Cancel everything that has not ended."""
        self._threads.close()
        for task in self._tasks:
            task.cancel()

    async def _work(self, job: Job) -> None:
        with nullcontext() if traces is None else traces.processing(job) as span:
            await self._process(job, span)

    async def _process(self, job: Job, span: Span | None) -> None:
        began = time.monotonic()
        late_s = time.time() - (job.due if job.ready is None else job.ready)
        self._report.job("job.started", job, late_s=round(late_s, 3))
        error = await self._attempt(job)
        self._leases.drop(job)
        if self._running.pop(job, None):  # otherwise abandoned: a handler may swallow its cancellation
            await self._end(job, time.monotonic() - began, error, span)

    async def _attempt(self, job: Job) -> BaseException | None:
        """Run the handler; returns the exception that it raised, or None."""
        try:
            run, awaited = self._calls[job.topic]
            if not awaited:
                return await self._threads.run(run, job)
            await run(job)
        except BaseException as error:  # even SystemExit: a handler may end its job, not the worker
            task = asyncio.current_task()
            if isinstance(error, asyncio.CancelledError) and task and task.cancelling():  # by `abandon` or `close`
                raise
            return error
        return None

    async def _end(self, job: Job, seconds: float, error: BaseException | None, span: Span | None) -> None:
        defect = None if isinstance(error, Retry | Bury | Lost) else error
        if defect is not None:
            self._report.error(defect, job)
        end = outcome(job, error)
        state = None
        if end.command is not None:
            try:
                with nullcontext() if traces is None else traces.settling(end.command, job.topic, span):
                    state = await self._outbox.send(end.command)
            except Refused as refused:
                end = Outcome("job.lost", None, lost_by(refused))
        died = state == "dead" and end.event != "job.buried"
        if died and not end.reason:
            end = end._replace(reason="the ttl ran out")
        self._report_end(job, end, seconds, error, died=died)
        self._limits.end()
        if traces is not None and span is not None:
            traces.ended(span, defect, event="job.died" if died else end.event, reason=end.reason)

    def _report_end(
        self, job: Job, end: Outcome, seconds: float, error: BaseException | None = None, *, died: bool = False
    ) -> None:
        told: dict[str, Any] = {"seconds": round(seconds, 3), "reason": end.reason}
        match end:
            case Outcome("job.finished"):
                self._report.job("job.finished", job, seconds=told["seconds"])
            case Outcome("job.lost", _, "expired"):
                self._report.job("job.expired", job, seconds=told["seconds"])
            case Outcome("job.lost"):
                self._report.job("job.lost", job, **told)
            case Outcome("job.failed"):
                self._report.job("job.failed", job, trace=error, **told, error=error)
            case _ if not died:
                self._report.job(end.event, job, **told, error=error)
        if died:
            self._report.job("job.died", job, **told, error=error)
        if error is not None and (died or end.event == "job.buried"):
            self._report.death(job, told["reason"], error)

    async def _give_back(self, job: Job) -> None:
        if await self._release(commands.release(job, delay=0, attempt=False)):
            self._report.job("job.returned", job)

    async def _take_away(self, job: Job, seconds: float) -> None:
        if await self._release(commands.release(job, delay=0, reason="stopping")) == "dead":
            self._report.job("job.died", job, seconds=round(seconds, 3), reason="stopping", error=None)
            self._report.death(job, "stopping", None)

    async def _release(self, release: commands.Command[Any]) -> str | None:
        """Release a job without delay, because it is not at fault if this worker stops. Returns its state, or None if
        the release was refused."""
        try:
            return await self._outbox.send(release.fields) or "unknown"
        except Refused as error:  # another worker has it by now
            self._report.logger.debug("a job could not be released: %s", error)
            return None

    def _start(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        self._freed.set()
        if not task.cancelled() and (error := task.exception()):
            self._report.defect(error)

    async def _task_ended(self) -> None:
        self._freed.clear()
        await self._freed.wait()
