"""I13: of the ready jobs of a topic, the highest priority comes first, and within it the one that was ready first.

docs/protocol.md promises this within each shard. It does not matter where a job came from, and a released job goes to
the end again. It holds during faults too. When a job became ready is known only as a range: not before it was asked for
(and its delay had passed), and not after an answer showed that it is ready. So the topics under judgement have one
consumer with one job at a time, whose order is that of the ready lists, and one producer that sends one request after
another: what it adds becomes ready in the order of asking, also within an array.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tests.chaos.history import Event
from tests.chaos.judges.findings import Finding
from tests.chaos.judges.lives import Act, Delivery, Faults, Life
from tests.chaos.load.in_order import IN_ORDER

_REACH_S = 6.0
"""How long after an unheard pop, and the faults that it met, a service may still be working on it: the deadline of a
command for Redis (5 s) plus a margin.
"""
_NEVER = float("inf")


@dataclass(slots=True)
class Stay:
    """A period that a job spent in a ready list, up to a delivery. Times in s on the machine's clock."""

    id: str
    priority: int
    taken: Delivery
    since: float  # it was not ready before this
    by: float  # it was ready by then; inf if nobody knows
    seen: Act | None = None  # the act that showed it
    asked: int = 0  # number of its first add by its producer; 0 if it came back from a consumer
    answered: float = _NEVER  # number of the add that showed it to be ready
    after: Sequence[Act | Delivery] = ()  # what it came back from; if that was forgotten, it never left its place

    @property
    def lines(self) -> list[int]:
        return self.taken.lines + ([self.seen.answer.line] if self.seen and self.seen.answer else [])


def stays(life: Life) -> Iterator[Stay]:
    """The stays of a job that ended with a delivery that somebody heard of."""
    adds = [act for act in life.acts["add"] if act.perhaps]
    if not adds or not life.deliveries:
        return
    first, priority = life.deliveries[0], adds[0].invoke.priority or 0
    told = [act for act in (*adds, *life.acts["get"]) if _says_ready(act, first)]
    stay = Stay(life.id, priority, first, since=min(act.earliest for act in adds), by=_NEVER, asked=adds[0].invoke.op)
    if told and first.answer.attempt == 1:  # otherwise somebody had it before
        _know(stay, min((act for act in told), key=lambda act: act.answer.at if act.answer else _NEVER))
    yield stay
    for before, after in zip(life.deliveries, life.deliveries[1:], strict=False):
        yield _came_back(life, priority, before, after)


def _says_ready(act: Act, before: Delivery) -> bool:
    return act.shows_ready and act.answer is not None and act.answer.at < before.answer.at


def _know(stay: Stay, act: Act) -> None:
    """That answer shows it to be ready."""
    assert act.answer
    stay.by, stay.seen = act.answer.at, act
    if act.invoke.command == "add":
        stay.answered = act.invoke.op


def _came_back(life: Life, priority: int, before: Delivery, after: Delivery) -> Stay:
    """The stay between two deliveries: released by the holder, or returned at the end of its TTR."""
    releases = life.of(before, "release")
    counted = any(act.invoke.attempt != 0 for act in releases) or not releases
    since = min((act.earliest for act in releases), default=before.invoke.at)
    stay = Stay(life.id, priority, after, since, _NEVER, after=(before, *releases))
    told = [act for act in releases if _says_ready(act, after)]
    if told and after.answer.attempt == (before.answer.attempt or 0) + counted:
        _know(stay, told[0])
    return stay


def check_order(events: Iterable[Event], known: Mapping[str, Life], trouble: Faults) -> Iterator[Finding]:
    """No job is delivered before one that was ready earlier, or one of a higher priority that was ready."""
    unheard = _unheard(events, trouble)
    for topic in IN_ORDER:
        own = [life for life in known.values() if any(act.invoke.topic == topic for act in life.acts["add"])]
        taken = sorted((stay for life in own for stay in stays(life)), key=lambda stay: stay.taken.answer.at)
        pops = sorted((_open_until(pop, trouble), pop.invoke.at) for pop in unheard if pop.invoke.topic == topic)
        for stay, rival, says in _overtaken(taken):
            # A failover forgets a whole tail of the history, which is no reason for another order; but a promotion or a
            # release that it forgot is done again, later.
            forgotten = stay.answered == _NEVER and trouble.excuse(stay.seen)
            excused = forgotten or any(map(trouble.excuse, rival.after)) or _explained(rival, pops)
            yield Finding("order", says, stay.id, tuple(sorted({*stay.lines, *rival.lines})), excused)


def _overtaken(taken: Sequence[Stay]) -> Iterator[tuple[Stay, Stay, str]]:
    """Of stays in the order of their deliveries, those that another one overtook; with that one, and how it did."""
    youngest: dict[int, Stay] = {}  # by priority, among those delivered before: the last to become ready,
    last: dict[int, Stay] = {}  # the last that was added,
    popped: dict[int, Stay] = {}  # and the one whose pop was sent last
    for stay in taken:
        priority = stay.priority
        lower = [popped[each] for each in popped if each < priority and popped[each].taken.invoke.at > stay.by]
        if priority in youngest and youngest[priority].since > stay.by:
            yield stay, youngest[priority], f"handed out after {youngest[priority].id}, which was ready later"
        elif priority in last and last[priority].asked > stay.answered:
            yield stay, last[priority], f"handed out after {last[priority].id}, which was added later"
        elif lower:
            yield stay, lower[0], f"handed out after {lower[0].id}, which is of a lower priority"
        if priority not in youngest or stay.since > youngest[priority].since:
            youngest[priority] = stay
        if priority not in last or stay.asked > last[priority].asked:
            last[priority] = stay
        popped[priority] = stay


def _unheard(events: Iterable[Event], trouble: Faults) -> list[Act]:
    """Pops that may have received a job without anyone hearing: it was put back at the front, without a trace. Such a
    pop has no answer, or during a fault an empty one: it gave up a server that was away, which answers it later.
    """
    found: dict[tuple[str, int], Act] = {}
    for event in events:
        key = event.process, event.op
        if event.command == "pop" and event.kind == "invoke" and event.topic in IN_ORDER:
            found[key] = Act(event)
        elif key in found:
            found[key].answer = event
            is_empty = event.kind == "ok" and event.id is None
            was_in_fault = any(trouble.touching(found[key].invoke.at, event.at, 0))
            if event.kind != "info" and not (is_empty and was_in_fault):
                del found[key]
    return list(found.values())


def _open_until(pop: Act, trouble: Faults) -> float:
    """The time until which a service may have been working on it."""
    end = pop.answer.at if pop.answer else pop.invoke.at
    return max([end, *(fault.end for fault in trouble.touching(pop.invoke.at, end, 0))]) + _REACH_S


def _explained(rival: Stay, pops: list[tuple[float, float]]) -> bool:
    """Whether a job may have been away when its rival was delivered, because an unheard pop had it. Each pop had at
    most one, and explains no second. They are ordered by their ends.
    """
    for place, (until, sent) in enumerate(pops):
        if sent < rival.taken.answer.at and rival.taken.invoke.at < until:
            del pops[place]
            return True
    return False
