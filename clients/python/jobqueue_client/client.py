"""The client for threads: blocking methods, one per command."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, Self, TypeVar, Unpack, overload

from jobqueue_client import answers, commands, fields
from jobqueue_client.access import Access, AccessFields
from jobqueue_client.answers import Answer
from jobqueue_client.calls import Call, many, one
from jobqueue_client.commands import Command
from jobqueue_client.connections import Connections
from jobqueue_client.errors import JobQueueError, Unreachable
from jobqueue_client.fields import Seconds
from jobqueue_client.http import UNAUTHORIZED, Reply, Request
from jobqueue_client.job import Job
from jobqueue_client.options import Addresses, Loads, Options, Route, loads, urls_of

T = TypeVar("T")


class Client:
    """A client of a job queue, for use from any number of threads, and in processes forked from this one.

    `url`: the service's URL, including its path prefix if it has one; or `urls`, if several instances share a Redis:
    when one instance is down, the next is tried. `timeout_s`: seconds to wait for an answer, on top of a pop's `wait`.
    `retry_for_s`: for how many seconds after the first failure temporary failures are retried; 0 turns retries off.
    `headers`: sent with every request. `token` or `token_file`: the token to send, by default from JOBQUEUE_TOKEN; the
    file is read again when its token is refused. `ca_file`, `cert_file`, `key_file`: PEM files for https URLs, whose
    certificates are always checked. `loads`: decodes the bytes of an answer, instead of json.loads.

    Every method raises Refused if the service refuses the command, Unreachable if no answer arrives, and ValueError or
    TypeError, before anything is sent, for a value that JSON cannot represent. docs/protocol.md describes the fields.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        urls: Sequence[str] | None = None,
        timeout_s: float = 10,
        connect_timeout_s: float = 3,
        retry_for_s: float = 1.5,
        headers: Mapping[str, str] | None = None,
        loads: Loads = loads,
        **access: Unpack[AccessFields],
    ) -> None:
        places = urls_of(url, urls)
        shown = Access.of(places, headers, **access)
        self._options = Options(places, timeout_s, connect_timeout_s, retry_for_s, headers or {}, shown, loads)
        self._addresses = Addresses(self._options.urls)
        self._connections = {url: Connections(url, self._options) for url in self._options.urls}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the idle connections."""
        for connections in self._connections.values():
            connections.close()

    def add(
        self, topic: str, body: Any = ..., delay: Seconds | None = None, **fields: Unpack[fields.AddFields]
    ) -> answers.Added:
        """Add a job, to be delivered after `delay` or at the time `at`; without either, at once. `body` may be omitted
        only with `if_exists` later or sooner: an existing job then keeps its body."""
        return self._ask(commands.add(topic, body, delay, **fields))

    def schedule(self, name: str, topic: str, body: Any, **fields: Unpack[fields.ScheduleFields]) -> answers.Scheduled:
        """Add a job repeatedly: `every` so many seconds, or by `cron` in a `zone`. Sending the same definition again
        changes nothing."""
        return self._ask(commands.schedule(name, topic, body, **fields))

    def unschedule(self, name: str) -> answers.Unscheduled:
        """Remove a schedule; the jobs that it has added stay."""
        return self._ask(commands.unschedule(name))

    def schedules(self, **fields: Unpack[fields.SchedulesFields]) -> answers.ScheduleList:
        """List schedules with their next times; pass the answer's `cursor` to get the next page."""
        return self._ask(commands.schedules(**fields))

    def pop(self, topics: str | Sequence[str], **fields: Unpack[fields.PopFields]) -> Job | None:
        """Reserve the next ready job of a topic, or of the first of several topics that has a ready job."""
        return self._ask(commands.pop(topics, **fields))

    def pop_many(self, topics: str | Sequence[str], count: int, **fields: Unpack[fields.PopFields]) -> list[Job]:
        """Reserve up to `count` ready jobs; `count` is 1 to 1,000."""
        return self._ask(commands.pop_many(topics, count, **fields))

    def finish(self, job: Job | str, **fields: Unpack[fields.FinishFields]) -> answers.Settled:
        """Mark a job as done."""
        return self._ask(commands.finish(job, **fields))

    def touch(self, job: Job | str, **fields: Unpack[fields.TouchFields]) -> answers.Touched:
        """Renew a job's lease, counting from now."""
        return self._ask(commands.touch(job, **fields))

    def release(self, job: Job | str, **fields: Unpack[fields.ReleaseFields]) -> answers.Timed:
        """Return a job to the queue: due after `delay`, or by default after the next step of its back-off."""
        return self._ask(commands.release(job, **fields))

    def bury(self, job: Job | str, **fields: Unpack[fields.BuryFields]) -> answers.Settled:
        """Make a job a dead letter, until it is kicked or deleted."""
        return self._ask(commands.bury(job, **fields))

    def delete(self, id: str, **fields: Unpack[fields.DeleteFields]) -> answers.Settled:
        """Cancel a job in any state, even while a worker has it."""
        return self._ask(commands.delete(id, **fields))

    def get(self, id: str) -> answers.Details:
        """Everything the service knows about a job."""
        return self._ask(commands.get(id))

    def explain(self, id: str, life: float | Literal["all"] | None = None) -> answers.Explained:
        """Explain why a job is in its state, and what happened to it. `life`: which life of the job, by its number
        (from 1) or its creation time, or `all`; None for the newest."""
        return self._ask(commands.explain(id, life))

    def run(self, id: str) -> answers.Timed:
        """Make a delayed job due now."""
        return self._ask(commands.run(id))

    def kick(self, id: str) -> answers.Kicked:
        """Make a dead job ready again."""
        return self._ask(commands.kick(id))

    def kick_topic(self, topic: str, count: int | None = None) -> answers.TopicKicked:
        """Make up to `count` dead jobs of a topic ready again; `count` is 1 (the default) to 1,000."""
        return self._ask(commands.kick_topic(topic, count))

    def update(self, id: str, **fields: Unpack[fields.UpdateFields]) -> answers.Timed:
        """Change a delayed or ready job; fields not given stay as they are. `body=None` sets the body to null."""
        return self._ask(commands.update(id, **fields))

    def peek(self, topic: str, **fields: Unpack[fields.PeekFields]) -> answers.Peeked:
        """List jobs of a topic without reserving them; pass the answer's `cursor` to get the next page."""
        return self._ask(commands.peek(topic, **fields))

    @overload
    def find(self, prefix: str, topic: str, **fields: Unpack[fields.FindFields]) -> answers.Found: ...

    @overload
    def find(self, prefix: str, **fields: Unpack[fields.FindFields]) -> answers.SearchBegun: ...

    def find(
        self, prefix: str, topic: str | None = None, **fields: Unpack[fields.FindFields]
    ) -> answers.Found | answers.SearchBegun:
        """List jobs of a topic whose ids begin with a prefix, without their bodies; pass the answer's `cursor` to get
        the next page, even after an empty one. Without a topic, the search runs in the background, and `operation`
        shows its results."""
        return self._ask(commands.find(prefix, topic, **fields))

    def topics(self, **fields: Unpack[fields.TopicsFields]) -> answers.Topics:
        """List topics with their counts; pass the answer's `cursor` to get the next page."""
        return self._ask(commands.topics(**fields))

    def stats(self, topic: str | None = None) -> answers.Stats:
        """The statistics of one topic, or of all topics together."""
        return self._ask(commands.stats(topic))

    def forecast(self, topic: str | None = None, hours: int | None = None) -> answers.Forecast:
        """Forecast how many jobs fall due, and how many jobs schedules will add, over the next `hours`, 1 to 744 (24 by
        default); for one topic, or for all topics together."""
        return self._ask(commands.forecast(topic, hours))

    def figures(self, **fields: Unpack[fields.FiguresFields]) -> answers.Figures:
        """Rates and lateness over time, by minute unless `step` says otherwise, across all instances."""
        return self._ask(commands.figures(**fields))

    def pause(self, topic: str, seconds: Seconds | None = None) -> answers.Paused:
        """Make pops of the topic return no jobs, for `seconds` or until the topic is resumed."""
        return self._ask(commands.pause(topic, seconds))

    def resume(self, topic: str) -> answers.Resumed:
        """End the pause of a topic."""
        return self._ask(commands.resume(topic))

    def purge(self, topic: str, **fields: Unpack[fields.PurgeFields]) -> answers.Purged:
        """Delete the jobs of a topic; repeat with the answer's `cursor` until it is null."""
        return self._ask(commands.purge(topic, **fields))

    def workers(self, topic: str | None = None) -> answers.Workers:
        """List the workers that poll: the topics and the instance that each polls, and its reserved jobs."""
        return self._ask(commands.workers(topic))

    def instances(self) -> answers.Instances:
        """List the processes of the service: where each runs, its version, and the timers that it holds."""
        return self._ask(commands.instances())

    def health(self) -> answers.Health:
        """Report what is wrong with the service, or may go wrong."""
        return self._ask(commands.health())

    def operation(self, do: str, **fields: Unpack[fields.OperationFields]) -> answers.OperationTold:
        """Change all jobs that match a filter, in the background: plan, start, pause, resume, cancel, get or list
        operations, as `do` says."""
        return self._ask(commands.operation(do, **fields))

    def leave(self, worker: str) -> answers.Left:
        """End the waiting pops of this worker now."""
        return self._ask(commands.leave(worker))

    def actions(self, **fields: Unpack[fields.ActionsFields]) -> answers.Actions:
        """List what people and operators did, newest first; pass the answer's `cursor` to get the next page."""
        return self._ask(commands.actions(**fields))

    def settings(self) -> answers.SettingsShown:
        """The settings of the service, and where each came from."""
        return self._ask(commands.settings())

    def whoami(self) -> answers.Identity:
        """What the token of this client may do, and until when."""
        return self._ask(commands.whoami())

    def token(self, action: str, **fields: Unpack[fields.TokenFields]) -> answers.TokenTold:
        """Create, list, show, revoke, rotate or test tokens, as the action says."""
        return self._ask(commands.token(action, **fields))

    def batch(self, commands: Sequence[Mapping[str, Any]]) -> list[Answer | JobQueueError]:
        """Send up to 1,000 commands, in the protocol's form, in one request. Returns each command's answer or error."""
        return self._run(many(commands, Route(self._addresses), self._options.retry_for_s, self._options.loads))

    def _ask(self, command: Command[T]) -> T:
        return self._run(one(command, Route(self._addresses), self._options.retry_for_s, self._options.loads))

    def _run(self, call: Call[T]) -> T:
        try:
            step = next(call)
            while True:
                if isinstance(step, Request):
                    step = call.send(self._post(step))
                else:
                    time.sleep(step)
                    step = next(call)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]  # the call's T

    def _post(self, request: Request) -> Reply | Unreachable:
        token, connections = self._options.access.token, self._connections[request.url]
        authorization = token.authorization
        try:
            reply = connections.post(request, authorization)
            if reply.status == UNAUTHORIZED and token.is_replaced(authorization):  # the refused request did nothing
                reply = connections.post(request, token.authorization)
        except Unreachable as error:
            return error
        return reply
