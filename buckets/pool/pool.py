"""The job pool: one method per move; those of deliveries are in buckets/pool/popping.py.

Moves of jobs take `within`, the topics that the caller may reach (buckets/topics/within.py), or empty for any. A job of
another topic is NotFound, as if it did not exist.

Nothing is decided here. A method packs its arguments, calls one script per shard (more for a batch that would block
Redis too long), and turns the reply into values.

Each job that becomes a dead letter gets a line in the log; very many share one line. The scripts report dead letters to
their caller: the timer, or the process in which a worker released or buried the job. If a reply of Redis is lost, its
lines are missing; the counters of a topic are exact.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

from buckets.clock import Clock
from buckets.errors import JobQueueError
from buckets.job import STATE_WORDS, Job, NewJob, State
from buckets.keys import shard_of
from buckets.pool.codec import (
    Added,
    Prepared,
    Preparing,
    Shape,
    may_be_repeated,
    new_jobs,
    pack_groups,
    read_finished,
    read_results,
)
from buckets.pool.lanes import Done, Lane, Sent, taken
from buckets.pool.pop_search import Offer
from buckets.pool.popping import Popping
from buckets.pool.several_lanes import Lanes
from buckets.record import pack_ladder, unpack, unpack_all
from buckets.redis.client import Redis
from buckets.scripts import Value
from buckets.shards import ACTOR, Item

log = logging.getLogger(__name__)

MOST_A_SECOND = 10
_SECOND = 1.0


class Deaths:
    """The deaths that scripts reported to this process."""

    def __init__(self) -> None:
        self._since = 0.0  # when the current second began
        self._lines = 0
        self._rest: Counter[str] = Counter()  # by topic: deaths without a line of their own in the log
        self._ending: asyncio.TimerHandle | None = None

    def report(self, died: Sequence[Sequence[Any]]) -> None:
        """Log jobs that died, each given as id, topic, cause, attempts and its last worker."""
        for job_id, topic, cause, attempts, worker in died:
            if self._has_line():
                fields = {"id": _text(job_id), "topic": _text(topic), "cause": _text(cause), "attempts": attempts}
                log.warning("job.died", extra={**fields, "worker": _text(worker) or None})
            else:
                self._rest[_text(topic)] += 1

    def _has_line(self) -> bool:
        now = time.monotonic()
        if now - self._since >= _SECOND:
            self._since, self._lines = now, 0
        self._lines += 1
        if self._lines > MOST_A_SECOND and self._ending is None:
            self._ending = asyncio.get_running_loop().call_later(_SECOND, self.sum_up)
        return self._lines <= MOST_A_SECOND

    def sum_up(self) -> None:
        """Log how many deaths had no line of their own."""
        if self._ending:
            self._ending.cancel()
            self._ending = None
        if self._rest:
            log.warning("jobs.died", extra={"jobs": self._rest.total(), "topics": dict(self._rest.most_common(20))})
            self._rest.clear()


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


PAGE = 150  # due entries per script: about 1.5 ms of Redis, a third of what a script may take


class Moved(NamedTuple):
    """A job's new state, and when it is due (ms)."""

    state: str
    due: int


class Pool(Popping):
    """The jobs of one namespace. Made by `Pool.open`."""

    def __init__(self, redis: Redis, namespace: str, shards: int, buckets: int, clock: Clock | None = None) -> None:
        super().__init__(redis, namespace, shards, buckets, clock)
        self.paging = [asyncio.Semaphore(2) for _ in self.keys]
        """Limits how many timers call `due` at a time, by shard. Two pages at a time keep Redis busy; with one for each
        bucket, all other calls would wait behind eight."""
        self._preparing = Preparing(shards)
        self._deaths = Deaths()
        if shards == 1:
            self.lanes = Lane(self, 0, self.next_bucket)
            self._lanes = [self.lanes]
        else:
            self.lanes = Lanes(
                self,
                self.next_bucket,
                self.ready_shards,
                redo_adds=self._redo_adds,
                redo_finishes=self._redo_finishes,
                give_back=self.unpop_later,
            )
            self._lanes = self.lanes.by_shard

    def shape(self, job: NewJob) -> Shape:
        """The part that is the same for all new jobs that differ from this one only in id, time and body."""
        return self._preparing.shape(job)

    async def add(self, jobs: Sequence[NewJob], within: str = "") -> list[Added | JobQueueError]:
        """Add jobs, as if one after the other. Returns an Added or an error for each. If the id belongs to a job of
        another topic that is not within, the error is AlreadyExists without a state, whatever `if_exists` says."""
        prepared = self._preparing.job
        items = [Item(job.id, (prepared(job),), len(job.body)) for job in jobs]
        results = await self.spread(items, partial(self._add_some, within))
        self._note_added(zip(jobs, results, strict=True))
        return results

    async def _add_some(self, within: str, shard: int, items: Sequence[Item]) -> list[Any]:
        """Add jobs of one shard, by its lane or, if the lane does not accept them, by scripts of their own."""
        jobs: list[Prepared] = [item.values[0] for item in items]
        outcome = await taken(partial(self._lanes[shard].add, within=within), jobs)
        if outcome is None:
            return await self._add(shard, within, all(job.shape.repeatable for job in jobs), items)
        return [outcome] * len(jobs) if isinstance(outcome, JobQueueError) else outcome

    async def add_groups(
        self, groups: Sequence[Sequence[NewJob]], within: str = ""
    ) -> list[list[Added] | JobQueueError]:
        """Add groups of jobs, as if one after the other, each group whole or not at all. The ids of a group are equal
        up to their first `@`, and differ between topics; `within` is not checked for these topics, as the operator
        chose them."""
        items = [
            Item(
                group[0].id.partition("@")[0],
                [self._preparing.job(job) for job in group],
                sum(len(job.body) for job in group),
                len(group),
            )
            for group in groups
        ]
        repeat = all(may_be_repeated(job) for group in groups for job in group)
        added = await self.spread(items, lambda shard, some: self._add(shard, within, repeat, some))
        results = [[result] if isinstance(result, Added) else result for result in added]
        for group, result in zip(groups, results, strict=True):
            if isinstance(result, list):
                self._note_added(zip(group, result, strict=True))
        return results

    def _note_added(self, added: Iterable[tuple[NewJob, Added | JobQueueError]]) -> None:
        """Note the added jobs, so that a pop here finds a job that was reported as ready even before the bell reports
        it."""
        if len(self.keys) > 1:
            for job, result in added:
                if isinstance(result, Added) and result.state == State.READY.word:
                    self.ready_shards.stir_topic(shard_of(job.id, len(self.keys)), job.topic)

    def _note_moved(self, job_id: str, state: str) -> None:
        """As `_note_added`, for a job whose topic is unknown here."""
        if state == State.READY.word:
            self.ready_shards.stir(shard_of(job_id, len(self.keys)))

    def _note_died(self, died: Sequence[Sequence[Any]]) -> None:
        """Report jobs that died, as the scripts return them."""
        self._deaths.report(died)
        for _, topic, cause, *_ in died:
            self.redis.meter.died(topic.decode("utf-8", "replace"), cause.decode())

    def _redo_adds(self, within: str, shard: int, jobs: Sequence[Prepared], done: Done) -> None:
        """Add jobs of one shard by scripts of their own, in the background; `done` gets the outcome."""
        repeat = all(job.shape.repeatable for job in jobs)
        items = [Item(job.id, (job,), len(job.body)) for job in jobs]
        self._later(self._redo(self._add(shard, within, repeat, items), done))

    def _redo_finishes(self, shard: int, ends: Sequence[Sequence[Any]], done: Done) -> None:
        items = [Item(job_id, (job_id, _or_empty(lease))) for job_id, lease in ends]
        self._later(self._redo(self._finish(shard, items), done))

    async def _redo(self, work: Awaitable[list[Any]], done: Done) -> None:
        ACTOR.set("")  # a lane's callback runs in the context of any request
        outcome: list[Any] | JobQueueError = JobQueueError()
        try:
            outcome = await work
        finally:
            done(outcome)

    async def _add(self, shard: int, within: str, repeat: bool, items: Sequence[Item]) -> list[Any]:
        results = await self.run_in(
            shard,
            "add",
            items,
            {"now": self.clock.now(), "buckets": self.buckets, "within": within},
            fresh=lambda: {"bucket": next(self._turn)},
            repeat=repeat,
            pack=pack_groups,
            read=read_results,
        )
        for topic, number in new_jobs([item.values for item in items], results).items():
            self.redis.meter.added(topic, number)
        return results

    async def finish(
        self,
        jobs: Sequence[tuple[str, int | None]],
        sent: Sent | None = None,
        within: str = "",
        *,
        settles: bool = False,
    ) -> list[str | JobQueueError]:
        """Finish jobs, given as (id, lease or None); returns `finished` for each, or NotFound, NotReserved, StaleLease.
        With `settles`, a job that was never delivered is deleted instead; the result is `deleted`, also for a job that
        was deleted before.

        `sent` is called once the finishes were sent to Redis: a pop made from then on is handled after them. It is not
        called if they cannot be sent, or need more than one script. Finishes for a shard whose server is away while
        another shard can be asked count as sent: a pop does not ask such a shard either, so it cannot overtake them
        there. With `within` or `settles`, `sent` is never called.
        """
        items = [Item(job_id, (job_id, _or_empty(lease))) for job_id, lease in jobs]
        if within or settles:
            read = partial(read_finished, self.redis.meter)
            now = self.clock.now()
            return _words(await self.each("finish", items, read=read, now=now, within=within, settles=int(settles)))
        unsent = {shard_of(job_id, len(self.keys)) for job_id, _ in jobs}

        def left(shard: int) -> None:
            unsent.discard(shard)
            if not unsent and sent:
                asyncio.get_running_loop().call_soon(sent)  # after the lanes, which send at the end of this turn

        return _words(await self.spread(items, partial(self._finish_some, left)))

    async def _finish_some(self, left: Callable[[int], None], shard: int, items: Sequence[Item]) -> list[Any]:
        """As `_add_some`. `left` is called with the shard if its finishes are sent in this turn, or need not be waited
        for."""
        if self.is_passed_over(shard):
            left(shard)
        outcome = await taken(self._lanes[shard].finish, [item.values for item in items], partial(left, shard))
        if outcome is None:
            return await self._finish(shard, items)
        return [outcome] * len(items) if isinstance(outcome, JobQueueError) else outcome

    async def _finish(self, shard: int, items: Sequence[Item]) -> list[Any]:
        read = partial(read_finished, self.redis.meter)
        arguments: dict[str, Value] = {"now": self.clock.now(), "within": "", "settles": 0}
        return await self.run_in(shard, "finish", items, arguments, read=read)

    async def delete(
        self, ids: Sequence[str], within: str = "", spares: Sequence[State] = ()
    ) -> list[str | JobQueueError]:
        """Delete jobs, except those in a state of `spares`; returns the previous state of each, or NotFound, or for a
        spared job Reserved or WrongState."""
        items = [Item(job_id, (job_id,)) for job_id in ids]
        spared = "".join(str(int(each)) for each in spares)
        return _words(await self.each("delete", items, now=self.clock.now(), within=within, spares=spared))

    async def touch(self, job_id: str, lease: int | None = None, ttr_ms: int | None = None, within: str = "") -> int:
        """Restart the lease from now, for `ttr_ms` or as long as before; returns when it ends, in ms.

        Raises NotFound, NotReserved, StaleLease.
        """
        until: int = await self.one("touch", job_id, lease=_or_empty(lease), ttr=_or_empty(ttr_ms), within=within)
        return until

    async def release(
        self,
        job_id: str,
        lease: int | None = None,
        *,
        delay_ms: int | None = None,
        counts: bool = True,
        reason: str = "",
        ladder_ms: Sequence[int] = (),
        note: bytes | None = None,
        priority: int | None = None,
        within: str = "",
    ) -> Moved:
        """Return a reserved job: it is due after `delay_ms` or the next step of its back-off, or dead if its tries are
        used up. `counts`: whether this delivery counts as a try. `ladder_ms`: the back-off for a job without its own,
        with up to a tenth added to each step; if empty, the job is ready at once. `note`, `priority`: None to keep the
        old one. Raises NotFound, NotReserved, StaleLease."""
        reply = await self.one(
            "release",
            job_id,
            lease=_or_empty(lease),
            delay=_or_empty(delay_ms),
            counts=int(counts),
            reason=reason,
            ladder=pack_ladder(ladder_ms),
            note=_new_note(note),
            priority=_or_empty(priority),
            within=within,
        )
        moved = Moved(reply[0].decode(), reply[1])
        self._note_died(reply[2])
        self._note_moved(job_id, moved.state)
        return moved

    async def bury(
        self, job_id: str, lease: int | None = None, reason: str = "", note: bytes | None = None, within: str = ""
    ) -> str:
        """Move a reserved job to the dead letters; returns its new state. `note`: None to keep the old one. Raises
        NotFound, NotReserved, StaleLease."""
        state, died = await self.one(
            "bury", job_id, lease=_or_empty(lease), reason=reason, note=_new_note(note), within=within
        )
        self._note_died(died)
        return _word(state)

    async def kick(self, ids: Sequence[str], within: str = "") -> list[str | JobQueueError]:
        """Make dead letters ready again; returns the state of each, or NotFound, WrongState."""
        items = [Item(job_id, (job_id,)) for job_id in ids]
        states = _words(await self.each("kick", items, now=self.clock.now(), topic="", within=within))
        for job_id, state in zip(ids, states, strict=True):
            if isinstance(state, str):
                self._note_moved(job_id, state)
        return states

    async def run(self, job_id: str, within: str = "") -> int:
        """Make a delayed job due now; returns its due time in ms. Raises NotFound, TooLate, Reserved, WrongState."""
        due: int = await self.one("run", job_id, within=within)
        self._note_moved(job_id, State.READY.word)
        return due

    async def update(
        self,
        job_id: str,
        *,
        within: str = "",
        delay_ms: int | None = None,
        due_ms: int | None = None,
        priority: int | None = None,
        ttl_ms: int | None = None,
        body: bytes | None = None,
    ) -> Moved:
        """Change a delayed or ready job; None keeps a value. A new time for a ready job raises TooLate.

        Raises NotFound, TooLate, Reserved, WrongState, and NoRoom for a body when Redis is full.
        """
        changes = {"delay": delay_ms, "due": due_ms, "priority": priority, "ttl": ttl_ms}
        arguments = {"within": within, **{name: _or_empty(value) for name, value in changes.items()}}
        # If the first run made the job ready, because the new time had come, a second run would find it ready and fail
        # with TooLate.
        repeat = delay_ms is None and due_ms is None
        if body is None:
            reply = await self.one("update", job_id, repeat=repeat, **arguments)
        else:
            reply = await self.one("rewrite", job_id, repeat=repeat, body=body, **arguments)
        moved = Moved(reply[0].decode(), reply[1])
        self._note_moved(job_id, moved.state)
        return moved

    async def slice(self, shard: int, bucket: int, skip: int, page: int) -> tuple[int, int]:
        """Move a page of far jobs, after the first `skip` far entries, from the set of a bucket into slices. Returns
        how many entries were moved, and how many stay; together fewer than `page` at the end."""
        moved, stayed = await self.call("slice", shard, now=self.clock.now(), bucket=bucket, skip=skip, page=page)
        return moved, stayed

    async def due(
        self, shard: int, bucket: int, offers: Sequence[Offer] = (), met: list[str] | None = None
    ) -> tuple[int, int, list[list[Job]]]:
        """Move a page of due entries out of a bucket; returns how many, the us until the next entry is due (0 for now,
        -1 if there is none), and the jobs that were reserved for each offer. The names of the schedules whose time has
        come are added to `met`.

        With offers, a lost reply is not followed by a retry: raises Unanswered, and jobs may have been reserved. As
        with `pop`, the jobs of a caller that was cancelled meanwhile are returned.
        """
        sleepers = [value for offer in offers for value in offer.arguments()]
        try:
            moved, wait, died, handed, schedules, *late = await self.call(
                "due",
                shard,
                sleepers,
                repeat=not offers,
                orphan=self._give_back_handed,
                now=self.clock.now(),
                bucket=bucket,
                page=PAGE,
            )
        except asyncio.CancelledError:
            self._is_abandoned |= bool(offers)
            raise
        self.redis.meter.paged(moved)
        if met is not None:
            met += [name.decode("utf-8", "replace") for name in schedules]
        self._note_died(died)
        for topic, late_us, number in zip(late[::3], late[1::3], late[2::3], strict=True):
            self.redis.meter.promoted(topic.decode("utf-8", "replace"), late_us, number)
        jobs = [unpack_all(pairs) for pairs in handed] or [[] for _ in offers]
        return moved, wait, jobs

    def _give_back_handed(self, reply: Any) -> None:
        """Return the jobs that a timer's script reserved for sleepers, if its caller is gone."""
        if isinstance(reply, list):  # otherwise the script failed
            self.unpop_later([job for pairs in reply[3] for job in unpack_all(pairs)])

    async def get(self, job_id: str, within: str = "") -> Job | None:
        """The job or its tombstone, or None if there is neither."""
        raw = await self.one("get", job_id, within=within)
        try:
            return unpack(job_id, raw) if raw is not None else None
        except (ValueError, UnicodeDecodeError, IndexError):
            return None  # not a record; the next move that finds the data sets it aside

    async def close(self) -> None:
        """Wait for the work in progress, and until the jobs that reached no caller have been returned."""
        self._deaths.sum_up()
        await super().close()


def _or_empty(value: int | None) -> Value:
    return "" if value is None else value


def _new_note(note: bytes | None) -> bytes:
    """The scripts' argument for a note: empty to keep the job's note."""
    return b"" if note is None else b"=" + note


def _word(state: bytes) -> str:
    return STATE_WORDS[state]


def _words(results: Sequence[Any]) -> list[str | JobQueueError]:
    return [STATE_WORDS[result] if isinstance(result, bytes) else result for result in results]
