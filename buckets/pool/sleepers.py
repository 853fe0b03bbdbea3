"""Waiting pops that sleep, and to which of them a script may hand a due job (`Offer`).

A job may only be handed to a pop that really sleeps: a pop that is looking at the same time could get two jobs, and the
second would be lost until the end of its TTR. So a pop that is offered neither looks nor is offered again until the
offer is settled.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from math import inf

from buckets.errors import JobQueueError
from buckets.pool.limits import Limits
from buckets.pool.pop_search import IN_ORDER, Ask, Offer, Popped

MOST_GROUPS = 32  # per call of the script

LOOKING, SLEEPING, OFFERED, OVER = range(4)

Done = Callable[[Popped | JobQueueError], None]


class Waiter:
    """A pop that may wait. There are many of these, so it is small."""

    __slots__ = (
        "ask",
        "count",
        "done",
        "early",
        "end",
        "forgives",
        "is_parked",
        "last",
        "leaving",
        "look_at",
        "owner",
        "rung",
        "state",
    )

    def __init__(self, ask: Ask, count: int, end: float, done: Done) -> None:
        self.ask = ask
        self.count = count
        self.end = end  # when its wait ends, loop time
        self.done = done
        self.owner = ""  # the owner of the pop, if any
        self.state = LOOKING
        self.is_parked = False  # from the end of its first look, which found nothing, until it is answered
        self.rung = False  # it must look again, for jobs that came since its look began
        self.early = False  # its next look is not for a ring, and comes before the end of its wait
        self.forgives = False  # the look under way is an early one: if Redis is away, the wait continues
        self.leaving = False  # its next look is its last
        self.last = False  # the look under way is its last
        self.look_at = inf  # when it looks without a ring, loop time

    def __lt__(self, other: Waiter) -> bool:
        """Whether this pop looks before the other one."""
        return self.look_at < other.look_at

    @property
    def may_be_offered(self) -> bool:
        """Whether the script of a timer can serve the pop: it wants one job, with the job's own ttr, in the order of
        topics."""
        return self.count == 1 and self.ask.ttr == "" and self.ask.script == IN_ORDER


class Offered(Offer):
    """An offer, with the pops that are offered."""

    waiters: list[Waiter]


_Likeness = tuple[tuple[str, ...], bool]
"""The topics, and whether the workers have names."""


class Sleepers:
    """The pops that sleep and may be offered, in groups of similar pops; offered pops stay in their places."""

    def __init__(self) -> None:
        self._groups: dict[_Likeness, dict[Waiter, None]] = {}  # the most recently used last

    def add(self, waiter: Waiter) -> None:
        """The pop sleeps from now on."""
        if waiter.may_be_offered:
            likeness = _likeness(waiter)
            group = self._groups.pop(likeness, None) or {}
            group[waiter] = None
            self._groups[likeness] = group

    def discard(self, waiter: Waiter) -> None:
        """The pop no longer sleeps."""
        likeness = _likeness(waiter)
        group = self._groups.get(likeness)
        if group is not None:
            group.pop(waiter, None)
            if not group:
                del self._groups[likeness]

    def offer(self, most: int, limits: Limits) -> list[Offered]:
        """Offer up to `most` pops, but none for a topic with limits, which timers do not check. Only half of a group is
        offered, since two timers may ask at the same time. If there are many groups, the most recently used are
        offered."""
        offers = []
        groups = reversed(self._groups)
        free = (each for each in groups if limits.keys().isdisjoint(each[0])) if limits else groups
        for topics, named in itertools.islice(free, MOST_GROUPS):
            group = self._groups[topics, named]
            waiters = list(itertools.islice(_asleep(group), min(most, (len(group) + 1) // 2)))
            most -= len(waiters)
            if waiters:
                offers.append(_offered(topics, waiters))
        return offers[::-1]  # first come, first served

    def alike(self, waiter: Waiter) -> Waiter | None:
        """Another sleeping pop with the same ask, including the worker."""
        ask = waiter.ask
        return next((each for each in _asleep(self._groups.get(_likeness(waiter), {})) if each.ask == ask), None)


def _likeness(waiter: Waiter) -> _Likeness:
    return waiter.ask.topics, bool(waiter.ask.worker)


def _asleep(group: dict[Waiter, None]) -> Iterator[Waiter]:
    return (waiter for waiter in group if waiter.state == SLEEPING)


def _offered(topics: tuple[str, ...], waiters: list[Waiter]) -> Offered:
    for waiter in waiters:
        waiter.state = OFFERED
    offered = Offered(topics, [(1, waiter.ask.worker) for waiter in waiters])
    offered.waiters = waiters
    return offered
