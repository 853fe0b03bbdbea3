"""The synchronous client."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

from jobqueue_client import answers, commands, fields
from jobqueue_client.answers import Answer
from jobqueue_client.commands import Command
from jobqueue_client.connections import Connections
from jobqueue_client.errors import JobQueueError, Unreachable
from jobqueue_client.exchange import Exchange, Post, many, one
from jobqueue_client.job import Job
from jobqueue_client.options import Options
from jobqueue_client.replies import Reply
from jobqueue_client.times import Seconds

T = TypeVar("T")


class Client:
    """A job queue. For use from any number of threads, and in processes forked from this one.

    `url`: of the service, with a path prefix where it has one. `timeout_s`: for an answer, beyond a pop's `wait`.
    `retry_for_s`: how long to repeat what failed for now, after the first failure; 0: not at all. `headers`: sent with
    each request. All methods raise Refused when the service says no, Unreachable when no answer came, and ValueError or
    TypeError, before anything is sent, for what cannot be JSON. The fields of each stand in docs/protocol.md.
    """

    def __init__(
        self,
        url: str,
        *,
        timeout_s: float = 10,
        connect_timeout_s: float = 3,
        retry_for_s: float = 10,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self._options = Options(url, timeout_s, connect_timeout_s, retry_for_s, headers or {})
        self._connections = Connections(self._options)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the kept connections."""
        self._connections.close()

    def add(self, topic: str, body: Any, **fields: Unpack[fields.AddFields]) -> answers.Added:
        """Keep a job until it is due."""
        return self._ask(commands.add(topic, body, **fields))

    def pop(self, topics: str | Sequence[str], **fields: Unpack[fields.PopFields]) -> Job | None:
        """Reserve the next ready job of a topic, or of the first of several that has one."""
        return self._ask(commands.pop(topics, **fields))

    def pop_many(self, topics: str | Sequence[str], count: int, **fields: Unpack[fields.PopFields]) -> list[Job]:
        """Reserve up to `count` ready jobs, 1,000 at most."""
        return self._ask(commands.pop_many(topics, count, **fields))

    def finish(self, job: Job | str, **fields: Unpack[fields.FinishFields]) -> answers.Told:
        """The job, or that with this id, is done."""
        return self._ask(commands.finish(job, **fields))

    def touch(self, job: Job | str, **fields: Unpack[fields.TouchFields]) -> answers.Touched:
        """Its lease runs anew from now."""
        return self._ask(commands.touch(job, **fields))

    def release(self, job: Job | str, **fields: Unpack[fields.ReleaseFields]) -> answers.Timed:
        """Give it back: due after `delay`, or after the next step of its back-off."""
        return self._ask(commands.release(job, **fields))

    def bury(self, job: Job | str, **fields: Unpack[fields.BuryFields]) -> answers.Told:
        """It is dead, until it is kicked or deleted."""
        return self._ask(commands.bury(job, **fields))

    def delete(self, id: str, **fields: Unpack[fields.DeleteFields]) -> answers.Told:
        """Cancel a job, with a worker or not."""
        return self._ask(commands.delete(id, **fields))

    def get(self, id: str) -> answers.Details:
        """All of a job."""
        return self._ask(commands.get(id))

    def run(self, id: str) -> answers.Timed:
        """A delayed job is due now."""
        return self._ask(commands.run(id))

    def kick(self, id: str) -> answers.Kicked:
        """A dead job is ready again."""
        return self._ask(commands.kick(id))

    def kick_topic(self, topic: str, count: int | None = None) -> answers.TopicKicked:
        """Up to `count` dead jobs of a topic are ready again, 1,000 at most; by default one."""
        return self._ask(commands.kick_topic(topic, count))

    def update(self, id: str, **fields: Unpack[fields.UpdateFields]) -> answers.Timed:
        """Change a job that is delayed or ready; what is not given stays. `body=None` makes the body null."""
        return self._ask(commands.update(id, **fields))

    def peek(self, topic: str, **fields: Unpack[fields.PeekFields]) -> answers.Peeked:
        """Look at jobs of a topic without reserving them; the answer's `cursor` leads on."""
        return self._ask(commands.peek(topic, **fields))

    def topics(self, **fields: Unpack[fields.TopicsFields]) -> answers.Topics:
        """Names and counts of topics; the answer's `cursor` leads on."""
        return self._ask(commands.topics(**fields))

    def stats(self, topic: str | None = None) -> answers.Stats:
        """The figures of a topic, or of all."""
        return self._ask(commands.stats(topic))

    def pause(self, topic: str, seconds: Seconds | None = None) -> answers.Paused:
        """Pops of the topic find nothing, for so long, or until it is resumed."""
        return self._ask(commands.pause(topic, seconds))

    def resume(self, topic: str) -> answers.Resumed:
        """End the pause of a topic."""
        return self._ask(commands.resume(topic))

    def purge(self, topic: str, **fields: Unpack[fields.PurgeFields]) -> answers.Purged:
        """Delete the jobs of a topic; while the answer has a `cursor`, there is more to do."""
        return self._ask(commands.purge(topic, **fields))

    def leave(self, worker: str) -> answers.Left:
        """The waiting pops of this worker end now."""
        return self._ask(commands.leave(worker))

    def batch(self, commands: Sequence[Mapping[str, Any]]) -> list[Answer | JobQueueError]:
        """Up to 1,000 commands, as the protocol has them, in one request: of each the answer, or the error."""
        return self._run(many(commands, self._options.retry_for_s))

    def _ask(self, command: Command[T]) -> T:
        return self._run(one(command, self._options.retry_for_s))

    def _run(self, exchange: Exchange[T]) -> T:
        try:
            step = next(exchange)
            while True:
                if isinstance(step, Post):
                    step = exchange.send(self._post(step))
                else:
                    time.sleep(step)
                    step = next(exchange)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]  # the exchange's T

    def _post(self, post: Post) -> Reply | Unreachable:
        try:
            return self._connections.post(post.data, self._options.timeout_s + post.wait_s)
        except Unreachable as error:
            return error
