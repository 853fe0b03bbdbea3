"""A walk over the jobs of a topic, in pages: to look at them, or to delete them.

A page is a few scripts of a millisecond or two, whatever stands in Redis. Where the next page begins is a `Place` that
means the same whether its job is still there or not; a job that stays in its state during the walk is met. Jobs of
other topics stand in the same buckets, so a page may be short or empty before the end.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from buckets.job import LIVE, Job, State
from buckets.pool import Pool
from buckets.record import unpack
from buckets.shards import MOST

_SCRIPTS_A_PAGE = 50
_READY_ENTRIES = 150  # that a script takes off a list
_BYTES_A_SCRIPT = 1 << 20
_INDEX = re.compile(r"[0-9]{0,15}")
_TIME = re.compile(r"(-?[0-9]{1,20}(\.[0-9]{1,20})?(e[+-][0-9]{1,3})?|-?inf)?")
_ENTRY = re.compile(r"[\x00-\xff]*", re.S)  # its bytes, each as the character of that number: it may be no text


class Place(NamedTuple):
    """Where a walk is: behind an entry of an index. Its last three mean, for a ready job: priority, index and entry in
    the list; for others: bucket, time (a number as text) and id. Empty ones: at the beginning of the state."""

    state: int
    shard: int
    number: int = 0
    at: str = ""
    entry: str = ""
    begun: int = 0  # ms since the epoch, of a purge: jobs made later stay


@dataclass(slots=True)
class Page:
    """Jobs of a walk, and where it goes on (None: it is at its end)."""

    jobs: list[Job] = field(default_factory=list)
    next: Place | None = None


@dataclass(slots=True)
class Purged:
    """How many jobs were deleted, and where to go on (None: it is done)."""

    count: int = 0
    next: Place | None = None


class Walk:
    """Walks over the jobs of topics."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    def has(self, place: Place) -> bool:
        """Whether there is such a place here; one that came from outside may be anything."""
        numbers = range(10) if place.state == State.READY else range(self._pool.buckets)
        at = _INDEX if place.state == State.READY else _TIME
        return (
            place.state in LIVE
            and place.shard in range(len(self._pool.keys))
            and place.number in numbers
            and at.fullmatch(place.at) is not None
            and _ENTRY.fullmatch(place.entry) is not None
            and place.begun in range(1 << 53)
        )

    async def peek(
        self,
        topic: str,
        state: State | None = None,
        place: Place | None = None,
        *,
        shard: int | None = None,
        count: int = 100,
        room: int = 8 << 20,
    ) -> Page:
        """Up to `count` jobs (up to `room` bytes of them, one always) of a topic in one state, or in all live ones one
        after the other: delayed and reserved by their time, dead by that of their death, ready as a pop gets them. Of
        one shard, or of all."""
        page = Page(next=place or self._begin(state, shard or 0))
        for _ in range(_SCRIPTS_A_PAGE):
            if page.next is None or len(page.jobs) >= count or (room <= 0 and page.jobs):
                break
            want, most = min(count - len(page.jobs), MOST), min(max(room, 1), _BYTES_A_SCRIPT)
            pairs, page.next = await self._look(topic, state, page.next, want, most, shard)
            for job_id, raw in pairs:
                page.jobs.append(unpack(job_id, raw))
                room -= len(raw)
        return page

    async def purge(
        self, topic: str, state: State | None = None, place: Place | None = None, *, seconds: float = 1.0
    ) -> Purged:
        """Delete the jobs of a topic in one state, or in all live ones, that were there when the purge began; for about
        so many `seconds`, then the place where to go on is told."""
        end = asyncio.get_running_loop().time() + seconds
        purged = Purged(next=place or self._begin(state)._replace(begun=await self._pool.now_ms()))
        while purged.next and asyncio.get_running_loop().time() < end:
            step = self._purge_ready if purged.next.state == State.READY else self._purge_timed
            purged.count += await step(topic, state, purged)
        return purged

    async def _purge_timed(self, topic: str, state: State | None, purged: Purged) -> int:
        place = purged.next
        assert place is not None
        pairs, purged.next = await self._look(topic, state, place, MOST, None)
        if not pairs:
            return 0
        ids = [job_id for job_id, _ in pairs]
        count: int = await self._call("purge", place, ids, topic=topic, state=place.state, begun=place.begun)
        return count

    async def _purge_ready(self, topic: str, state: State | None, purged: Purged) -> int:
        place = purged.next
        assert place is not None
        taken, count = await self._call(
            "purge_ready", place, topic=topic, priority=place.number, begun=place.begun, page=_READY_ENTRIES
        )
        if not taken:
            purged.next = self._after(place, state)
        return int(count)

    async def _look(
        self, topic: str, state: State | None, place: Place, want: int, room: int | None, shard: int | None = None
    ) -> tuple[list[tuple[str, bytes]], Place | None]:
        """Jobs and their records (without `room` only the ids), and the place behind them."""
        script, arguments = self._script_at(place)
        more, *rest = await self._call(
            script, place, topic=topic, want=want, room="" if room is None else room, **arguments
        )
        if place.state == State.READY:
            at, entry, *flat = rest
            behind = place._replace(at=str(at), entry=entry.decode("latin-1"))
        else:
            at, number, entry, *flat = rest
            behind = place._replace(number=int(number), at=at.decode(), entry=entry.decode("latin-1"))
        pairs = [(job_id.decode(), raw) for job_id, raw in zip(flat[::2], flat[1::2], strict=True)]
        return pairs, behind if more else self._after(place, state, shard)

    def _script_at(self, place: Place) -> tuple[str, dict[str, Any]]:
        entry = place.entry.encode("latin-1")
        if place.state == State.READY:
            return "peek_ready", {"priority": place.number, "place": int(place.at or 0), "entry": entry}
        after = {"after_at": place.at, "after_bucket": place.number, "after_id": entry}
        return "peek", {"state": place.state, "buckets": self._pool.buckets, **after}

    async def _call(self, script: str, at: Place, /, rest: Sequence[str] = (), **arguments: Any) -> Any:
        return await self._pool.call(script, at.shard, rest, now=self._pool.clock.now(), **arguments)

    def _begin(self, state: State | None, shard: int = 0) -> Place:
        return self._first(state or LIVE[0], shard)

    def _first(self, state: int, shard: int) -> Place:
        return Place(int(state), shard, 9 if state == State.READY else 0)

    def _after(self, place: Place, state: State | None, shard: int | None = None) -> Place | None:
        """The beginning of the list, shard or state behind the one that is done."""
        if place.state == State.READY and place.number > 0:
            return place._replace(number=place.number - 1, at="", entry="")
        if shard is None and place.shard + 1 < len(self._pool.keys):
            return self._first(place.state, place.shard + 1)._replace(begun=place.begun)
        if state is None and place.state < LIVE[-1]:
            return self._first(place.state + 1, shard or 0)._replace(begun=place.begun)
        return None
