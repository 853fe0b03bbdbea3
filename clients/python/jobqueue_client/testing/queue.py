"""The queue as a test sees it: its waiting jobs, its clock, and a way to run a worker's handlers.

Handlers run in the test, one job after another, without polling, threads or touches.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from jobqueue_client.answers import Details
from jobqueue_client.client import Client
from jobqueue_client.errors import JobQueueError
from jobqueue_client.fields import Moment, Seconds, moment, seconds
from jobqueue_client.job import Job, Lost
from jobqueue_client.worker.middleware import Handler, HandlerThreads, attempt, call_of
from jobqueue_client.worker.outcome import Bury, Outcome, Retry, outcome
from jobqueue_client.worker.worker import Worker

_MOST_TIMES = 100  # deliveries of one job while the clock stands still


@dataclass(frozen=True)
class Done:
    """A job that was delivered, and how its handler ended."""

    job: Job
    outcome: str
    """`finished`, `failed`, `retried`, `buried`, `died` or `lost`, as in the events of a worker."""
    state: str
    """The job's state afterwards, such as `delayed` or `dead`."""
    error: BaseException | None
    """The exception that the handler raised, or None."""


class Here(HandlerThreads):
    """No threads: sync handlers run in the thread of the test."""

    def __init__(self) -> None:
        super().__init__(0)

    async def run(self, handler: Handler, job: Job) -> BaseException | None:
        return attempt(handler, job)


class Beside(Here):
    """Runs each sync handler in a thread, because the test itself is a coroutine."""

    async def run(self, handler: Handler, job: Job) -> BaseException | None:
        return await asyncio.to_thread(attempt, handler, job)


class Draining:
    """One run through all ready jobs of a worker's topics."""

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
        """Run all handlers in this thread; an event loop runs only for async handlers."""
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
        """End the job; returns its outcome and its state."""
        if end.command is None:
            return end, "finished" if job.ttr == 0 else "reserved"
        (answer,) = self._client.batch([end.command])
        if not isinstance(answer, JobQueueError):
            return end, answer["state"]
        # The test, or the handler's own code, has ended the job.
        return Outcome("job.lost", None, str(answer)), getattr(answer, "state", None) or "unknown"


_NEAR_S = 1.0  # an assert treats times closer than this as equal: code under test reads the real clock
_ANY: Any = object()


@dataclass(frozen=True)
class QueuedJob:
    """A job that no worker has now."""

    id: str
    topic: str
    body: Any
    state: Literal["delayed", "ready", "dead"]
    due: float
    """In unix seconds."""
    delay: float
    """Seconds until it is ready; 0 unless it is delayed."""
    details: Details
    """Everything that the service reports about it."""

    def __str__(self) -> str:
        when = f"due in {timedelta(seconds=round(self.delay))}" if self.state == "delayed" else self.state
        return f"{self.topic} {self.id}, {when}: {self.body!r}"


class Queue:
    """An empty queue on a test service, whose clock stands still until `advance`."""

    def __init__(self, url: str) -> None:
        """Deletes everything in the service at `url`. Raises UnknownCommand if it is not a test service."""
        self.url = url
        self.client = Client(url)
        try:
            self.reset()
        except JobQueueError:
            self.close()
            raise

    def reset(self) -> None:
        """Forget all jobs and topics, and set the clock to the real time."""
        self._ask({"command": "reset"})

    @property
    def now(self) -> datetime:
        """The time of the queue's clock."""
        return datetime.fromtimestamp(self._clock(0), UTC)

    def advance(
        self, by: Seconds = 0, *, seconds: float = 0, minutes: float = 0, hours: float = 0, days: float = 0
    ) -> None:
        """Let time pass. Afterwards, all jobs that fell due are ready, and leases that ran out have ended.

        `by`: seconds or a timedelta, instead of or in addition to the other units.
        """
        more = by if isinstance(by, timedelta) else timedelta(seconds=by)
        span = more + timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
        self._clock(span.total_seconds())

    def drain(self, worker: Worker, *, raise_errors: bool = True) -> list[Done]:
        """Run the worker's handlers in this thread, one after another, until none of its topics has a ready job.

        Each job ends as in the worker itself, with its middleware, `on_error` and `on_death`. An error from a handler,
        except Retry, Bury and Lost, is raised once the job has ended, unless `raise_errors` is False. Returns the
        deliveries, in order.
        """
        return Draining(self.client, worker, Here(), raise_errors=raise_errors).run()

    async def drain_async(self, worker: Worker, *, raise_errors: bool = True) -> list[Done]:
        """Like `drain`, for tests that are coroutines: `async def` handlers run in the test's event loop."""
        return await Draining(self.client, worker, Beside(), raise_errors=raise_errors).run_async()

    def waiting(self, topic: str | None = None) -> list[QueuedJob]:
        """The jobs of a topic, or of all topics, that are delayed or ready, the earliest first."""
        jobs = [*self._jobs(topic, "delayed"), *self._jobs(topic, "ready")]
        return sorted(jobs, key=lambda job: (job.delay, job.due))

    def dead(self, topic: str | None = None) -> list[QueuedJob]:
        """The dead letters of a topic, or of all topics."""
        return list(self._jobs(topic, "dead"))

    def assert_waiting(
        self,
        topic: str,
        *,
        id: str | None = None,
        body: Any = _ANY,
        delay: Seconds | None = None,
        at: Moment | None = None,
    ) -> QueuedJob:
        """Fail unless exactly one waiting job of the topic matches; returns that job.

        `delay`: how long until it is ready, from now by the queue's clock; `at`: when it is due; both within a second.
        """
        waiting = self.waiting(topic)
        found = [job for job in waiting if _fits(job, id, body, delay, at)]
        given = {"id": id, "body": body, "delay": delay, "at": at}
        wanted = ", ".join(f"{name}={value!r}" for name, value in given.items() if value not in (None, _ANY))
        assert len(found) == 1, (
            f"{len(found)} jobs, not one, wait in {topic} with {wanted or 'any id'}; {_list(waiting)}"
        )
        return found[0]

    def assert_none_waiting(self, topic: str | None = None) -> None:
        """Fail if any job of the topic, or of any topic, is delayed or ready."""
        waiting = self.waiting(topic)
        assert not waiting, _list(waiting)

    def close(self) -> None:
        """Close the client's connections."""
        self.client.close()

    def _clock(self, advance_s: float) -> float:
        return float(self._ask({"command": "clock", "advance": advance_s})["now"])

    def _ask(self, command: Mapping[str, Any]) -> Mapping[str, Any]:
        (answer,) = self.client.batch([command])
        if isinstance(answer, JobQueueError):
            raise answer
        return answer

    def _jobs(self, topic: str | None, state: Literal["delayed", "ready", "dead"]) -> Iterator[QueuedJob]:
        now = self._clock(0)
        for each in [topic] if topic is not None else self._topics():
            cursor: str | None = ""
            while cursor is not None:
                page = self.client.peek(each, state=state, cursor=cursor or None)
                yield from (_queued(details, now) for details in page["jobs"])
                cursor = page["cursor"]

    def _topics(self) -> Iterator[str]:
        cursor: str | None = ""
        while cursor is not None:
            page = self.client.topics(cursor=cursor or None)
            yield from (row["topic"] for row in page["topics"])
            cursor = page["cursor"]


def _queued(details: Details, now: float) -> QueuedJob:
    state: Any = details["state"]
    ready_at = details["until"] if state == "delayed" else now
    delay = max(ready_at - now, 0.0)
    return QueuedJob(details["id"], details["topic"], details["value"], state, details["due"], delay, details)


def _fits(job: QueuedJob, id: str | None, body: Any, delay: Seconds | None, at: Moment | None) -> bool:
    return (
        (id is None or job.id == id)
        and (body is _ANY or job.body == body)
        and (delay is None or abs(job.delay - seconds(delay)) <= _NEAR_S)
        and (at is None or abs(job.due - _unix(at)) <= _NEAR_S)
    )


def _unix(at: Moment) -> float:
    value = moment(at)
    return datetime.fromisoformat(value).timestamp() if isinstance(value, str) else value


def _list(jobs: list[QueuedJob]) -> str:
    return "\n  ".join(["waiting now:", *map(str, jobs)]) if jobs else "no job is waiting"
