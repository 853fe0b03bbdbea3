"""The engine: one method a use case. It puts the defaults in, turns seconds into milliseconds, and asks the machine."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import orjson

from buckets import (
    LOCAL,
    Added,
    Bounds,
    Durability,
    Durable,
    Job,
    Moved,
    NewJob,
    Page,
    Pool,
    Popped,
    Position,
    State,
    Topic,
    Topics,
    Waiting,
    Walk,
    Want,
)
from buckets import Stats as Figures
from buckets.add_codec import may_be_repeated
from buckets.durability.durable import Work
from buckets.errors import JobQueueError, NotFound
from jobqueue.errors import BadField
from jobqueue.policies import Policies
from jobqueue.schema import cursors, params
from jobqueue.schema.fields import must_be
from jobqueue.schema.params import ms

LONGEST_ID = 255

_Change = params.Add | params.Finish | params.Delete | params.Update


def new_id() -> str:
    """An id of 32 hexadecimal digits that nobody else makes; sorted, ids stand in the order of their making (ms)."""
    return f"{time.time_ns() // 1_000_000:012x}{secrets.token_hex(10)}"


def _ms_or_none(seconds: float | None) -> int | None:
    return None if seconds is None else ms(seconds)


def _state(word: str | None) -> State | None:
    return None if word is None else State[word.upper()]


class TopicsPlace(NamedTuple):
    """Where a listing of topics goes on."""

    shard: int
    cursor: int


class Copy(NamedTuple):
    """A job that stands in one of the topics of a virtual one, and what became of it."""

    job: NewJob
    added: Added


class Engine:
    """What the service can do, whatever the protocol."""

    def __init__(
        self,
        pool: Pool,
        topics: Topics,
        walk: Walk,
        waiting: Waiting,
        policies: Policies,
        durable: Durable,
        durability: Durability = LOCAL,
    ) -> None:
        """`durable`: what changes go through that are to be more than local; `durability`: of those that do not say."""
        self._pool = pool
        self._durable = durable
        self._durability: Durability = durability
        self._plain = {LOCAL, None} if durability == LOCAL else {LOCAL}
        self._topics = topics
        self._walk = walk
        self._waiting = waiting
        self.policies = policies
        """Replaced when the settings are read anew."""

    @property
    def shards(self) -> int:
        """How many there are."""
        return len(self._pool.keys)

    def _new_job(self, command: params.Add, job_id: str, topic: str) -> NewJob:
        policy = self.policies.of(topic)
        return NewJob(  # by position: by name, fifteen arguments cost a third of an add's time here
            job_id,
            topic,
            bytes(command.body),
            ms(command.delay) if command.delay else 0,
            0 if command.at is None else max(params.at_ms(command.at), 1),
            policy.ttr_ms if command.ttr is None else ms(command.ttr),
            policy.priority if command.priority is None else command.priority,
            policy.tries if command.tries is None else command.tries,
            policy.backoff_ms if command.backoff is None else tuple(map(ms, command.backoff)),
            policy.ttl_ms if command.ttl is None else ms(command.ttl),
            policy.retention_ms if command.retention is None else ms(command.retention),
            orjson.dumps(command.headers) if command.headers else b"",
            orjson.dumps(command.tags) if command.tags else b"",
            command.if_exists or "keep",
            policy.max_pending,
        )

    def _is_plain(self, commands: Sequence[_Change]) -> bool:
        """Whether none of these is to be more than local."""
        return {command.durability for command in commands} <= self._plain

    async def _durably(
        self, commands: Sequence[_Change], items: Sequence[Any], work: Work, *, repeat: bool = True
    ) -> list[Any]:
        """Do the work on the items, one of each command, as durably as these say; each then says what was reached."""
        wants = [
            Want(command.id or "", command.durability or self._durability, item)
            for command, item in zip(commands, items, strict=True)
        ]
        told = await self._durable.change(wants, work, repeat=repeat)
        for command, each in zip(commands, told, strict=True):
            if command.durability or self._durability != LOCAL:
                command.durability = each.durability
        return [each.result for each in told]

    async def add(self, commands: Sequence[params.Add]) -> Sequence[Added | list[Copy] | JobQueueError]:
        """Keep jobs; for each what became of it. One without an id is given one, in its command too. One that is added
        to a virtual topic becomes a job in each of its topics, all or none."""
        for command in commands:
            if command.id is None:
                command.id = new_id()
        if self.policies.has_virtual and any(self.policies.targets(command.topic) for command in commands):
            return await self._add_copies(commands)
        jobs = [self._new_job(each, each.id or "", each.topic) for each in commands]
        if self._is_plain(commands):
            return await self._pool.add(jobs)
        return await self._durably(commands, jobs, self._durable.pool.add, repeat=all(map(may_be_repeated, jobs)))

    async def _add_copies(self, commands: Sequence[params.Add]) -> list[Added | list[Copy] | JobQueueError]:
        """As `add`, where some of the topics are virtual."""
        virtual = [bool(self.policies.targets(command.topic)) for command in commands]  # they may change meanwhile
        results: list[Added | list[Copy] | JobQueueError] = []
        groups: dict[int, list[NewJob]] = {}  # by the places of their commands
        for place, command in enumerate(commands):
            try:
                groups[place] = self._copies(command, command.id or "")
                results.append([])
            except JobQueueError as error:
                results.append(error)
        outcome = await self._add_groups([commands[place] for place in groups], list(groups.values()))
        for (place, group), added in zip(groups.items(), outcome, strict=True):
            if isinstance(added, JobQueueError):
                results[place] = added
            elif virtual[place]:
                results[place] = [Copy(*each) for each in zip(group, added, strict=True)]
            else:
                results[place] = added[0]
        return results

    async def _add_groups(
        self, commands: Sequence[params.Add], groups: list[list[NewJob]]
    ) -> Sequence[list[Added] | JobQueueError]:
        if self._is_plain(commands):
            return await self._pool.add_groups(groups)
        repeat = all(may_be_repeated(job) for group in groups for job in group)
        return await self._durably(commands, groups, self._durable.pool.add_groups, repeat=repeat)

    def _copies(self, command: params.Add, job_id: str) -> list[NewJob]:
        """The jobs that an add stands for: one, or one in each topic of a virtual one. Raises BadField."""
        targets = self.policies.targets(command.topic)
        if not targets:
            return [self._new_job(command, job_id, command.topic)]
        jobs = [self._new_job(command, f"{job_id}@{topic}", topic) for topic in targets]
        longest = max(len(job.id) for job in jobs)
        if longest > LONGEST_ID:
            message = f"id would have {longest} characters with `@` and its topic; at most {LONGEST_ID} are allowed"
            raise BadField(message, field="id")
        return jobs

    def bounds(self, topic: str) -> Bounds:
        """How many dead letters of a topic are kept, and how long, by the policies that hold now."""
        return self.policies.bounds(topic)

    async def pop(self, command: params.Pop, room: int) -> Popped:
        """Reserve ready jobs (up to `room` bytes of them), waiting for one where the command says so."""
        topics = command.topics or [command.topic or ""]
        ttr_ms = _ms_or_none(command.ttr)
        return await self._waiting.pop(
            topics, command.count or 1, command.wait or 0, ttr_ms=ttr_ms, worker=command.worker or "", room=room
        )

    async def leave(self, worker: str) -> None:
        """Let the waiting pops of a worker end now, whichever process has them."""
        await self._waiting.leave(worker)

    def give_back(self, jobs: Sequence[Job]) -> None:
        """See to it that jobs which reached nobody are handed to the next, at once."""
        self._pool.unpop_later(jobs)

    async def finish(self, commands: Sequence[params.Finish]) -> list[str | JobQueueError]:
        """End jobs; for each its state or why not."""
        jobs = [(command.id, command.lease) for command in commands]
        if self._is_plain(commands):
            return await self._pool.finish(jobs)
        return await self._durably(commands, jobs, self._durable.pool.finish)

    def leave_at_once(self, commands: Sequence[params.Finish]) -> bool:
        """Whether finishes are one script, so that what follows may be sent right behind them."""
        return self._is_plain(commands) and self._pool.is_one_script([command.id for command in commands])

    async def begun(self) -> None:
        """Wait until finishes that tasks were made for so far have left for Redis."""
        await asyncio.sleep(0)  # the tasks' first turn
        await self._pool.begun()

    async def delete(self, commands: Sequence[params.Delete]) -> list[str | JobQueueError]:
        """Cancel jobs; for each the state that it was in or why not."""
        ids = [command.id for command in commands]
        if self._is_plain(commands):
            return await self._pool.delete(ids)
        return await self._durably(commands, ids, self._durable.pool.delete)

    async def touch(self, command: params.Touch) -> int:
        """Let the lease run anew; until when, in ms. Raises NotFound, NotReserved, StaleLease."""
        return await self._pool.touch(command.id, command.lease, _ms_or_none(command.ttr))

    async def release(self, command: params.Release) -> Moved:
        """Give a job back. Raises NotFound, NotReserved, StaleLease."""
        return await self._pool.release(
            command.id,
            command.lease,
            delay_ms=_ms_or_none(command.delay),
            counts=command.attempt is not False,
            reason=command.reason or "",
        )

    async def bury(self, command: params.Bury) -> str:
        """To the dead letters; the new state. Raises NotFound, NotReserved, StaleLease."""
        return await self._pool.bury(command.id, command.lease, command.reason or "")

    async def kick(self, job_id: str) -> str:
        """A dead letter is ready again; its state. Raises NotFound, WrongState."""
        kicked = (await self._pool.kick([job_id]))[0]
        if isinstance(kicked, JobQueueError):
            raise kicked
        return kicked

    async def kick_topic(self, topic: str, count: int) -> int:
        """Dead letters of a topic are ready again; how many."""
        return await self._topics.kick(topic, count)

    async def run(self, job_id: str) -> int:
        """A delayed job is due now; its due time in ms. Raises NotFound, TooLate, Reserved, WrongState."""
        return await self._pool.run(job_id)

    async def update(self, command: params.Update) -> Moved:
        """Change a pending job. Raises NotFound, TooLate, Reserved, WrongState, NoRoom."""
        if self._is_plain([command]):
            return await self._update(self._pool, command)

        async def work(commands: Sequence[params.Update]) -> Sequence[Moved | JobQueueError]:
            try:
                return [await self._update(self._durable.pool, *commands)]
            except JobQueueError as error:
                return [error]

        moved: Moved | JobQueueError
        (moved,) = await self._durably([command], [command], work, repeat=False)  # a delay would begin anew
        if isinstance(moved, JobQueueError):
            raise moved
        return moved

    async def _update(self, pool: Pool, command: params.Update) -> Moved:
        return await pool.update(
            command.id,
            delay_ms=_ms_or_none(command.delay),
            due_ms=None if command.at is None else params.at_ms(command.at),
            priority=command.priority,
            ttl_ms=_ms_or_none(command.ttl),
            body=bytes(command.body) or None,
        )

    async def get(self, job_id: str) -> Job:
        """A job or its tombstone. Raises NotFound."""
        job = await self._pool.get(job_id)
        if job is None:
            raise NotFound
        return job

    async def stats(self, topic: str | None) -> Figures:
        """The figures of a topic, or of all."""
        return await self._topics.stats(topic)

    def _place(self, cursor: str | None, state: State | None, *, purging: bool) -> Position | None:
        place = cursors.read(cursor, Position)
        if place is None:
            return None
        fits = state in (None, place.state) and (place.begun > 0) == purging
        if not fits or not self._walk.has(place):
            raise cursors.refusal()
        return place

    async def peek(self, command: params.Peek, room: int) -> tuple[Page, str | None]:
        """Jobs of a topic and the cursor of those that follow. Raises BadField for a cursor that is none."""
        state = _state(command.state)
        place = self._place(command.cursor, state, purging=False)
        shard = command.shard
        if shard is not None and shard >= self.shards:
            raise BadField(f"shard {must_be('shard')}", field="shard")
        if place and shard not in (None, place.shard):
            raise cursors.refusal()
        page = await self._walk.peek(command.topic, state, place, shard=shard, count=command.count or 100, room=room)
        return page, cursors.write(page.next)

    async def topics(self, command: params.Topics) -> tuple[list[Topic], str | None]:
        """Topics and the cursor of those that follow. Raises BadField for a cursor that is none."""
        begin = cursors.read(command.cursor, TopicsPlace) or TopicsPlace(0, 0)
        if not self._topics.has(*begin):
            raise cursors.refusal()
        topics, *behind = await self._topics.page(command.pattern or "*", *begin)
        return topics, cursors.write(TopicsPlace(*behind) if any(behind) else None)

    async def pause(self, command: params.Pause) -> int:
        """Let the pops of a topic find nothing; until when in ms, 0 for until it is resumed."""
        return await self._topics.pause(command.topic, _ms_or_none(command.seconds))

    async def resume(self, topic: str) -> bool:
        """End the pause of a topic; whether it was paused."""
        return await self._topics.resume(topic)

    async def purge(self, command: params.Purge) -> tuple[int, str | None]:
        """Delete jobs of a topic for about a second; how many, and the cursor to go on with. Raises BadField."""
        state = _state(command.state)
        place = self._place(command.cursor, state, purging=True)
        purged = await self._walk.purge(command.topic, state, place)
        return purged.count, cursors.write(purged.next)
