"""The engine as the service uses it: one method per use case, with defaults filled in and seconds converted to
milliseconds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, Any, NamedTuple, Protocol

from msgspec import Meta

from buckets import (
    LOCAL,
    Added,
    Bounds,
    Durability,
    Durable,
    DurablePool,
    HeldTime,
    Instance,
    Job,
    Moved,
    NewJob,
    Operations,
    Page,
    Pollers,
    Pollings,
    Pool,
    Popped,
    Position,
    Sent,
    State,
    Topic,
    Topics,
    TopicStatus,
    Waiting,
    Walk,
    read_instances,
)
from buckets import Stats as Figures
from buckets.access import Action, Actions, Fields
from buckets.errors import AlreadyExists, JobQueueError, NotFound
from buckets.pool.limits import NO_LIMIT
from buckets.topics.within import reaches
from jobqueue.access.caller import CALLER
from jobqueue.access.issuing import Issuing
from jobqueue.engine.by_callback import ByCallback
from jobqueue.engine.figures import Forecasting, Found, Past
from jobqueue.engine.new_jobs import Copy, Policies, fan_out, is_virtual, new_id, new_job
from jobqueue.engine.numbered import MOST_TRIES, Numbered
from jobqueue.engine.operating import Operating
from jobqueue.engine.schedules.scheduling import Scheduling
from jobqueue.errors import BadField
from jobqueue.schema import checks, inner, params
from jobqueue.schema.params import bad_value, ms, ms_or_none
from jobqueue.settings import Loaded

_LAST_MS = 7_258_118_400_000  # of a test service's clock: a lease is its time in us, and must be exact in JavaScript

Change = params.Add | params.Schedule | params.Finish | params.Delete | params.Update
"""The commands that may ask for a durability."""


def _state(word: str | None) -> State | None:
    return None if word is None else State[word.upper()]


class TopicsPlace(NamedTuple):
    """Where a listing of topics continues."""

    shard: int
    cursor: int


class PeekPlace(NamedTuple):
    """Where a peek at the jobs from a time on continues: the time (ms since the epoch), and the position."""

    since_ms: int
    position: Position


class FindPlace(NamedTuple):
    """Where a search continues: how many entries it has looked at, and the position."""

    looked: int
    position: Position


class ActionsPlace(NamedTuple):
    """Where a listing of actions continues."""

    before: Annotated[str, Meta(pattern=r"^\d{1,19}-\d{1,19}\Z")]


class TopicView(NamedTuple):
    """A topic in a listing, how many workers poll it, the most pending jobs and dead letters it may have, and the most
    deliveries per second and reserved jobs (0 for no limit)."""

    topic: Topic
    workers: int
    max_pending: int
    max_dead: int
    rate: float
    concurrency: int


class Explains(Protocol):
    """Explains jobs. Exists only in a service, because it reads the service's journal, if there is one."""

    async def explain(self, job_id: str, life: float | str | None, within: str) -> dict[str, Any]:
        """The answer about a job. Raises NotFound, Unavailable."""


class Examines(Protocol):
    """Examines the service. Exists only in a service, because it knows the service's settings and loops."""

    async def examine(self, within: str) -> dict[str, Any]:
        """The fields of the answer to `health`. Never fails because of what it finds."""


class Restores(Protocol):
    """Restores jobs. Exists only in a service with a journal."""

    async def one(self, job_id: str, within: str) -> int:
        """Restore one job, as a new life if it has ended. Returns how many jobs were restored. Raises NotFound,
        Unavailable."""

    async def all(self, within: str, *, skips_overdue: bool) -> int:
        """Restore all jobs that Redis does not know. Returns how many were restored. Raises Unavailable."""


def _is_misplaced(command: params.Add) -> bool:
    """Whether the id of an add leads to another shard than its key."""
    return command.key is not None and command.id is not None and not command.id.startswith(f"{command.key}@")


def _misplaced(command: params.Add) -> BadField:
    return BadField(
        f"the id of a job with a key must begin with `{command.key}@`: the namespace has several shards", field="id"
    )


class Engine:
    """What the service can do, in any protocol."""

    def __init__(
        self,
        pool: Pool,
        topics: Topics,
        walk: Walk,
        waiting: Waiting,
        pollers: Pollers,
        policies: Policies,
        durable: Durable,
        durability: Durability = LOCAL,
    ) -> None:
        """`durable`: makes changes that must be more durable than `local`. `durability`: the default for commands
        without one."""
        self._pool = pool
        self._durable = durable
        self._durability: Durability = durability
        self._local = {LOCAL, None} if durability == LOCAL else {LOCAL}
        self._topics = topics
        self._walk = walk
        self._waiting = waiting
        self._pollers = pollers
        self.numbered = Numbered(pool)
        """The numbers of jobs, as dialects name them."""
        self.scheduling = Scheduling(pool, self._pool_for, lambda: self.policies)
        """Schedules."""
        self.forecasting = Forecasting(topics, self.scheduling, lambda: self.policies)
        """Forecasts of what falls due when."""
        self.operating = Operating(Operations(pool))
        """Operations."""
        self.actions = Actions(pool)
        """The log of actions."""
        self.by_callback = ByCallback(pool, waiting, pollers, self.numbered, policies, is_local=durability == LOCAL)
        """Adds, finishes and pops without a task."""
        self._policies = policies
        pool.limits = policies.limits
        self.held_time: HeldTime | None = None
        """Set only on a test service."""
        self.issuing: Issuing | None = None
        """Set only on a service with tokens."""
        self.past: Past | None = None
        """Set only on a service that keeps figures."""
        self.explains: Explains | None = None
        self.restores: Restores | None = None
        self.examines: Examines | None = None
        self.settings: Callable[[], Loaded] | None = None
        """Returns the settings in force, and where they came from. Set only on a service."""

    @property
    def policies(self) -> Policies:
        """The current policies, which are replaced when the settings are reloaded."""
        return self._policies

    @policies.setter
    def policies(self, policies: Policies) -> None:
        self._policies = policies
        self.by_callback.obey(policies)
        if self._pool.limits != policies.limits:
            self._pool.limits = policies.limits
            self._waiting.look_again()  # waiting pops may have more room now

    @property
    def shards(self) -> int:
        """The number of shards."""
        return len(self._pool.keys)

    @property
    def buckets(self) -> int:
        """The number of buckets of each shard."""
        return self._pool.buckets

    def _pool_for(self, commands: Sequence[Change]) -> Pool | DurablePool:
        """The pool, or, if one of the commands must be more durable than `local`, the pool's methods made durable:
        these set the durability of each command to the one that it reached."""
        if {command.durability for command in commands} <= self._local:
            return self._pool

        def report(reached: Sequence[Durability]) -> None:
            for command, durability in zip(commands, reached, strict=True):
                if command.durability or self._durability != LOCAL:
                    command.durability = durability

        return self._durable.wanting([command.durability or self._durability for command in commands], report)

    async def add(
        self, commands: Sequence[params.Add], *, within: str = ""
    ) -> Sequence[Added | list[Copy] | JobQueueError]:
        """Add jobs; returns what was added for each command, or the error. Commands without an id get one. An add to a
        virtual topic becomes a job in each of its topics, all or none."""
        for command in commands:
            if command.id is None:
                command.id = new_id(command.key)
        if self.shards > 1 and any(map(_is_misplaced, commands)):
            return await self._add_placed(commands, within)
        policies = self.policies
        if policies.has_virtual and any(is_virtual(policies, command) for command in commands):
            return await fan_out(policies, commands, partial(self._add_groups, within))
        jobs = [new_job(policies, command, command.id or "", command.topic) for command in commands]
        return await self._pool_for(commands).add(jobs, within=within)

    async def _add_placed(
        self, commands: Sequence[params.Add], within: str
    ) -> Sequence[Added | list[Copy] | JobQueueError]:
        """As `add`, for commands of which some are refused because their ids do not lead to the shards of their
        keys."""
        placed = [command for command in commands if not _is_misplaced(command)]
        results = iter(await self.add(placed, within=within) if placed else ())
        return [_misplaced(command) if _is_misplaced(command) else next(results) for command in commands]

    async def _add_groups(
        self, within: str, commands: Sequence[params.Add], groups: Sequence[Sequence[NewJob]]
    ) -> Sequence[list[Added] | JobQueueError]:
        return await self._pool_for(commands).add_groups(groups, within=within)

    async def add_numbered(
        self, commands: Sequence[inner.Add], *, within: str = ""
    ) -> list[Added | list[Copy] | JobQueueError]:
        """Like `add`; a job that must be numbered gets the next number that no job has."""
        results: list[Added | list[Copy] | JobQueueError] = [AlreadyExists()] * len(commands)
        left = list(range(len(commands)))
        try:
            for tries in range(MOST_TRIES):
                await self.numbered.assign([commands[at] for at in left if commands[at].numbered], tries)
                for at, result in zip(left, await self.add([commands[at] for at in left], within=within), strict=True):
                    results[at] = result
                left = [at for at in left if commands[at].numbered and isinstance(results[at], AlreadyExists)]
                if not left:
                    break
        except JobQueueError as error:
            for at in left:
                results[at] = error
        return results

    def bounds(self, topic: str) -> Bounds:
        """How many dead letters of a topic are kept, and for how long, by the current policies."""
        return self.policies.bounds(topic)

    async def pop(self, command: params.Pop, room: int, *, owner: str = "", by_priority: bool = False) -> Popped:
        """Reserve ready jobs (up to `room` bytes of them), waiting for one if the command says so. `owner`: the owner
        of the pop if it waits."""
        topics, worker = command.topics or [command.topic or ""], command.worker or ""
        ttr_ms = ms_or_none(command.ttr)
        poller = self._pollers.begin(worker, CALLER.get(), topics, owner, command.blocked or "")
        if command.blocked:
            self._pollers.end(poller, ())
            return Popped()
        try:
            popped = await self._waiting.pop(
                topics,
                command.count or 1,
                command.wait or 0,
                ttr_ms=ttr_ms,
                worker=worker,
                room=room,
                by_priority=by_priority,
                owner=owner,
            )
        except BaseException as error:
            self._pollers.break_off(poller, is_gone=isinstance(error, asyncio.CancelledError))
            raise
        self._pollers.end(poller, popped.jobs)
        return popped

    async def why_empty(self, command: params.Pop) -> TopicStatus:
        """The status of the topics of a pop, which may be the reason why it found no job."""
        return await self._topics.status(command.topics or [command.topic or ""])

    async def take(self, command: params.Pop, within: str = "") -> Job:
        """Reserve the job that a pop names. Raises NotFound, Reserved, WrongState, Limited."""
        worker = command.worker or ""
        job = await self._pool.take(command.id or "", ttr_ms=ms_or_none(command.ttr), worker=worker, within=within)
        self._pollers.end(self._pollers.begin(worker, CALLER.get(), [job.topic]), [job])
        return job

    async def pop_numbered(self, command: inner.Pop, room: int, *, owner: str = "") -> tuple[list[Job], list[int]]:
        """Like `pop`, with a number for each job if the command asks for numbers."""
        popped = await self.pop(command, room, owner=owner, by_priority=command.by_priority)
        try:
            return popped.jobs, await self.numbered.numbers(popped.jobs, command.numbered)
        except BaseException:
            self.give_back(popped.jobs)
            raise

    async def leave(self, worker: str, owner: str | None = None) -> None:
        """End the waiting pops of a worker now, in all processes. `owner`: only those of this owner, or None for any
        owner."""
        await self._waiting.leave(worker, owner)

    def give_back(self, jobs: Sequence[Job]) -> None:
        """Return jobs that reached nobody, so that the next pop gets them. Does not wait until they are returned."""
        self._pool.unpop_later(jobs)

    async def finish(
        self, commands: Sequence[params.Finish], sent: Sent | None = None, *, within: str = "", settles: bool = False
    ) -> list[str | JobQueueError]:
        """End jobs; returns the new state of each, or the error. `sent`, `settles`: as in `Pool.finish`; `sent` is not
        called for changes that must be more durable than `local`."""
        ends = [(command.id, command.lease) for command in commands]
        states = await self._pool_for(commands).finish(ends, sent, within, settles=settles)
        self._pollers.finished(ends, states)
        return states

    async def delete(
        self, commands: Sequence[params.Delete], *, within: str = "", spares: Sequence[State] = ()
    ) -> list[str | JobQueueError]:
        """Cancel jobs, except those in a state in `spares`; returns the state that each was in, or the error."""
        return await self._pool_for(commands).delete([command.id for command in commands], within, spares)

    async def touch(self, command: params.Touch, within: str = "") -> int:
        """Restart the lease; returns when it ends, in ms. Raises NotFound, NotReserved, StaleLease."""
        return await self._pool.touch(command.id, command.lease, ms_or_none(command.ttr), within)

    async def release(self, command: params.Release, within: str = "") -> Moved:
        """Release a job; a job without a back-off of its own gets the default one. Raises NotFound, NotReserved,
        StaleLease."""
        return await self._pool.release(
            command.id,
            command.lease,
            delay_ms=ms_or_none(command.delay),
            counts=command.attempt is not False,
            reason=command.reason or "",
            ladder_ms=self.policies.default_backoff_ms,
            note=command.note if isinstance(command, inner.Release) else None,
            priority=command.priority if isinstance(command, inner.Release) else None,
            within=within,
        )

    async def bury(self, command: params.Bury, within: str = "") -> str:
        """Move a reserved job to the dead letters; returns its new state. Raises NotFound, NotReserved, StaleLease."""
        note = command.note if isinstance(command, inner.Bury) else None
        return await self._pool.bury(command.id, command.lease, command.reason or "", note, within)

    async def kick(self, job_id: str, within: str = "") -> str:
        """Make a dead letter ready again; returns its state. Raises NotFound, WrongState."""
        (state,) = await self._pool.kick([job_id], within)
        if isinstance(state, JobQueueError):
            raise state
        return state

    async def kick_topic(self, topic: str, count: int) -> int:
        """Make up to `count` dead letters of a topic ready again; returns how many there were."""
        return await self._topics.kick(topic, count)

    async def run(self, job_id: str, within: str = "") -> int:
        """Make a delayed job due now; returns its due time in ms. Raises NotFound, TooLate, Reserved, WrongState."""
        return await self._pool.run(job_id, within)

    async def update(self, command: params.Update, within: str = "") -> Moved:
        """Change a pending job. Raises NotFound, TooLate, Reserved, WrongState, NoRoom."""
        return await self._pool_for([command]).update(
            command.id,
            delay_ms=ms_or_none(command.delay),
            due_ms=None if command.at is None else params.at_ms(command.at),
            priority=command.priority,
            ttl_ms=ms_or_none(command.ttl),
            body=bytes(command.body) or None,
            within=within,
        )

    async def job(self, job_id: str, within: str = "") -> Job:
        """A job or its tombstone. Raises NotFound."""
        job = await self._pool.get(job_id, within)
        if job is None:
            raise NotFound
        return job

    async def get(self, job_id: str, within: str = "") -> tuple[Job, int | None]:
        """A job or its tombstone, and the end of its topic's pause, as `Topic.paused_until`. Raises NotFound."""
        job = await self.job(job_id, within)
        return job, await self._topics.paused_until(job.topic, near=job_id)

    async def explain(self, command: params.Explain, within: str = "") -> dict[str, Any]:
        """All that is known about a job, as the answer to `explain`. Raises NotFound."""
        assert self.explains, "only a service explains"
        return await self.explains.explain(command.id, command.life, within)

    async def examine(self, within: str = "") -> dict[str, Any]:
        """What is wrong with the service, or may become so."""
        assert self.examines, "only a service is examined"
        return await self.examines.examine(within)

    async def restore(self, command: inner.Restore, within: str = "") -> int:
        """Restore jobs from the journal. Returns how many were restored."""
        if self.restores is None:
            raise BadField("there is no journal to restore from, and what it would restore is not lost")
        if command.id is not None:
            return await self.restores.one(command.id, within)
        return await self.restores.all(within, skips_overdue=command.skips_overdue)

    async def stats(
        self, topic: str | None, within: str = "", waits: int = 0, prefix: str = ""
    ) -> tuple[Figures, TopicStatus | None]:
        """The figures of a topic and its status; without a topic, the figures of all topics that begin with the prefix
        and are within reach, and None. `waits`: as in inner.Stats."""
        if topic is None:
            return await self._topics.stats(prefix=prefix, within=within), None
        asked = self._topics.stats(topic, waits=waits), self._topics.know(topic), self._topics.pauses([topic])
        figures, known, pauses = await asyncio.gather(*asked)
        return figures, TopicStatus(known, pauses)

    async def stats_of_each(self, prefix: str, within: str = "", waits: int = 0) -> dict[str, Figures]:
        """The figures of each topic that begins with the prefix and is within reach. `waits`: as in inner.Stats."""
        return await self._topics.each(prefix, within, waits)

    async def names(self, prefix: str, within: str = "") -> list[str]:
        """The names of all topics that begin with the prefix and are within reach, in no particular order."""
        return [name for name in await self._topics.beginning(prefix) if reaches(within, name)]

    async def read_past(self, command: params.Past, within: str = "") -> Found:
        """The figures over time of one topic or of all. Raises BadField, Forbidden."""
        if self.past is None:
            raise BadField("no figures are kept: the setting history_hours is 0")
        return await self.past.read(command, within)

    def _place(self, cursor: str | None, state: State | None, *, purging: bool = False) -> Position | None:
        return self._checked(checks.read(cursor, Position), state, purging=purging)

    def _checked(self, place: Position | None, state: State | None, *, purging: bool = False) -> Position | None:
        """The position of a cursor, checked. Raises BadField if this command cannot continue there."""
        if place is None:
            return None
        fits = state in (None, place.state) and (place.begun > 0) == purging
        if not fits or not self._walk.has(place):
            raise checks.refusal()
        return place

    async def newest_dead(self, topic: str) -> Job | None:
        """The dead letter of a topic that died last."""
        return await self._topics.newest_dead(topic)

    async def peek(self, command: params.Peek, room: int) -> tuple[Page, str | None, bool]:
        """A page of a topic's jobs (up to `room` bytes of them), the cursor of the next one, and whether the topic
        exists. Raises BadField."""
        state, shard = _state(command.state), command.shard
        since_ms = None if command.from_ is None else params.at_ms(command.from_)
        if since_ms is None:
            place = self._place(command.cursor, state)
        else:
            begun = checks.read(command.cursor, PeekPlace)
            if begun and begun.since_ms != since_ms:
                raise checks.refusal()
            place = self._checked(begun.position if begun else None, state)
        if shard is not None and shard >= self.shards:
            raise bad_value("shard")
        if place and shard not in (None, place.shard):
            raise checks.refusal()
        count = command.count or 100
        page = await self._walk.peek(
            command.topic, state, place, shard=shard, count=count, room=room, since_ms=since_ms
        )
        behind = page.next if since_ms is None or page.next is None else PeekPlace(since_ms, page.next)
        return page, checks.write(behind), bool(page.jobs) or await self._topics.know(command.topic)

    async def peek_first(self, command: inner.Peek, room: int) -> list[Job]:
        """The first jobs of a topic in a state (up to `room` bytes of them)."""
        state, jobs = State[command.state.upper()], list[Job]()
        there = (await self._topics.counts(command.topic))[state.word]
        wanted, place = min(command.count, there), None
        while len(jobs) < wanted and (room > 0 or not jobs):
            page = await self._walk.peek(command.topic, state, place, count=wanted - len(jobs), room=room)
            jobs += page.jobs
            room -= sum(len(job.raw) for job in page.jobs)
            place = page.next
            if place is None:
                break
        return jobs

    async def find(self, command: params.Find, room: int) -> tuple[Page, str | None, bool]:
        """Like `peek`, for the jobs of a topic whose ids begin with a prefix; `looked` of the page includes the pages
        before."""
        assert command.topic is not None, "without a topic, it is an operation"
        state = _state(command.state)
        begun = checks.read(command.cursor, FindPlace)
        place = self._checked(begun.position if begun else None, state)
        page = await self._walk.peek(
            command.topic, state, place, count=command.count or 100, room=room, prefix=command.prefix
        )
        page.looked += begun.looked if begun else 0
        behind = FindPlace(page.looked, page.next) if page.next else None
        return page, checks.write(behind), bool(page.jobs) or await self._topics.know(command.topic)

    async def workers(self, topic: str | None, reaches: Callable[[str], bool] | None = None) -> Pollings:
        """The workers that poll, as known to all live instances, for one topic or for all. With `reaches`, only those
        that poll a topic for which it returns True, with only these topics."""
        pollings = await self._pollers.read()
        if reaches is not None:
            pollings = pollings.within(reaches)
        if topic is not None:
            pollings.rows = [row for row in pollings.rows if topic in row.topics]
        return pollings

    async def instances(self, reaches: Callable[[str], bool] | None = None) -> list[Instance]:
        """The live instances. With `reaches`, only waiting pops that ask for a topic for which it returns True are
        counted."""
        await self._pollers.tick()
        return await read_instances(self._pool, reaches)

    async def topics(self, command: params.Topics, within: str = "") -> tuple[list[TopicView], str | None]:
        """A page of topics and the cursor of the next one. Raises BadField for an invalid cursor."""
        begin = checks.read(command.cursor, TopicsPlace) or TopicsPlace(0, 0)
        if not self._topics.has(*begin):
            raise checks.refusal()
        topics, *end = await self._topics.page(command.pattern or "*", *begin, within=within)
        polling = await self._pollers.polling()
        views = [TopicView(each, polling[each.name], *self._limits(each.name)) for each in topics]
        return views, checks.write(TopicsPlace(*end) if any(end) else None)

    def _limits(self, topic: str) -> tuple[int, int, float, int]:
        policies = self.policies
        limit = policies.limits.get(topic, NO_LIMIT)
        return policies.of(topic).max_pending, policies.bounds(topic).most, limit.rate, limit.concurrency

    async def pause(self, command: params.Pause) -> tuple[int, bool]:
        """Pause a topic, so that its pops find nothing. Returns when the pause ends, in ms, or 0 if it lasts until the
        topic is resumed, and whether the topic existed before."""
        known = await self._topics.know(command.topic)
        return await self._topics.pause(command.topic, ms_or_none(command.seconds)), known

    async def resume(self, topic: str) -> tuple[bool, bool]:
        """End the pause of a topic; returns whether it was paused, and whether it exists."""
        was_paused = await self._topics.resume(topic)
        return was_paused, was_paused or await self._topics.know(topic)

    async def purge(self, command: params.Purge) -> tuple[int, str | None, bool]:
        """Delete jobs of a topic for about a second; returns how many, the cursor to continue with, if any are left,
        and whether the topic exists. Raises BadField for an invalid cursor."""
        state = _state(command.state)
        place = self._place(command.cursor, state, purging=True)
        purged = await self._walk.purge(command.topic, state, place)
        known = bool(purged.count) or await self._topics.know(command.topic)
        return purged.count, checks.write(purged.next), known

    async def purge_all(self, command: inner.Purge, within: str = "") -> int:
        """Delete jobs until all that existed at the beginning are gone; returns how many. Later ones stay."""
        state = _state(command.state)
        begun = await self._walk.newest_ms()
        names = await self.names(command.prefix, within) if command.topic is None else [command.topic]
        count = 0
        for name in names:
            purged = await self._walk.purge(name, state, begun=begun)
            count += purged.count
            while purged.next:
                purged = await self._walk.purge(name, state, purged.next)
                count += purged.count
        return count

    async def page_of_actions(
        self, command: params.Actions, is_shown: Callable[[Fields], bool]
    ) -> tuple[list[Action], str | None]:
        """A page of the actions in the log that may be shown, and the cursor of the next one. Raises BadField for an
        invalid cursor."""
        place = checks.read(command.cursor, ActionsPlace)
        since_ms = round((command.since or 0) * 1000)
        before = place.before if place else None

        def is_wanted(begun: Fields) -> bool:
            return command.by in (None, begun.get("actor")) and is_shown(begun)

        actions, more = await self.actions.page(before, command.count or 100, since_ms, is_wanted)
        return actions, checks.write(ActionsPlace(more)) if more else None

    async def advance(self, command: params.Clock) -> int:
        """Advance the clock of a test service; returns its time in ms. Raises BadField beyond the year 2200."""
        assert self.held_time, "only a test service has this command"
        span_ms = ms(command.advance or 0)
        if self.held_time.now_ms + span_ms > _LAST_MS:
            raise BadField("advance goes beyond the year 2200; begin again with reset", field="advance")
        if span_ms:
            await self._settle_past()  # what was counted belongs to the minute that it was counted in
            await self.held_time.advance(span_ms)
        return self.held_time.now_ms

    async def reset(self) -> int:
        """Empty a test service and set its clock to the host's time; returns that time in ms."""
        assert self.held_time, "only a test service has this command"
        await self._settle_past()
        await self.held_time.reset()
        return self.held_time.now_ms

    async def _settle_past(self) -> None:
        if self.past:
            await self.past.settle()
