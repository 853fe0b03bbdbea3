"""A walk over the jobs of a topic, page by page: to look at them, or to delete them.

A page takes a few scripts of a millisecond or two, however much Redis holds. The next page begins at a `Position`,
which stays valid when its job is gone. The walk meets every job that stays in its state meanwhile. Since jobs of other
topics are in the same buckets, a page may be short or empty before the end. A returned position names no job of another
topic: a caller that may walk over one topic may not be allowed to see others.
"""

from __future__ import annotations

import asyncio
import re
from bisect import bisect_right
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from buckets.job import LIVE, Job, State
from buckets.keys import shard_of
from buckets.pool.pool import Pool
from buckets.record import unpack
from buckets.shards import MOST
from buckets.topics.topics import Bin, Topics

_SCRIPTS_A_PAGE = 50
_TURN_S = 0.1  # the longest wait before a page's next script
_LONGEST_LEASE_MS = 2 * 86_400_000  # twice the longest ttr: the clock may have gone back
_READY_ENTRIES = 150  # entries that one script removes from a list
_BYTES_A_SCRIPT = 1 << 20
BLOCKED = 10
"""The `number` of a position among the ready jobs that wait for their keys."""
_INDEX = re.compile(r"[0-9]{0,15}")
_TIME = re.compile(r"(-?[0-9]{1,20}(\.[0-9]{1,20})?(e[+-][0-9]{1,3})?|-?inf)?")
_ENTRY = re.compile(r"[\x00-\xff]*", re.S)  # bytes, each as the character with this code: an entry need not be text


class Position(NamedTuple):
    """A position in a walk: just after an entry of an index. For ready jobs, `number`, `at` and `entry` are priority
    (or `BLOCKED`), index in the list and entry; for others, bucket, time (a number as text) and id. Empty fields mean
    the beginning."""

    state: int
    shard: int
    number: int = 0
    at: str = ""
    entry: str = ""
    begun: int = 0  # when a purge began, ms since the epoch: jobs created later stay


@dataclass(slots=True)
class Page:
    """Jobs of a walk, the position of the next page (None at the end), and how many index entries were looked at."""

    jobs: list[Job] = field(default_factory=list)
    next: Position | None = None
    looked: int = 0


@dataclass(slots=True)
class Purged:
    """How many jobs were deleted, and the position from which to continue (None if the purge is done)."""

    count: int = 0
    next: Position | None = None


class Sought(NamedTuple):
    """The jobs that a walk is for: jobs of a topic, in one state or all live ones, in one shard or all, from a time on
    (ms since the epoch), with ids that begin with a prefix. `back`: for states that are ordered by time, the latest
    jobs first, from that time back. `in_order`: ready jobs that wait for their keys come after the others, as in pops;
    otherwise first, so that the walk misses none that gets its key meanwhile."""

    topic: str
    state: State | None = None
    shard: int | None = None
    since_ms: int | None = None
    prefix: str = ""
    back: bool = False
    in_order: bool = False


class Walk:
    """Walks over the jobs of topics."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._turns = [asyncio.Lock() for _ in pool.keys]

    def has(self, position: Position) -> bool:
        """Whether the position is possible in this namespace; a position from outside may be anything."""
        numbers = range(BLOCKED + 1) if position.state == State.READY else range(self._pool.buckets)
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
        since_ms: int | None = None,
        prefix: str = "",
    ) -> Page:
        """Up to `count` jobs of a topic (up to `room` bytes, but at least one job), in one state or in all live states
        one after the other, in one shard or in all, with ids that begin with a prefix. Delayed and reserved jobs are
        ordered by their time, dead ones by the time of their death, ready ones as in a pop, followed by those that wait
        for their keys, by key. `since_ms`: for a walk over one state that is ordered by time, where the walk begins in
        each shard."""
        sought = Sought(topic, state, shard, since_ms, prefix, in_order=True)
        begin = position or self._begin(sought)
        page, looks, times = Page(next=begin), 0, Times(Topics(self._pool), topic)
        while page.next is not None and len(page.jobs) < count and not (room <= 0 and page.jobs):
            if looks >= _SCRIPTS_A_PAGE and self._gets_on(page.next, begin, page.jobs):
                break
            looks += 1
            want, most = min(count - len(page.jobs), MOST), min(max(room, 1), _BYTES_A_SCRIPT)
            async with self._turn(page.next.shard):
                pairs = await self._look(sought, page, want, most)
            for job_id, raw in pairs:
                page.jobs.append(unpack(job_id, raw))
                room -= len(raw)
            if not pairs and page.next is not None:
                page.next = await self._skip(sought, page.next, times)
        page.next = self._told(page.next, begin, page.jobs)
        return page

    @asynccontextmanager
    async def _turn(self, shard: int) -> AsyncIterator[None]:
        """Only one script of a page runs on a shard at a time: however many callers look at jobs, a pop waits for only
        one script. If Redis does not answer, callers do not wait long for each other."""
        turn, is_taken = self._turns[shard], False
        with suppress(TimeoutError):
            async with asyncio.timeout(_TURN_S):
                is_taken = await turn.acquire()
        try:
            yield
        finally:
            if is_taken:
                turn.release()

    async def look(self, sought: Sought, position: Position | None, times: Times, want: int) -> Page:
        """A short step of a walk over one shard: up to `want` jobs without their bodies. `times`: the times of the
        topic, read once for all steps."""
        page = Page(next=position or self._begin(sought))
        pairs = await self._look(sought, page, min(want, MOST), None)
        page.jobs = [unpack(job_id, raw) for job_id, raw in pairs]
        if not pairs and page.next is not None:
            page.next = await self._skip(sought, page.next, times)
        return page

    async def _skip(self, sought: Sought, position: Position, times: Times) -> Position | None:
        """A later position, if no job of the topic is between: for delayed jobs, the histogram shows this; for reserved
        jobs, none is further ahead than the longest lease."""
        if sought.back:
            return await self._skip_back(sought, position, times)
        at = float(position.at or "-inf")
        if position.state == State.RESERVED:
            return self._after(sought, position) if at > await times.last_lease_ms() else position
        if position.state != State.DELAYED:
            return position
        begin = await times.next(position.shard, at)
        if begin is None:
            return self._after(sought, position)
        return position._replace(number=0, at=_before(begin), entry="") if begin > at else position

    async def _skip_back(self, sought: Sought, position: Position, times: Times) -> Position | None:
        """As `_skip`, for a walk over delayed jobs that goes back in time."""
        at = float(position.at or "inf")
        end = await times.last(position.shard, at)
        if end is None:
            return self._after(sought, position)
        return position._replace(number=0, at=_before(end), entry="") if end < at else position

    def _told(self, position: Position | None, begin: Position, jobs: Sequence[Job] = ()) -> Position | None:
        """A position in a form that callers may see: without the id of a job of another topic. Instead, the position
        moves back to before the jobs of that millisecond and bucket, but not before the last of `jobs`, which the walk
        returned, or `begin`, where it began."""
        if position is None or position.state == State.READY or not position.entry:
            return position
        for known in (*map(self._behind, jobs[-1:]), begin):
            if known._replace(entry="", begun=0) == position._replace(entry="", begun=0):
                return position._replace(entry=known.entry)
        return position._replace(entry="")

    def _gets_on(self, position: Position, begin: Position, jobs: Sequence[Job] = ()) -> bool:
        """Whether a walk may end a page at this position: the next page would not begin where this one did."""
        return position == begin or self._told(position, begin, jobs) != begin

    def _behind(self, job: Job) -> Position:
        """The position after a job that is not ready."""
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
        more than 2 ms later stay. Returns after about `seconds`, with the position from which to continue. `begun`: the
        value of `newest_ms` when the purge began, or None for now."""
        end = asyncio.get_running_loop().time() + seconds
        if position is None:
            begin = self._begin(Sought(topic, state))
            position = begin._replace(begun=await self.newest_ms() if begun is None else begun)
        purged = Purged(next=position)
        while purged.next and not (asyncio.get_running_loop().time() >= end and self._gets_on(purged.next, position)):
            step = self._purge_ready if purged.next.state == State.READY else self._purge_timed
            purged.count += await step(Sought(topic, state), purged)
        purged.next = self._told(purged.next, position)
        return purged

    async def _purge_timed(self, sought: Sought, purged: Purged) -> int:
        position, page = purged.next, Page(next=purged.next)
        assert position is not None
        pairs = await self._look(sought, page, MOST, None)
        purged.next = page.next
        if not pairs:
            return 0
        ids = [job_id for job_id, _ in pairs]
        topic = sought.topic
        count: int = await self._call("purge", position, ids, topic=topic, state=position.state, begun=position.begun)
        return count

    async def _purge_ready(self, sought: Sought, purged: Purged) -> int:
        position = purged.next
        assert position is not None
        topic, number, begun = sought.topic, position.number, position.begun
        if number == BLOCKED:
            after = position.entry.encode("latin-1")
            last, count = await self._call(
                "purge_blocked", position, topic=topic, begun=begun, page=_READY_ENTRIES, entry=after
            )
            later = position._replace(entry=last.decode("latin-1"))
            purged.next = later if last else self._after(sought, position)
            return int(count)
        taken, count = await self._call(
            "purge_ready", position, topic=topic, priority=number, begun=begun, page=_READY_ENTRIES
        )
        if not taken:
            purged.next = self._after(sought, position)
        return int(count)

    async def _look(self, sought: Sought, page: Page, want: int, room: int | None) -> list[tuple[str, bytes]]:
        """Read ids of jobs with their records, and move the page's position after them. Without `room`, records have no
        bodies."""
        position = page.next
        assert position is not None
        script, arguments = self._script_at(position, sought)
        arguments |= {"topic": sought.topic, "want": want, "room": "" if room is None else room}
        more, looked, *reply = await self._call(script, position, prefix=sought.prefix, **arguments)
        page.looked += looked
        if position.state == State.READY:
            at, entry, *flat = reply
            after = position._replace(at=str(at), entry=entry.decode("latin-1"))
        else:
            at, number, entry, *flat = reply
            after = position._replace(number=int(number), at=at.decode(), entry=entry.decode("latin-1"))
        page.next = after if more else self._after(sought, position)
        return [(job_id.decode(), raw) for job_id, raw in zip(flat[::2], flat[1::2], strict=True)]

    def _script_at(self, position: Position, sought: Sought) -> tuple[str, dict[str, Any]]:
        entry = position.entry.encode("latin-1")
        if position.state == State.READY and position.number == BLOCKED:
            return "peek_blocked", {"entry": entry}
        if position.state == State.READY:
            return "peek_ready", {"priority": position.number, "place": int(position.at or 0), "entry": entry}
        after = {"after_at": position.at, "after_bucket": position.number, "after_id": entry}
        order = {"back": "1" if sought.back else "", "buckets": self._pool.buckets}
        return "peek", {"state": position.state, **order, **after}

    async def _call(self, script: str, at: Position, /, rest: Sequence[str] = (), **arguments: Any) -> Any:
        return await self._pool.call(script, at.shard, rest, now=self._pool.clock.now(), **arguments)

    def _begin(self, sought: Sought) -> Position:
        return self._first(sought, sought.state or LIVE[0], sought.shard or 0)

    def _first(self, sought: Sought, state: int, shard: int, begun: int = 0) -> Position:
        at = "" if sought.since_ms is None else _before(sought.since_ms)
        first = (9 if sought.in_order else BLOCKED) if state == State.READY else 0
        return Position(int(state), shard, first, at, begun=begun)

    def _after(self, sought: Sought, position: Position) -> Position | None:
        """The beginning of the next list, shard or state, or None if this was the last."""
        state, shard, number, *_, begun = position
        if state == State.READY and number != (BLOCKED if sought.in_order else 0):
            return position._replace(number=number - 1 if number else BLOCKED, at="", entry="")
        if sought.shard is None and shard + 1 < len(self._pool.keys):
            return self._first(sought, state, shard + 1, begun)
        if sought.state is None and state < LIVE[-1]:
            return self._first(sought, state + 1, sought.shard or 0, begun)
        return None


def _before(time_ms: int) -> str:
    """The time of a position before all entries of a time and after all earlier ones; the times of entries are
    integers."""
    return str(time_ms - 0.5)


class Times:
    """The times at which a topic may have delayed or reserved jobs, for one page of a walk, so that the walk skips
    other times. The histogram of a shard is read when it is first needed."""

    def __init__(self, topics: Topics, topic: str) -> None:
        self._topics = topics
        self._topic = topic
        self._bins: dict[int, Bins] = {}
        self._last_lease_ms = 0

    async def next(self, shard: int, at: float) -> int | None:
        """The beginning of the first bin with jobs that ends after a time (both in ms since the epoch), or None if
        there is none."""
        return (await self._of(shard)).next(at)

    async def last(self, shard: int, at: float) -> int | None:
        """The end of the last bin with jobs that begins at a time or before, or None if there is none."""
        return (await self._of(shard)).last(at)

    async def _of(self, shard: int) -> Bins:
        if shard not in self._bins:
            bins = await self._topics.bins(shard, self._topic)
            self._bins[shard] = Bins([each for each, jobs in bins if jobs])
        return self._bins[shard]

    async def last_lease_ms(self) -> int:
        """The latest time at which a lease may end, in ms since the epoch."""
        if not self._last_lease_ms:
            self._last_lease_ms = await self._topics.pool.now_ms() + _LONGEST_LEASE_MS
        return self._last_lease_ms


class Bins:
    """Bins, sorted by width and beginning, as a page needs them dozens of times."""

    def __init__(self, bins: Sequence[Bin]) -> None:
        self._begins: dict[int, list[int]] = {}
        for begin, width in bins:
            self._begins.setdefault(width, []).append(begin)
        for begins in self._begins.values():
            begins.sort()

    def next(self, at: float) -> int | None:
        """The first beginning of a bin that ends after a time."""
        found: list[int] = []
        for width, begins in self._begins.items():
            place = bisect_right(begins, at - width)
            found += begins[place : place + 1]
        return min(found, default=None)

    def last(self, at: float) -> int | None:
        """The last end of a bin that begins at a time or before."""
        found: list[int] = []
        for width, begins in self._begins.items():
            place = bisect_right(begins, at)
            found += [begin + width for begin in begins[max(place - 1, 0) : place]]
        return max(found, default=None)
