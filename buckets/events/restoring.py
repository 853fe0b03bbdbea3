"""Restores jobs and schedules that Redis has lost, as a journal recorded them. The caller decides what to restore.

Redis reports which ids it does not know, and as of which time. If such a job ended, it ended before that time, and the
end is in the stream. So a caller that has read the stream up to that time may restore the jobs that did not end.
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

PAGE = 100  # jobs per script, at most


class Asked(NamedTuple):
    """Which of some ids a shard does not know."""

    shard: int
    at: int
    """When the shard was asked, in us since the epoch by its Redis's clock."""
    stream: str
    """The word of the stream that records later events, or empty if events are off."""
    unknown: list[str]
    """The ids without any record: no live job, no tombstone, no schedule."""


class Lost(NamedTuple):
    """A life that goes on in Redis although it had ended: Redis has forgotten its end."""

    id: str
    created: int
    """ms since the epoch."""
    lease: int
    """The lease of its last delivery, in us since the epoch."""
    end: int
    """The state in which it ended, or 0 to leave no tombstone because another life follows."""


class LostSchedule(NamedTuple):
    """A schedule to restore."""

    name: str
    record: bytes
    seen: int = 0
    """The revision of the schedule that it replaces, or 0 if there is none."""
    occurrences: Sequence[str] = ()
    """The ids of its live occurrences, each without the leading name and `@`."""


class Restoring:
    """Restores jobs and schedules in one namespace. `actor`: the actor in the events of the restored jobs."""

    def __init__(self, shards: Shards, actor: str) -> None:
        self._shards = shards
        self._actor = actor
        self._turn = itertools.count()

    @property
    def shards(self) -> int:
        """The number of shards."""
        return len(self._shards.keys)

    async def ask(self, ids: Sequence[str]) -> list[Asked]:
        """Ask each shard which of its ids are unknown; the id of a schedule is `~` and its name. Without ids, ask all
        shards for the time. Raises Unavailable."""
        by_shard: dict[int, list[str]] = {} if ids else {shard: [] for shard in range(self.shards)}
        for job_id in ids:
            by_shard.setdefault(shard_of(job_id.removeprefix(SCHEDULE), self.shards), []).append(job_id)
        return [await self._ask(shard, some) for shard, some in by_shard.items()]

    async def _ask(self, shard: int, ids: Sequence[str]) -> Asked:
        at, stream, *known = await self._shards.call("known", shard, ids, now=self._shards.clock.now())
        unknown = [job_id for job_id, is_known in zip(ids, known, strict=True) if not is_known]
        return Asked(shard, int(at), stream.decode(), unknown)

    async def put(self, jobs: Sequence[tuple[str, bytes]]) -> list[bool | JobQueueError]:
        """Put jobs and tombstones, given as id and record, unless their ids exist. Returns for each job True if it was
        put, False if its id exists, or an error: NoRoom, or Unavailable if it may or may not have been put. After
        Unavailable, `ask` about the job before putting it again: a worker may have finished it meanwhile."""
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
        """Put schedules that do not exist, or that exist only in the revision `seen`. The results are as for `put`."""
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
        """Remove a schedule if it still has this revision; returns whether it was removed. Raises Unavailable."""
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
        """End lives again. Returns for each life `ended`, `reserved` if another worker has the job now, `other` if the
        life does not exist or has ended, or Unavailable."""
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
