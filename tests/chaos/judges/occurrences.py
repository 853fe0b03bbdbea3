"""Schedules: each occurrence is made, once, at a time of its schedule, and as its schedule wants it.

To all other checks an occurrence that is known to have been made is like an acknowledged add of its job, at its time:
so it is not lost, not early, not delivered after its end, and counted once. A failover that forgets an occurrence
forgets that its schedule had come so far, so it comes again, and no fault is an excuse for one that is missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

import msgspec

from tests.chaos.history import Event
from tests.chaos.judges.findings import Finding
from tests.chaos.judges.lives import Act, Faults, Life

_SETTLED_S = 3.0
"""How long after a fault the timers may still be taken over, and the clocks of instances be put right."""
_LATE_S = 0.5
"""An occurrence that is made so late shows that others may have been due twice in the meantime."""
_IN_TIME_S = 61.0
"""Within which `catch_up` none still makes an occurrence, and a second, after which a timer comes again."""
_ROUNDING_S = 0.002


@dataclass(slots=True)
class Agenda:
    """A schedule: its definition, how far it got, and the lives of its occurrences by their times (ms)."""

    act: Act
    again: list[Act] = field(default_factory=list)  # the same definition
    reached: Event | None = None  # the last read of its next time
    lives: dict[int, Life] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.act.invoke.id or ""

    @property
    def every_ms(self) -> int:
        return round((self.act.invoke.every or 0) * 1000)

    def has(self, ms: int) -> bool:
        """Whether this is one of its times."""
        return (ms - round((self.act.invoke.start or 0) * 1000)) % self.every_ms == 0

    @property
    def due(self) -> range:
        """The times that certainly came, in ms: from the first one until the one that was next at the end."""
        first, last = self.act.answer, self.reached
        if first is None or first.due is None or last is None or last.due is None:
            return range(0)
        return range(round(first.due * 1000), round(last.due * 1000), self.every_ms)

    @property
    def made(self) -> list[int]:
        return sorted(ms for ms in self.lives if self.was_made(ms))

    def was_made(self, ms: int) -> bool:
        """Whether the occurrence of a time was seen. One that is gone was forgotten; that its time came again does not
        help where the schedule then had a reason to leave it out."""
        life = self.lives.get(ms)
        if life is None:
            return False
        last = life.acts["get"][-1] if life.acts["get"] else None
        is_gone = last is not None and last.answer is not None and last.answer.kind == "fail"
        return not is_gone if self.has_reasons else bool(life.deliveries) or not is_gone

    @property
    def has_reasons(self) -> bool:
        """Whether it may leave out a time."""
        return self.act.invoke.catch_up != "all" or self.act.invoke.overlap == "skip"

    def finding(self, invariant: str, says: str, ms: int, excused: bool = False) -> Finding:
        return Finding(invariant, says, f"{self.name}@{ms}", tuple(self.act.lines), excused)


def agendas(events: Iterable[Event], known: dict[str, Life]) -> list[Agenda]:
    """The schedules of a history. Occurrences that were seen get an add in their lives."""
    found: dict[str, Agenda] = {}
    acts: dict[int, Act] = {}
    for event in events:
        if event.command == "schedules" and event.id in found:
            found[event.id].reached = event
        elif event.command == "schedule" and event.kind == "invoke" and event.id:
            act = acts[event.op] = Act(event)
            if event.id in found:
                found[event.id].again.append(act)
            else:
                found[event.id] = Agenda(act)
        elif event.command == "schedule":
            acts[event.op].answer = event
    for job, life in known.items():
        name, _, when = job.rpartition("@")
        if name in found and when.isdigit() and found[name].has(int(when)):
            found[name].lives[int(when)] = life
    for agenda in found.values():
        for ms, life in agenda.lives.items():
            if agenda.was_made(ms) or life.deliveries:
                life.acts["add"].insert(0, _as_add(agenda.act, ms, "ok" if agenda.was_made(ms) else "info"))
    return list(found.values())


def _as_add(act: Act, ms: int, kind: str) -> Act:
    """The add that an occurrence is like: an acknowledged one, or one without an answer."""
    answer = act.answer or act.invoke
    return Act(act.invoke, msgspec.structs.replace(answer, kind=kind, due=ms / 1000, result=None))


class Moments:
    """Times of schedules on the machine's clock, and when occurrences were made late."""

    def __init__(self, events: Iterable[Event], plans: Iterable[Agenda], trouble: Faults) -> None:
        told = (event.at - event.redis for event in events if event.kind == "ok" and event.redis is not None)
        self._ahead = min(told, default=0.0)
        self._trouble = trouble
        made = ((ms / 1000, made_at(life)) for plan in plans for ms, life in plan.lives.items())
        self._late = [(due, at) for due, at in made if at is not None and at - due > _LATE_S]

    def at(self, ms: int) -> float:
        return ms / 1000 + self._ahead

    def was_missed(self, ms: int, every_ms: int) -> bool:
        """Whether a schedule may not have been looked at until the time after this one: in a fault, or when other
        occurrences were late too."""
        if self._trouble.touch(self.at(ms), self.at(ms + every_ms), _SETTLED_S):
            return True
        return any(due <= (ms + every_ms) / 1000 and ms / 1000 <= at for due, at in self._late)


def made_at(life: Life) -> float | None:
    """When an occurrence was made, in unix seconds on Redis's clock, as its first delivery says."""
    return life.deliveries[0].answer.created if life.deliveries else None


def check_schedules(events: Iterable[Event], plans: list[Agenda], trouble: Faults) -> Iterator[Finding]:
    """What holds for schedules beyond what holds for their jobs."""
    moments = Moments(events, plans, trouble)
    for plan in plans:
        if plan.act.ok and plan.reached is None:
            excused = trouble.excuse(plan.act)
            yield Finding("skipped", "the schedule itself is gone", plan.name, tuple(plan.act.lines), excused)
        for act in plan.again:
            if act.answer and act.answer.result != "existing":
                says, excused = f"the same definition again was {act.answer.result}", trouble.excuse(plan.act)
                yield Finding("created", says, plan.name, tuple(act.lines), excused)
        yield from _check_present(plan, moments, trouble)
        yield from _check_skipped(plan, moments, trouble)
        yield from _check_rules(plan, trouble)


def _check_present(plan: Agenda, moments: Moments, trouble: Faults) -> Iterator[Finding]:
    """At the end its next time is after all faults."""
    healed = max((fault.end for fault in trouble), default=0.0)
    if plan.reached and plan.reached.due and moments.at(round(plan.reached.due * 1000)) < healed:
        yield Finding("stuck", "its next time is in the past", plan.name, (plan.reached.line,))


def _check_skipped(plan: Agenda, moments: Moments, trouble: Faults) -> Iterator[Finding]:
    """Each time has its occurrence, unless its schedule has a rule that leaves it out."""
    before: Life | None = None
    for ms in plan.due:
        if plan.was_made(ms):
            before = plan.lives[ms]
        elif plan.act.invoke.catch_up != "all" and moments.was_missed(ms, plan.every_ms):
            continue
        elif plan.act.invoke.overlap != "skip" or before is None or _was_done(before, moments.at(ms), trouble):
            yield plan.finding("skipped", "it was never made", ms)


def _was_done(life: Life, at: float, trouble: Faults) -> bool:
    """Whether a job had certainly ended, or died, by a time on the machine's clock."""
    ends = [*life.ends, *life.acts["bury"]]
    return any(end.ok and end.answer and end.answer.at < at and not trouble.excuse(end) for end in ends)


def _check_rules(plan: Agenda, trouble: Faults) -> Iterator[Finding]:
    """`catch_up` none and last make one of those that were missed, and none makes none that is too late; `overlap` skip
    makes none while the last one is not done."""
    made, rules = plan.made, plan.act.invoke
    for ms in made:
        at = made_at(plan.lives[ms])
        if at is not None and at < ms / 1000 - _ROUNDING_S:
            yield plan.finding("early", f"made {ms / 1000 - at:.3f} s before its time", ms)
        if rules.catch_up == "none" and at is not None and at - ms / 1000 > _IN_TIME_S:
            yield plan.finding("caught up", f"made {at - ms / 1000:.1f} s after its time", ms)
    for first, second in pairwise(made):
        at = made_at(plan.lives[second])
        if rules.catch_up != "all" and at is not None and made_at(plan.lives[first]) == at:
            yield plan.finding("caught up", f"made at once with the one of {first}", second)
        if rules.overlap == "skip" and at is not None and _was_live(plan.lives[first], at):
            excused = any(_was_forgotten(plan.lives[ms], trouble) for ms in (first, second))
            yield plan.finding("overlapping", f"made while the one of {first} was not done", second, excused)


def _was_forgotten(life: Life, trouble: Faults) -> bool:
    """Whether a fault may have forgotten a delivery of a job, or its end."""
    return any(map(trouble.excuse, life.ends)) or any(map(trouble.excuse, life.deliveries))


def _was_live(life: Life, at: float) -> bool:
    """Whether a job was delivered after a time on Redis's clock, so was delayed, ready or reserved then."""
    return any(delivery.lease / 1e6 > at for delivery in life.deliveries)


def late_ms(known: Mapping[str, Life]) -> list[float]:
    """How late the occurrences were made, in ms."""
    found = []
    for life in known.values():
        at, add = made_at(life), life.added
        if at is not None and add and add.invoke.command == "schedule" and add.answer and add.answer.due is not None:
            found.append((at - add.answer.due) * 1000)
    return found
