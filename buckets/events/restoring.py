"""Brings back jobs and schedules that Redis has lost, as a journal has them. What to bring back, its caller decides.

Redis is asked which ids it does not know, and at what time: a job that is not known then and had ended, ended before,
and its end was told. Who has waited until all told by that time is read may put the others.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from buckets.errors import JobQueueError, NotFound
from buckets.job import Verb
from buckets.keys import shard_of
from buckets.layout import SCHEDULE
from buckets.scripts import Value
from buckets.shards import ACTOR, Item, Shards

PAGE = 100  # jobs a script, at most


class Asked(NamedTuple):
    """What a shard knew of some ids."""

    shard: int
    at: int
    """When, in us since the epoch by the clock of its Redis."""
    stream: str
    """The word of the stream that tells of what happens since; empty: nothing tells."""
    unknown: list[str]
    """The ids of which it had no record, neither of a live job nor a tombstone."""


class Lost(NamedTuple):
    """A life that goes on in Redis and had ended before Redis forgot that."""

    id: str
    created: int
    """ms since the epoch."""
    lease: int
    """Of its last delivery, us since the epoch."""
    end: int
    """The state that it ended in; 0: leave no tombstone of it, as another life is to follow."""


class LostSchedule(NamedTuple):
    """A schedule to be put."""

    name: str
    record: bytes
    seen: int = 0
    """The revision of the one that it takes the place of; 0: none."""
    occurrences: Sequence[str] = ()
    """What follows name and `@` in the ids of its occurrences that live."""


class Restoring:
    """Puts jobs into one namespace. `actor`: who does it, as their events say."""

    def __init__(self, shards: Shards, actor: str) -> None:
        self._shards = shards
        self._actor = actor
        self._turn = itertools.count()

    @property
    def shards(self) -> int:
        """How many there are."""
        return len(self._shards.keys)

    async def ask(self, ids: Sequence[str]) -> list[Asked]:
        """Ask which ids are unknown, each shard about its own; those of schedules are `~` and the name. Without ids,
        ask all shards for the time. Raises Unavailable."""
        by_shard: dict[int, list[str]] = {} if ids else {shard: [] for shard in range(self.shards)}
        for job_id in ids:
            by_shard.setdefault(shard_of(job_id.removeprefix(SCHEDULE), self.shards), []).append(job_id)
        return [await self._ask(shard, some) for shard, some in by_shard.items()]

    async def _ask(self, shard: int, ids: Sequence[str]) -> Asked:
        at, stream, *known = await self._shards.call("known", shard, ids, now=self._shards.clock.now())
        unknown = [job_id for job_id, is_known in zip(ids, known, strict=True) if not is_known]
        return Asked(shard, int(at), stream.decode(), unknown)

    async def put(self, jobs: Sequence[tuple[str, bytes]]) -> list[bool | JobQueueError]:
        """Put jobs and tombstones, given as id and record, that are not there yet. For each whether it was put, or the
        error: NoRoom, or Unavailable, after which it may be there or not. Then it is not put again without being asked
        about: a worker may have finished it since."""
        items = [Item(job_id, (job_id, record), len(record)) for job_id, record in jobs]
        with self._acting():
            results = await self._shards.spread(items, self._put)
        return [each if isinstance(each, JobQueueError) else bool(each) for each in results]

    async def _put(self, shard: int, items: Sequence[Item]) -> list[Any]:
        own: dict[str, Value] = {"verb": int(Verb.RESTORE), "buckets": self._shards.buckets}
        return await self._shards.run_in(
            *(shard, "import", items, {"now": self._shards.clock.now(), **own}),
            fresh=lambda: {"bucket": next(self._turn)},
            repeat=False,
        )

    async def put_schedules(self, schedules: Sequence[LostSchedule]) -> list[bool | JobQueueError]:
        """Put schedules that are not there, or only with an older definition. The results as those of `put`."""
        with self._acting():
            return [await self._put_schedule(each) for each in schedules]

    async def _put_schedule(self, schedule: LostSchedule) -> bool | JobQueueError:
        occurrences = [value for each in schedule.occurrences for value in (each.partition("@")[0], each)]
        try:
            put = await self._shards.call(
                *("put_schedule", shard_of(schedule.name, self.shards), occurrences),
                repeat=False,
                now=self._shards.clock.now(),
                id=schedule.name,
                seen=schedule.seen,
                bucket=next(self._turn) % self._shards.buckets,
                record=schedule.record,
            )
        except JobQueueError as error:
            return error
        return bool(put)

    async def remove_schedule(self, name: str, revision: int) -> bool:
        """Remove a schedule, if it is still of this revision; whether it was. Raises Unavailable."""
        with self._acting():
            try:
                removed, *_ = await self._shards.call(
                    "undefine",
                    shard_of(name, self.shards),
                    now=self._shards.clock.now(),
                    id=name,
                    seen=revision,
                )
            except NotFound:
                return False
        return bool(removed == b"removed")

    async def end(self, lives: Sequence[Lost]) -> list[str | JobQueueError]:
        """End lives again. For each `ended`; `reserved`: another worker has it by now; `other`: it is not there, or has
        ended; or Unavailable."""
        items = [Item(each.id, (*each[:3], int(each.end))) for each in lives]
        with self._acting():
            results = await self._shards.each("end_life", items, now=self._shards.clock.now())
        return [each.decode() if isinstance(each, bytes) else each for each in results]

    @contextmanager
    def _acting(self) -> Iterator[None]:
        token = ACTOR.set(self._actor)
        try:
            yield
        finally:
            ACTOR.reset(token)
