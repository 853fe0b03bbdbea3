"""Running the handlers of a worker in a test: here, one job after the other, without polling, threads or touches."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from jobqueue_client.client import Client
from jobqueue_client.errors import JobQueueError
from jobqueue_client.job import Job, Lost
from jobqueue_client.worker import Worker
from jobqueue_client.worker.handlers import is_async
from jobqueue_client.worker.outcome import Bury, Retry, outcome
from jobqueue_client.worker.threads import Handler, attempt

_MOST_TIMES = 100  # that one job is delivered while the clock stands still


@dataclass(frozen=True)
class Done:
    """A job that was delivered, and how its handler ended."""

    job: Job
    outcome: str
    """`finished`, `failed`, `retried`, `buried` or `lost`, as in the events of a worker."""
    state: str
    """The job's state afterwards, such as `delayed` or `dead`."""
    error: BaseException | None
    """What the handler raised."""


class Draining:
    """One run over all that is ready in a worker's topics."""

    def __init__(self, client: Client, worker: Worker, *, raise_errors: bool) -> None:
        self._client = client
        self._handlers = worker._handlers
        self._raise_errors = raise_errors
        self._deliveries: Counter[str] = Counter()
        self._done: list[Done] = []

    def run(self) -> list[Done]:
        """Run all handlers in this thread."""
        with asyncio.Runner() as runner:
            for job in self._jobs():
                handler = self._handlers[job.topic]
                if is_async(handler):
                    self._end(job, runner.run(_attempt(handler, job)))
                else:
                    self._end(job, attempt(handler, job))
        return self._done

    async def run_async(self) -> list[Done]:
        """Run async handlers in the running loop, and the others in threads, as the worker does."""
        for job in self._jobs():
            handler = self._handlers[job.topic]
            if is_async(handler):
                self._end(job, await _attempt(handler, job))
            else:
                self._end(job, await asyncio.to_thread(attempt, handler, job))
        return self._done

    def _jobs(self) -> Iterator[Job]:
        topics = list(self._handlers)
        while job := self._client.pop(topics, worker="drain"):
            self._deliveries[job.id] += 1
            if self._deliveries[job.id] > _MOST_TIMES:
                raise AssertionError(f"{job.id} is ready again at once whenever it is delivered: it would never end")
            yield job

    def _end(self, job: Job, error: BaseException | None) -> None:
        event, command, _ = outcome(job, error)
        state = "finished"  # by its pop, if there is nothing to send
        if command is not None:
            (answer,) = self._client.batch([command])
            if isinstance(answer, JobQueueError):  # the test, or the handler's own code, ended it meanwhile
                event, state = "job.lost", getattr(answer, "state", None) or "unknown"
            else:
                state = answer["state"]
        self._done.append(Done(job, event.removeprefix("job."), state, error))
        if error and self._is_to_be_raised(error):
            raise error

    def _is_to_be_raised(self, error: BaseException) -> bool:
        if not isinstance(error, Exception):  # Ctrl-C, or the test's own end
            return True
        return self._raise_errors and not isinstance(error, Retry | Bury | Lost)


async def _attempt(handler: Handler, job: Job) -> BaseException | None:
    try:
        await handler(job)
    except Exception as error:
        return error
    return None
