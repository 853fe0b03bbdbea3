"""A walk over the jobs of a topic, page by page: to look at them, or to delete them.

A page takes a few scripts of a millisecond or two, however much Redis holds. The next page begins at a `Position`, and
that stays valid when its job is gone. The walk meets every job that stays in its state meanwhile. Since jobs of other
topics are in the same buckets, a page may be short or empty before the end. The position that it gives names none of
those: who walks over a topic need not be allowed to know of others.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from buckets.job import LIVE, Job, State
from buckets.keys import shard_of
from buckets.pool.pool import Pool
from buckets.record import unpack
from buckets.shards import MOST

_SCRIPTS_A_PAGE = 50
_READY_ENTRIES = 150  # that one script takes off a list
_BYTES_A_SCRIPT = 1 << 20
_INDEX = re.compile(r"[0-9]{0,15}")
_TIME = re.compile(r"(-?[0-9]{1,20}(\.[0-9]{1,20})?(e[+-][0-9]{1,3})?|-?inf)?")
_ENTRY = re.compile(r"[\x00-\xff]*", re.S)  # its bytes, each as the character of that code: it need not be text


class Position(NamedTuple):
    """A position in a walk: just after an entry of an index. For ready jobs `number`, `at` and `entry` are priority,
    index in the list and entry; for others bucket, time (a number as text) and id. Empty: at its beginning."""

    state: int
    shard: int
    number: int = 0
    at: str = ""
    entry: str = ""
    begun: int = 0  # of a purge, ms since the epoch: jobs created later stay


@dataclass(slots=True)
class Page:
    """Jobs of a walk, and where it goes on (None: it is at its end)."""

    jobs: list[Job] = field(default_factory=list)
    next: Position | None = None


@dataclass(slots=True)
class Purged:
    """How many jobs were deleted, and where to go on (None: the purge is done)."""

    count: int = 0
    next: Position | None = None


class Walk:
    """Walks over the jobs of topics."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    def has(self, position: Position) -> bool:
        """Whether the position is possible in this namespace; one that comes from outside may be anything."""
        numbers = range(10) if position.state == State.READY else range(self._pool.buckets)
        at = _INDEX if position.state == State.READY else _TIME
        return (
            position.state in LIVE
            and position.shard in range(len(self._pool.keys))
            and position.number in numbers
            and at.fullmatch(position.at) is not None
            and _ENTRY.fullmatch(position.entry) is not None
            and position.begun in range(1 << 53)
        )

    async def peek(
        self,
        topic: str,
        state: State | None = None,
        position: Position | None = None,
        *,
        shard: int | None = None,
        count: int = 100,
        room: int = 8 << 20,
    ) -> Page:
        """Up to `count` jobs of a topic (up to `room` bytes, but at least one), in one state or in all live states one
        after the other, of one shard or of all. Delayed and reserved jobs come by their time, dead ones by the time of
        their death, ready ones in the order of a pop."""
        begin = position or self._begin(state, shard or 0)
        page, looks = Page(next=begin), 0
        while page.next is not None and len(page.jobs) < count and not (room <= 0 and page.jobs):
            if looks >= _SCRIPTS_A_PAGE and self._gets_on(page.next, begin, page.jobs):
                break
            looks += 1
            want, most = min(count - len(page.jobs), MOST), min(max(room, 1), _BYTES_A_SCRIPT)
            pairs, page.next = await self._look(topic, state, page.next, want, most, shard)
            for job_id, raw in pairs:
                page.jobs.append(unpack(job_id, raw))
                room -= len(raw)
        page.next = self._told(page.next, begin, page.jobs)
        return page

    def _told(self, position: Position | None, begin: Position, jobs: Sequence[Job] = ()) -> Position | None:
        """A position of a walk that began at another one and gave these jobs, as others may read it: without the id of
        a job of another topic. It lies as far before as jobs of that millisecond and bucket are, and not before the
        last job that was given."""
        if position is None or position.state == State.READY or not position.entry:
            return position
        for known in (*map(self._behind, jobs[-1:]), begin):
            if known._replace(entry="", begun=0) == position._replace(entry="", begun=0):
                return position._replace(entry=known.entry)
        return position._replace(entry="")

    def _gets_on(self, position: Position, begin: Position, jobs: Sequence[Job] = ()) -> bool:
        """Whether a walk may end a page there: the next one would not begin where this one did."""
        return position == begin or self._told(position, begin, jobs) != begin

    def _behind(self, job: Job) -> Position:
        """The position behind a job that is not ready."""
        number = 0 if job.state is State.DEAD else job.bucket
        shard = shard_of(job.id, len(self._pool.keys))
        return Position(int(job.state), shard, number, str(job.next), job.id.encode().decode("latin-1"))

    async def newest_ms(self) -> int:
        """When the newest job may have been created, for a purge that begins now."""
        return await self._pool.newest_ms()

    async def purge(
        self,
        topic: str,
        state: State | None = None,
        position: Position | None = None,
        *,
        begun: int | None = None,
        seconds: float = 1.0,
    ) -> Purged:
        """Delete the jobs of a topic, in one state or in all live ones, that existed when the purge began; those added
        more than 2 ms later stay. Returns after about `seconds`, with the position where to go on. `begun`: what
        `newest_ms` was when it began; None for now."""
        end = asyncio.get_running_loop().time() + seconds
        if position is None:
            position = self._begin(state)._replace(begun=await self.newest_ms() if begun is None else begun)
        purged = Purged(next=position)
        while purged.next and not (asyncio.get_running_loop().time() >= end and self._gets_on(purged.next, position)):
            step = self._purge_ready if purged.next.state == State.READY else self._purge_timed
            purged.count += await step(topic, state, purged)
        purged.next = self._told(purged.next, position)
        return purged

    async def _purge_timed(self, topic: str, state: State | None, purged: Purged) -> int:
        position = purged.next
        assert position is not None
        pairs, purged.next = await self._look(topic, state, position, MOST, None)
        if not pairs:
            return 0
        ids = [job_id for job_id, _ in pairs]
        count: int = await self._call("purge", position, ids, topic=topic, state=position.state, begun=position.begun)
        return count

    async def _purge_ready(self, topic: str, state: State | None, purged: Purged) -> int:
        position = purged.next
        assert position is not None
        taken, count = await self._call(
            "purge_ready", position, topic=topic, priority=position.number, begun=position.begun, page=_READY_ENTRIES
        )
        if not taken:
            purged.next = self._after(position, state)
        return int(count)

    async def _look(
        self, topic: str, state: State | None, position: Position, want: int, room: int | None, shard: int | None = None
    ) -> tuple[list[tuple[str, bytes]], Position | None]:
        """Ids of jobs with their records (empty without `room`), and the position after them."""
        script, arguments = self._script_at(position)
        more, *reply = await self._call(
            script, position, topic=topic, want=want, room="" if room is None else room, **arguments
        )
        if position.state == State.READY:
            at, entry, *flat = reply
            after = position._replace(at=str(at), entry=entry.decode("latin-1"))
        else:
            at, number, entry, *flat = reply
            after = position._replace(number=int(number), at=at.decode(), entry=entry.decode("latin-1"))
        pairs = [(job_id.decode(), raw) for job_id, raw in zip(flat[::2], flat[1::2], strict=True)]
        return pairs, after if more else self._after(position, state, shard)

    def _script_at(self, position: Position) -> tuple[str, dict[str, Any]]:
        entry = position.entry.encode("latin-1")
        if position.state == State.READY:
            return "peek_ready", {"priority": position.number, "place": int(position.at or 0), "entry": entry}
        after = {"after_at": position.at, "after_bucket": position.number, "after_id": entry}
        return "peek", {"state": position.state, "buckets": self._pool.buckets, **after}

    async def _call(self, script: str, at: Position, /, rest: Sequence[str] = (), **arguments: Any) -> Any:
        return await self._pool.call(script, at.shard, rest, now=self._pool.clock.now(), **arguments)

    def _begin(self, state: State | None, shard: int = 0) -> Position:
        return self._first(state or LIVE[0], shard)

    def _first(self, state: int, shard: int) -> Position:
        return Position(int(state), shard, 9 if state == State.READY else 0)

    def _after(self, position: Position, state: State | None, shard: int | None = None) -> Position | None:
        """The beginning of the list, shard or state after the one that is done."""
        if position.state == State.READY and position.number > 0:
            return position._replace(number=position.number - 1, at="", entry="")
        if shard is None and position.shard + 1 < len(self._pool.keys):
            return self._first(position.state, position.shard + 1)._replace(begun=position.begun)
        if state is None and position.state < LIVE[-1]:
            return self._first(position.state + 1, shard or 0)._replace(begun=position.begun)
        return None
