"""The lanes of several shards, as one: adds and finishes go to the shards of their ids, and a pop asks one shard after
the other, first the shard that most likely has jobs.

As with the lane of one shard, nothing here is a task. Jobs that the lane of their shard did not take are added or
finished the complete way, in a task. So a pop may overtake a finish of its own request; topics with limits, for which
that matters, are not popped here. Pops that cannot go on take the complete way, except those that have found jobs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from buckets.errors import JobQueueError, Unanswered
from buckets.job import Job, State
from buckets.keys import shard_of
from buckets.pool.codec import Added, Prepared
from buckets.pool.lanes import Done, Lane, Pops, SharedPop, tell
from buckets.pool.limits import Limits
from buckets.pool.pop_search import IN_ORDER, Ask, Popped
from buckets.pool.ready_shards import ReadyShards
from buckets.shards import MOST, Shards

log = logging.getLogger(__name__)

_READY = State.READY.word
_NO_LIMITS: Limits = {}
_LOOK_S = 0.1  # between checks whether a silent server is passed over

Redo = Callable[[int, Sequence[Any], Done], None]
"""Does, the complete way, what the lane of a shard did not do: gets the shard, its jobs, and the callback for their
results."""


class _Parts:
    """The jobs of one caller in several shards. It gets its results once all shards have given theirs."""

    __slots__ = ("_done", "_missing", "_results")

    def __init__(self, jobs: int, shards: int, done: Done) -> None:
        self._results: list[Any] = [None] * jobs
        self._missing = shards
        self._done = done

    def take(self, places: Sequence[int], outcome: Any) -> None:
        """Take the outcome of a shard: a list with a result for each of these places, or an error for all of them."""
        results = [outcome] * len(places) if isinstance(outcome, JobQueueError) else outcome
        for place, result in zip(places, results, strict=True):
            self._results[place] = result
        self._missing -= 1
        if not self._missing:
            tell(self._done, self._results)


@dataclass(slots=True, eq=False)
class _Search:
    """Similar pops that ask one shard after the other."""

    pops: SharedPop
    places: Iterator[tuple[int, Sequence[str]]]
    """The shards to ask, and the topics to ask each for."""
    shard: int = 0
    """The shard being asked; the fields below say for which topics, for how many jobs, since when, and with which
    stamp."""
    topics: Sequence[str] = ()
    wanted: int = 0
    asked_at: float = 0.0
    stamp: int = 0
    step: int = 0
    """Rises with each script, and at the end: an answer to an earlier script is too late."""
    left: int = 0
    """How many ready jobs the earlier shards have left."""
    opens_us: int | None = None
    is_stuck: bool = False
    """Whether a shard cannot be asked, or did not do its part."""

    def __post_init__(self) -> None:
        self.pops.take(self.found([], 0), more=False)

    def found(self, jobs: list[Job], left: int) -> Popped:
        """The outcome so far. `jobs`, `left`: those of the last script."""
        return Popped(jobs, self.left + left, self.opens_us, ask_why=True)  # not every shard is asked for every topic


class Lanes:
    """The lanes of several shards."""

    def __init__(
        self,
        shards: Shards,
        bucket: Callable[[], int],
        ready_shards: ReadyShards,
        *,
        redo_adds: Callable[[str, int, Sequence[Prepared], Done], None],
        redo_finishes: Redo,
        give_back: Callable[[Sequence[Job]], None],
    ) -> None:
        """`bucket`: returns the next bucket in turn. `redo_adds`, `redo_finishes`: see `Redo`; the former also gets
        `within`. `give_back`: returns jobs that no caller is waiting for."""
        self.by_shard = [Lane(shards, shard, bucket, self._note_called) for shard in range(len(shards.keys))]
        """The lane of each shard."""
        self._shards = shards
        self._ready_shards = ready_shards
        self._redo_adds = redo_adds
        self._redo_finishes = redo_finishes
        self._give_back = give_back
        self._pops = Pops(self._begin_search, self._send_overdue)
        self._to_send: list[Lane] = []  # lanes that have adds or finishes of this turn
        self._to_flush: list[Lane] = []  # lanes that have sent pops
        self._is_leaving = False  # whether `_leave` is about to be called
        self._searches: set[_Search] = set()
        self._watching: asyncio.TimerHandle | None = None

    @property
    def closed(self) -> bool:
        """As `Lane.closed`."""
        return self.by_shard[0].closed

    @property
    def is_open(self) -> bool:
        """Whether at least one lane accepts calls."""
        return any(lane.is_open for lane in self.by_shard)

    def add(self, jobs: Sequence[Prepared], done: Done, within: str = "") -> bool:
        """As `Lane.add`. What becomes ready is noted, so that a pop here finds it before the bell reports it."""
        if len(jobs) == 1:  # the usual case, without closures
            shard = shard_of(jobs[0][1], len(self.by_shard))
            return self.by_shard[shard].add(jobs, partial(self._added, shard, jobs, done), within)

        def enter(shard: int, some: Sequence[Prepared], took: Done) -> bool:
            return self.by_shard[shard].add(some, partial(self._added, shard, some, took), within)

        def redo(shard: int, some: Sequence[Prepared], took: Done) -> None:
            self._redo_adds(within, shard, some, partial(self._added, shard, some, took))

        return self._enter([job[1] for job in jobs], jobs, enter, redo, done)

    def finish(self, ends: Sequence[Sequence[Any]], done: Done) -> bool:
        """As `Lane.finish`."""
        if len(ends) == 1:
            return self.by_shard[shard_of(ends[0][0], len(self.by_shard))].finish(ends, done)

        def enter(shard: int, some: Sequence[Sequence[Any]], took: Done) -> bool:
            return self.by_shard[shard].finish(some, took)

        return self._enter([job_id for job_id, _ in ends], ends, enter, self._redo_finishes, done)

    def _enter(
        self,
        ids: Sequence[str],
        jobs: Sequence[Any],
        enter: Callable[[int, Sequence[Any], Done], bool],
        redo: Redo,
        done: Done,
    ) -> bool:
        """Pass jobs to the lanes of their shards. Returns False, and does nothing, if the first of these lanes does not
        accept them."""
        shards = len(self.by_shard)
        places: dict[int, list[int]] = {}
        for place, job_id in enumerate(ids):
            places.setdefault(shard_of(job_id, shards), []).append(place)
        if len(places) == 1:
            return enter(next(iter(places)), jobs, done)
        parts, is_begun = _Parts(len(ids), len(places), done), False
        for shard, own in places.items():
            some = [jobs[place] for place in own]
            took = partial(self._take_part, parts, own, partial(redo, shard, some))
            if enter(shard, some, took):
                is_begun = True
            elif is_begun:
                took(None)
            else:
                return False
        return is_begun

    def _take_part(self, parts: _Parts, places: Sequence[int], redo: Callable[[Done], None], outcome: Any) -> None:
        if outcome is None:
            redo(partial(parts.take, places))
        else:
            parts.take(places, outcome)

    def _added(self, shard: int, jobs: Sequence[Prepared], done: Done, outcome: Any) -> None:
        if type(outcome) is list:
            for job, result in zip(jobs, outcome, strict=True):
                if type(result) is Added and result[1] == _READY:
                    self._ready_shards.stir_topic(shard, job[0].topic)
        done(outcome)

    def pop(self, ask: Ask, count: int, done: Done) -> bool:
        """As `Lane.pop`; also returns False for a topic with limits, as permits must be taken first."""
        if count > MOST or self.closed or not (self._is_leaving or self.is_open) or self._has_limits(ask):
            return False
        self._pops.collected.append((ask, count, done))
        self._leave_soon()
        return True

    def _has_limits(self, ask: Ask) -> bool:
        limits = self._shards.limits
        return bool(limits) and any(topic in limits for topic in ask.topics)

    def withdraw(self, done: Done) -> None:
        """As `Lane.withdraw`."""
        self._pops.withdraw(done)

    def _note_called(self, lane: Lane) -> None:
        self._to_send.append(lane)
        self._leave_soon()

    def _leave_soon(self) -> None:
        if not self._is_leaving:
            self._is_leaving = True
            asyncio.get_running_loop().call_soon(self._leave)

    def _leave(self) -> None:
        """The turn is over: send the calls made during it, pops after the finishes and adds."""
        self._is_leaving = False
        self._send_changes()
        if self._pops.collected:
            self._pops.send_in_time()
        self._flush()

    def _send_overdue(self) -> None:
        self._send_changes()
        self._pops.send()
        self._flush()

    def _send_changes(self) -> None:
        """Send the finishes and adds of this turn."""
        lanes, self._to_send = self._to_send, []
        for lane in lanes:
            lane.leave()
        self._to_flush += lanes

    def _flush(self) -> None:
        asked, self._to_flush = self._to_flush, []
        for lane in asked:
            lane.flush()

    def _begin_search(self, pops: SharedPop) -> None:
        ready = self._ready_shards
        places = ready.places if pops.ask.script == IN_ORDER else ready.places_together
        search = _Search(pops, places(pops.ask.topics))
        self._searches.add(search)
        if self._watching is None:
            self._watching = asyncio.get_running_loop().call_later(_LOOK_S, self._watch)
        search.is_stuck = self._has_limits(pops.ask)  # since the pop was accepted
        if search.is_stuck or not self._go_on(search):
            asyncio.get_running_loop().call_soon(self._end, search)

    def _go_on(self, search: _Search) -> bool:
        """Ask the next shard. Returns False if there is none, or if it cannot be asked."""
        for shard, topics in search.places:
            if self._shards.is_passed_over(shard):
                continue
            if not self.by_shard[shard].is_open:
                search.is_stuck = True
                return False
            search.shard, search.topics = shard, topics
            self._ask(search)
            return True
        return False

    def _ask(self, search: _Search) -> None:
        search.step += 1
        search.stamp = self._ready_shards.asked(search.shard, search.topics)
        search.wanted = search.pops.wanted
        search.asked_at = asyncio.get_running_loop().time()
        lane = self.by_shard[search.shard]
        lane.search(search.pops, search.topics, _NO_LIMITS, partial(self._answered, search, search.step))
        self._to_flush.append(lane)

    def _answered(self, search: _Search, step: int, outcome: Any) -> None:
        if step != search.step:  # its pops are over, and did not wait for this answer
            if isinstance(outcome, tuple):
                self._give_back(outcome[0].jobs)
        elif isinstance(outcome, tuple):
            try:
                self._take(search, *outcome)
            except Exception:
                log.exception("answer.failed")
                self._fail(search, JobQueueError())
        else:
            self._fail(search, None if type(outcome) is Unanswered else outcome)  # other shards may have jobs

    def _take(self, search: _Search, popped: Popped, cut_short: bool) -> None:
        is_full = len(popped.jobs) == search.wanted
        if is_full:  # the script ended in the topic of the last job
            self._ready_shards.left(search.shard, popped.jobs[-1].topic, popped.left, search.stamp)
        elif not cut_short and not popped.left and popped.opens_us is None:
            self._ready_shards.emptied(search.shard, search.topics, search.stamp)
        opens = [each for each in (search.opens_us, popped.opens_us) if each is not None]
        search.opens_us = min(opens, default=None)
        if not search.pops.take(search.found(popped.jobs, popped.left), more=not is_full):
            self._end(search)
        elif cut_short:
            self._ask(search)
            self._flush()
        else:
            search.left += popped.left
            if self._go_on(search):
                self._flush()
            else:
                self._end(search)

    def _fail(self, search: _Search, outcome: Any) -> None:
        search.is_stuck = True
        self._end(search, outcome)

    def _end(self, search: _Search, outcome: Any = None) -> None:
        """The search is over: pass the jobs to the callers and, if it is stuck, the outcome to those without a job."""
        if search not in self._searches:
            return
        search.step += 1
        self._searches.discard(search)
        if search.is_stuck:
            search.pops.fail(outcome)
        else:
            search.pops.settle()
        if self._pops.ended() and not self._is_leaving:
            self._pops.send()
            self._flush()

    def _watch(self) -> None:
        """Do not wait for a silent server while others can be asked: the pops take the complete way."""
        self._watching = None
        now = asyncio.get_running_loop().time()
        for search in [*self._searches]:
            is_late = search.step > 0 and now - search.asked_at >= _LOOK_S
            if is_late and self._shards.is_passed_over(search.shard):
                self._fail(search, None)
        if self._searches and self._watching is None:
            self._watching = asyncio.get_running_loop().call_later(_LOOK_S, self._watch)

    async def close(self) -> None:
        """As `Lane.close`."""
        for lane in self.by_shard:
            lane.closed = True
        self._send_overdue()
        await asyncio.gather(*(lane.close() for lane in self.by_shard))
        await asyncio.sleep(0)  # searches that found no shard to ask end now
        if self._watching:
            self._watching.cancel()
