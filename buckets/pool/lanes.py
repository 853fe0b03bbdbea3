"""Lanes: adds, finishes and pops of concurrent callers are sent to Redis together, and callbacks receive their results.

The calls made during one turn of the event loop are sent in one write at its end: one script for all finishes, one for
all adds, one for similar pops, in this order. There is no task, future or coroutine on the way, as these cost several
times as much as the work itself. Lanes never retry: a call that does not simply succeed is left to its caller, which
then uses the complete way, the methods of `Pool`.

A `Batch` holds the jobs of several callers for one script, and returns each caller its own results. A `SharedPop`
serves similar pops of concurrent callers in their order. It nearly always needs only one script: a script stops early
if bodies are large or many entries are stale, and then another script continues.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from buckets.errors import JobQueueError, NoRoom, Refused, Unanswered, Unavailable
from buckets.job import Job
from buckets.pool.codec import Prepared, new_in_runs, pack_groups, read_finished, read_results
from buckets.pool.limits import Closed, Limits
from buckets.pool.pop_search import Ask, Popped, read_reply, turns, way_of
from buckets.redis.client import judge, judge_all
from buckets.redis.link import ErrorReply, Link
from buckets.scripts import SCRIPTS, Value
from buckets.shards import MOST, MOST_BYTES, Shards

log = logging.getLogger(__name__)

Done = Callable[[Any], None]
"""Called once, with the outcome: a list with a result or error for each job, or a `Popped` for a pop; None if nothing
was done or the work may be repeated, so that the caller should use the complete way, with the same ids; a JobQueueError
if the work failed, though it may have been done."""


class Batch:
    """Jobs of several callers for one script, no id twice."""

    __slots__ = ("ids", "jobs", "parts", "size", "within")

    def __init__(self) -> None:
        self.parts: list[tuple[int, Done]] = []  # for each caller: how many jobs, and the callback for their results
        self.jobs: list[Any] = []
        self.ids: set[str] = set()
        self.size = 0  # bytes
        self.within = ""  # the condition of all adds: see `Pool.add`

    def has_room(self, jobs: int, size: int, ids: set[str]) -> bool:
        """Whether more jobs may join."""
        return len(self.jobs) + jobs <= MOST and self.size + size <= MOST_BYTES and self.ids.isdisjoint(ids)

    def join(self, jobs: Sequence[Any], size: int, ids: set[str], done: Done) -> None:
        """Add the jobs of one more caller."""
        self.parts.append((len(jobs), done))
        self.jobs += jobs
        self.ids |= ids
        self.size += size

    def settle(self, results: list[Any]) -> None:
        """Pass each caller the results of its jobs."""
        at = 0
        for jobs, done in self.parts:
            tell(done, results[at : at + jobs])
            at += jobs

    def fail(self, outcome: JobQueueError | None) -> None:
        """Pass all callers the same outcome."""
        for _, done in self.parts:
            tell(done, outcome)


def tell(done: Done, outcome: Any) -> None:
    """Pass one caller its outcome. A bug in one caller must not keep the others from getting theirs."""
    try:
        done(outcome)
    except Exception:
        log.exception("answer.failed")


def _may_be_tried_again(error: JobQueueError | None) -> bool:
    """Whether a lost connection was the only problem, and there is time left."""
    return type(error) is Unanswered


def tell_finished(batch: Batch, outcome: Any) -> None:
    """Pass the outcome to the callers that finished jobs. `outcome`: a list with the state or error of each job, or
    None or an error as for `Done`."""
    if isinstance(outcome, list):
        batch.settle(outcome)
    else:
        batch.fail(None if _may_be_tried_again(outcome) else outcome)


def tell_added(batch: Batch, outcome: Any) -> None:
    """As `tell_finished`, for callers that added jobs."""
    if isinstance(outcome, list):
        batch.settle(outcome)
        return
    at = 0
    for jobs, done in batch.parts:
        repeatable = all(job.shape.repeatable for job in batch.jobs[at : at + jobs])
        tell(done, None if repeatable and _may_be_tried_again(outcome) else outcome)
        at += jobs


class SharedPop:
    """Pops in progress."""

    __slots__ = ("_jobs", "_last", "_pops", "_room", "_want", "ask")

    def __init__(self, pops: Sequence[tuple[Ask, int, Done]]) -> None:
        """`pops`: for each its ask, how many jobs it wants, and the callback for its outcome. If there are several,
        each wants one job."""
        self.ask = pops[0][0]
        """What the pops ask for, except the worker."""
        self._pops = pops
        self._want = sum([count for _, count, _ in pops])
        self._room = self.ask.room * len(pops)
        self._jobs: list[Job] = []
        self._last = Popped()

    @property
    def wanted(self) -> int:
        """How many jobs the pops still want."""
        return self._want - len(self._jobs)

    def arguments(self, bucket: int) -> dict[str, Value]:
        """The arguments of the next script."""
        served = len(self._jobs)
        return {
            "bucket": bucket,
            "want": self.wanted,
            "room": max(self._room, 0),
            "always": 0 if served else 1,
            "ttr": self.ask.ttr,
            "workers": turns([(count, ask.worker) for ask, count, _ in self._pops], served),
        }

    def take(self, popped: Popped, more: bool) -> bool:
        """Record the reply of a script. `more`: whether there may be more jobs, since the script stopped early or
        another shard was not asked yet. Returns whether another script must continue."""
        self._last, jobs = popped, popped.jobs
        self._jobs += jobs
        if not more:
            return False
        self._room -= sum([len(job.raw) for job in jobs])
        return len(self._jobs) < self._want and (self._room > 0 or not self._jobs)

    @property
    def limited(self) -> tuple[Closed, ...]:
        """The topics whose limits hold back ready jobs, according to the last script."""
        return self._last.limited

    def settle(self) -> None:
        """Pass the jobs to the callers."""
        pops, jobs, last = self._pops, self._jobs, self._last
        shared = (last.left, last.opens_us, last.ask_why, last.limited)
        if len(pops) == 1:
            tell(pops[0][2], Popped(jobs, *shared))
            return
        for at, (_, _, done) in enumerate(pops):
            tell(done, Popped(jobs[at : at + 1], *shared))

    def fail(self, outcome: Any) -> None:
        """No script could continue: hand out the jobs, if there are any, and pass this outcome to the callers that get
        none."""
        served = len(self._jobs)
        if served and len(self._pops) == 1:
            self.settle()
            return
        for at, (_, _, done) in enumerate(self._pops):
            tell(done, Popped(self._jobs[at : at + 1]) if at < served else outcome)


_LONGEST_S = 0.01  # how long pops wait for those in flight

T = TypeVar("T")

Packed = tuple[dict[str, Value], Sequence[Value]]
"""The arguments of a script: the named ones, and the rest."""
Sent = Callable[[], None]
"""Called when jobs are sent to Redis: Redis handles later requests after them."""


class Late(Unanswered):
    """Redis did not answer in time; it may or may not have done the work."""


class Pops:
    """The pops of concurrent callers. A script of pops is expensive to start, so pops that arrive while one is in
    flight are collected, as with a database's group commit, and sent when it is answered, or after 10 ms."""

    def __init__(self, send: Callable[[SharedPop], None], overdue: Callable[[], None]) -> None:
        """`send`: begins to serve similar pops; `ended` must follow. `overdue`: is called when pops have waited for
        10 ms, and calls `send`."""
        self.collected: list[tuple[Ask, int, Done]] = []
        self._send_alike = send
        self._overdue = overdue
        self._in_flight = 0
        self._patience: asyncio.TimerHandle | None = None

    def withdraw(self, done: Done) -> None:
        """Forget a pop whose caller is gone, if it was not sent yet."""
        self.collected = [pop for pop in self.collected if pop[2] is not done]

    def send_in_time(self) -> None:
        """Send the pops, unless others are in flight."""
        if not self._in_flight:
            self.send()
        elif self._patience is None:
            self._patience = asyncio.get_running_loop().call_later(_LONGEST_S, self._overdue)

    def send(self) -> None:
        """Send the pops now."""
        if self._patience:
            self._patience.cancel()
            self._patience = None
        pops, self.collected = self.collected, []
        alike: dict[Any, list[tuple[Ask, int, Done]]] = {}
        for pop in pops:
            ask, count, _ = pop
            alike.setdefault((*ask[:4], bool(ask.worker)) if count == 1 else id(pop), []).append(pop)
        for some in alike.values():
            for first in range(0, len(some), MOST):
                self._in_flight += 1
                self._send_alike(SharedPop(some[first : first + MOST]))

    def ended(self) -> bool:
        """Note that similar pops were served; returns whether others may be sent."""
        self._in_flight -= 1
        return bool(self.collected) and not self._in_flight


class Lane:
    """The lane of one shard."""

    def __init__(
        self, shards: Shards, shard: int, bucket: Callable[[], int], called: Callable[[Lane], None] | None = None
    ) -> None:
        """`bucket`: returns the next bucket in turn. `called`: is told that the lane has jobs, and must call `leave` at
        the end of this turn; the lane of an only shard does that itself."""
        self._shards = shards
        self._redis = shards.redis
        self._keys = shards.keys[shard]
        self._bucket = bucket
        self._adds = Batch()
        self._finishes = Batch()
        self._pops = Pops(self._pop_alike, self._send_overdue)
        self._note_called = called or Lane._leave_later
        self._is_leaving = False  # whether `leave` is about to be called
        self._in_flight = 0
        self._quiet: asyncio.Future[None] | None = None
        self.closed = False
        """Whether the lane no longer accepts calls."""

    @property
    def is_open(self) -> bool:
        """Whether the lane accepts calls: Redis is connected, and reads."""
        return not self.closed and self._link() is not None

    def _link(self) -> Link | None:
        return self._redis.open_link(self._keys.meta)

    def add(self, jobs: Sequence[Prepared], done: Done, within: str = "") -> bool:
        """Add jobs. `done` is called later, with an Added or an error for each. Returns False if the jobs were not
        accepted, and nothing is done: the lane is not open, an id occurs twice, or they are too much for one script.
        `within`: as in `Pool.add`."""
        size = 0
        for job in jobs:
            size += len(job[3])
        ids = {job[1] for job in jobs}
        if not self._fits(ids, jobs, size):
            return False
        if not self._adds.has_room(len(jobs), size, ids):
            self._send_adds()
        if within != self._adds.within:
            if self._adds.parts:
                self._send_adds()
            self._adds.within = within
        self._adds.join(jobs, size, ids, done)
        self._leave_soon()
        return True

    def finish(self, ends: Sequence[Sequence[Any]], done: Done) -> bool:
        """Finish jobs, each given as an id and a lease (None or empty for any lease). `done` is called later, with the
        new state or an error for each. Returns False as `add` does."""
        ids = {job_id for job_id, _ in ends}
        if not self._fits(ids, ends, 0):
            return False
        if not self._finishes.has_room(len(ends), 0, ids):
            self._send_finishes()
        self._finishes.join(ends, 0, ids, done)
        self._leave_soon()
        return True

    def pop(self, ask: Ask, count: int, done: Done) -> bool:
        """Reserve up to `count` jobs. `done` is called later, with a Popped; it must report the jobs as delivered or,
        if they are no longer wanted, return them. Returns False if the pop was not accepted."""
        if count > MOST or not self._takes():
            return False
        self._pops.collected.append((ask, count, done))
        self._leave_soon()
        return True

    def withdraw(self, done: Done) -> None:
        """Forget a pop whose caller is gone, if it was not sent yet."""
        self._pops.withdraw(done)

    def _fits(self, ids: set[str], jobs: Sequence[Any], size: int) -> bool:
        return 0 < len(ids) == len(jobs) <= MOST and size <= MOST_BYTES and self._takes()

    def _takes(self) -> bool:
        """Like `is_open`, but checked once a turn: a lane whose link is lost meanwhile still answers all callers."""
        return not self.closed and (self._is_leaving or self._link() is not None)

    def _leave_soon(self) -> None:
        if not self._is_leaving:
            self._is_leaving = True
            self._note_called(self)

    def _leave_later(self) -> None:
        asyncio.get_running_loop().call_soon(self._leave)

    def _leave(self) -> None:
        """The turn is over: send the calls made during it."""
        self.leave()
        if self._pops.collected:
            self._pops.send_in_time()
        self.flush()

    def _send_overdue(self) -> None:
        self.leave()
        self._pops.send()
        self.flush()

    def leave(self) -> None:
        """Send the finishes and adds made until now, with the next write."""
        self._is_leaving = False
        if self._finishes.parts:
            self._send_finishes()
        if self._adds.parts:
            self._send_adds()

    def flush(self) -> None:
        """Write what was sent."""
        link = self._link()
        if link is not None:
            link.flush()

    def _send(self, script: str, pack: Callable[[], Packed], read: Callable[[list[Any]], Any], tell: Done) -> None:
        """Run a script. `tell` is called later, with the result of `read` for the reply, or with None or a
        JobQueueError for the waiting callers."""
        self._in_flight += 1
        link = self._link()
        if link is not None:
            try:
                command = self._command(script, *pack())
                link.send(command, partial(self._take, script, time.perf_counter(), read, tell))
                return
            except Exception:  # a value that no command can contain; its caller gets the error on the complete way
                log.warning("lane.failed", exc_info=True, extra={"script": script})
        asyncio.get_running_loop().call_soon(self._end, tell, None)

    def _command(self, script: str, arguments: dict[str, Value], rest: Sequence[Value]) -> Sequence[Value]:
        keys, chosen = self._keys, SCRIPTS[script]
        named: dict[str, Value] = {
            "meta": keys.meta,
            "never": keys.never,
            "now": self._shards.clock.now(),
            "by": self._shards.instance,  # requests of several actors share the script
            **arguments,
        }
        return ("EVALSHA", chosen.sha, *chosen.arguments(named, rest))

    def _take(self, script: str, begun: float, read: Callable[[list[Any]], Any], tell: Done, reply: Any) -> None:
        seconds = time.perf_counter() - begun
        error = self._error_of(reply, seconds)
        self._redis.meter.called(script, seconds, None if error is None or isinstance(error, Refused) else error.code)
        if error is None:
            self._end(tell, _read(read, reply))
        else:
            self._end(tell, None if _was_not_done(error) else error)

    def _end(self, tell: Done, outcome: Any) -> None:
        """End a script: pass its outcome to `tell`."""
        self._in_flight -= 1
        tell(outcome)
        if self._quiet and not self._in_flight and not self._quiet.done():
            self._quiet.set_result(None)

    def _error_of(self, reply: Any, seconds: float) -> JobQueueError | None:
        if isinstance(reply, ErrorReply):
            return judge(reply)
        if isinstance(reply, Unanswered) and seconds >= self._redis.timeout_s:
            return Late()
        return reply if isinstance(reply, Unanswered) else None

    def _send_finishes(self) -> None:
        batch, self._finishes = self._finishes, Batch()

        def pack() -> Packed:
            rest: list[Value] = []
            for job_id, lease in batch.jobs:
                rest += (job_id, "" if lease is None else lease)
            return {"within": "", "settles": 0}, rest

        self._send("finish", pack, partial(read_finished, self._redis.meter), partial(tell_finished, batch))

    def _send_adds(self) -> None:
        batch, self._adds = self._adds, Batch()

        def pack() -> Packed:
            arguments: dict[str, Value] = {
                "bucket": self._bucket(),
                "buckets": self._shards.buckets,
                "within": batch.within,
            }
            return arguments, pack_groups([(job,) for job in batch.jobs])

        def read(reply: list[Any]) -> list[Any]:
            for topic, number in new_in_runs(batch.jobs, reply):
                self._redis.meter.added(topic, number)
            return read_results(judge_all(reply))

        self._send("add", pack, read, partial(tell_added, batch))

    def _pop_alike(self, pops: SharedPop) -> None:
        self.search(pops, pops.ask.topics, self._shards.limits, partial(self._popped, pops))

    def search(self, pops: SharedPop, topics: Sequence[str], limits: Limits, done: Done) -> None:
        """Run the script of similar pops for these topics. `done` is called later with its reply as returned by
        `read_reply`, or with None or an error as for `Done`."""
        script, named, rest = way_of(pops.ask.script, topics, limits)
        self._send(script, lambda: (pops.arguments(self._bucket()) | named, rest), read_reply, done)

    def _popped(self, pops: SharedPop, outcome: Any) -> None:
        if not isinstance(outcome, tuple):
            pops.fail(outcome)
        elif pops.take(*outcome):
            self._pop_alike(pops)
            self.flush()
            return
        else:
            for topic, limit, _ in pops.limited:
                self._redis.meter.limited(topic, limit)
            pops.settle()
        if self._pops.ended() and not self._is_leaving:  # else they follow the finishes of this turn
            self._pops.send()
            self.flush()

    async def close(self) -> None:
        """Stop accepting jobs and pops, and wait for those in flight."""
        self.closed = True
        self._leave()
        if self._pops.collected:
            self._pops.send()
            self.flush()
        if self._in_flight:
            self._quiet = asyncio.get_running_loop().create_future()
            await self._quiet


async def taken(lane: Callable[[Sequence[T], Done], bool], jobs: Sequence[T], leaving: Sent | None = None) -> Any:
    """The outcome of jobs passed to a lane; also None if the lane does not accept them. `leaving` is called once they
    are accepted."""
    outcome: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def done(given: Any) -> None:
        if not outcome.done():
            outcome.set_result(given)

    if not lane(jobs, done):
        return None
    if leaving:
        leaving()
    return await outcome


def _was_not_done(error: JobQueueError) -> bool:
    """Whether Redis refused the script as a whole, for now or because it does not know it."""
    if isinstance(error, Unanswered):
        return False
    return isinstance(error, Unavailable | NoRoom) or error.message.startswith("NOSCRIPT")


def _read(read: Callable[[list[Any]], Any], reply: list[Any]) -> Any:
    """The result of `read` for a reply, or an error if `read` fails, as for a job that another program wrote."""
    try:
        return read(reply)
    except Exception:
        log.exception("answer.failed")
        return JobQueueError()
