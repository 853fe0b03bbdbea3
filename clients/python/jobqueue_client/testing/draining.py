"""Running the handlers of a worker in a test: here, one job after the other, without polling, threads or touches."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from jobqueue_client.client import Client
from jobqueue_client.errors import JobQueueError
from jobqueue_client.job import Job, Lost
from jobqueue_client.worker.middleware import call_of
from jobqueue_client.worker.outcome import Bury, Outcome, Retry, outcome
from jobqueue_client.worker.threads import Handler, HandlerThreads, attempt
from jobqueue_client.worker.worker import Worker

_MOST_TIMES = 100  # that one job is delivered while the clock stands still


@dataclass(frozen=True)
class Done:
    """A job that was delivered, and how its handler ended."""

    job: Job
    outcome: str
    """`finished`, `failed`, `retried`, `buried`, `died` or `lost`, as in the events of a worker."""
    state: str
    """The job's state afterwards, such as `delayed` or `dead`."""
    error: BaseException | None
    """What the handler raised."""


class Here(HandlerThreads):
    """No threads: sync handlers run where the test does."""

    def __init__(self) -> None:
        super().__init__(0)

    async def run(self, handler: Handler, job: Job) -> BaseException | None:
        return attempt(handler, job)


class Beside(Here):
    """A thread for each sync handler, as the test itself is a coroutine."""

    async def run(self, handler: Handler, job: Job) -> BaseException | None:
        return await asyncio.to_thread(attempt, handler, job)


class Draining:
    """One run over all that is ready in a worker's topics."""

    def __init__(self, client: Client, worker: Worker, threads: HandlerThreads, *, raise_errors: bool) -> None:
        if not isinstance(worker, Worker):
            raise TypeError(f"drain needs a Worker, not {worker!r}")
        self._client = client
        self._threads = threads
        self._raise_errors = raise_errors
        self._report = worker._report
        self._calls = {
            topic: call_of(handler, worker._middleware, threads) for topic, handler in worker._handlers.items()
        }
        self._deliveries: Counter[str] = Counter()
        self._done: list[Done] = []

    def run(self) -> list[Done]:
        """Run all handlers in this thread; an event loop runs only for what is async."""
        with asyncio.Runner() as runner:
            for job in self._jobs():
                handler, is_async = self._calls[job.topic]
                self._end(job, runner.run(self._attempt(job)) if is_async else attempt(handler, job))
        return self._done

    async def run_async(self) -> list[Done]:
        """Run async handlers in the running loop."""
        for job in self._jobs():
            self._end(job, await self._attempt(job))
        return self._done

    async def _attempt(self, job: Job) -> BaseException | None:
        handler, is_async = self._calls[job.topic]
        if not is_async:
            return await self._threads.run(handler, job)
        try:
            await handler(job)
        except Exception as error:
            return error
        return None

    def _jobs(self) -> Iterator[Job]:
        topics = list(self._calls)
        while job := self._client.pop(topics, worker="drain"):
            self._deliveries[job.id] += 1
            if self._deliveries[job.id] > _MOST_TIMES:
                raise AssertionError(f"{job.id} is ready again at once whenever it is delivered: it would never end")
            yield job

    def _end(self, job: Job, error: BaseException | None) -> None:
        is_defect = error is not None and not isinstance(error, Retry | Bury | Lost)
        if error is not None and is_defect:
            self._report.error(error, job)
        end, state = self._send(job, outcome(job, error))
        died = state == "dead" and end.event != "job.buried"
        if error is not None and state == "dead":
            self._report.death(job, end.reason or "the ttl ran out", error)
        word = "died" if died else end.event.removeprefix("job.")
        self._done.append(Done(job, word, state, error))
        if error is not None and (not isinstance(error, Exception) or (is_defect and self._raise_errors)):
            raise error

    def _send(self, job: Job, end: Outcome) -> tuple[Outcome, str]:
        """End the job; what became of it, and its state."""
        if end.command is None:
            return end, "finished" if job.ttr == 0 else "reserved"
        (answer,) = self._client.batch([end.command])
        if not isinstance(answer, JobQueueError):
            return end, answer["state"]
        # The test, or the handler's own code, has ended the job.
        return Outcome("job.lost", None, str(answer)), getattr(answer, "state", None) or "unknown"
