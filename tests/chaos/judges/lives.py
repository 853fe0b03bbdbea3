"""A history by job: what was asked of each, what came of it, and who held it when."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from tests.chaos.history import Event
from tests.chaos.judges.slots import slot_of_job

_KILLS = ("kill-redis", "cut-power")
"""Faults after which the same server returns: what it acknowledges after it was killed, it has. (After a killed master,
Sentinels on a busy machine have been seen to fail over once more, from a live master whose last writes were lost.)
"""
_DYING_S = 0.5
"""How long after its beginning such a fault is sure to have killed its server."""
_BY_ID = ("add", "finish", "delete", "touch", "release", "bury", "get")


@dataclass(slots=True)
class Act:
    """A command, with its answer if one arrived."""

    invoke: Event
    answer: Event | None = None

    @property
    def ok(self) -> bool:
        return self.answer is not None and self.answer.kind == "ok"

    @property
    def perhaps(self) -> bool:
        """It was done, or nobody knows."""
        return self.answer is None or self.answer.kind in ("ok", "info")

    @property
    def earliest(self) -> float:
        """Before this, in s on the machine's clock, it made no job ready."""
        return self.invoke.at + (self.invoke.delay or 0)

    @property
    def shows_ready(self) -> bool:
        """Its answer says that its job was ready."""
        return self.answer is not None and self.answer.kind == "ok" and self.answer.state == "ready"

    @property
    def lines(self) -> list[int]:
        return [self.invoke.line] + ([self.answer.line] if self.answer else [])


@dataclass(slots=True)
class Delivery:
    """A job that a pop delivered. Times as in Event."""

    invoke: Event
    answer: Event

    @property
    def lease(self) -> int:
        return self.answer.lease or 0

    @property
    def lines(self) -> list[int]:
        return [self.invoke.line, self.answer.line]


@dataclass(slots=True)
class Life:
    """Everything that a history says about one id."""

    id: str
    acts: dict[str, list[Act]] = field(default_factory=lambda: {name: [] for name in _BY_ID})
    deliveries: list[Delivery] = field(default_factory=list)  # by lease

    @property
    def added(self) -> Act | None:
        """The first acknowledged add."""
        return next((act for act in self.acts["add"] if act.ok), None)

    @property
    def key(self) -> tuple[str, str] | None:
        """Its topic and its key, if it has one."""
        adds = (act.invoke for act in self.acts["add"])
        return next(((add.topic or "", add.key) for add in adds if add.key), None)

    @property
    def may_die(self) -> bool:
        """Whether somebody may have buried it, or its tries or its ttl may have ended."""
        buried = any(act.perhaps for act in self.acts["bury"])
        return buried or any(act.invoke.tries or act.invoke.ttl for act in self.acts["add"])

    @property
    def ends(self) -> list[Act]:
        """The commands that were to end it for good."""
        return self.acts["finish"] + self.acts["delete"]

    def of(self, delivery: Delivery, *commands: str) -> list[Act]:
        """The commands of the holder of a delivery that were done, or may have been."""
        return [act for name in commands for act in self.acts[name] if _is_of(act, delivery)]

    def end_ms(self, before: Delivery, after: Delivery) -> int:
        """The earliest end of a lease that nobody gave up, in ms on Redis's clock, as known at a later delivery."""
        touches = until(after, self.of(before, "touch"))
        ends = [before.lease // 1000 + round((before.answer.ttr or 0) * 1000)]
        return max(ends + [round(act.answer.until * 1000) for act in touches if act.answer and act.answer.until])

    def gave_up(self, before: Delivery, after: Delivery) -> bool:
        """Whether the holder of a lease may have given it up before a later delivery was heard of."""
        words = (*self.of(before, "finish", "release", "bury"), *self.acts["delete"])
        return any(act.perhaps for act in until(after, words))


def _is_of(act: Act, delivery: Delivery) -> bool:
    return act.perhaps and act.invoke.lease == delivery.lease


def until(after: Delivery, acts: Iterable[Act]) -> list[Act]:
    """The acts that were sent before a delivery was heard of: later ones have no bearing on it."""
    return [act for act in acts if act.invoke.at <= after.answer.at]


def lives(events: Iterable[Event]) -> dict[str, Life]:
    """The jobs of a history by id."""
    found: dict[str, Life] = {}
    open_acts: dict[tuple[str, int], Act] = {}
    pops: dict[tuple[str, int], Event] = {}

    def life(job: str) -> Life:
        return found.setdefault(job, Life(job))

    for event in events:
        key = event.process, event.op
        if event.kind == "invoke" and event.command == "pop":
            pops[key] = event
        elif event.kind == "invoke" and event.command in _BY_ID and event.id is not None:
            act = open_acts[key] = Act(event)
            life(event.id).acts[event.command].append(act)
        elif event.kind == "ok" and event.command == "pop" and event.id is not None:
            life(event.id).deliveries.append(Delivery(pops[key], event))
        elif key in open_acts:
            open_acts.pop(key).answer = event
    for each in found.values():
        each.deliveries.sort(key=lambda delivery: (delivery.lease, delivery.answer.at))
    return found


@dataclass(slots=True)
class Fault:
    """A period during which something was broken, in s on the monotonic clock, and what it may forget: see Event."""

    nemesis: str
    begin: float
    end: float
    forgets: tuple[str, ...]
    forgets_s: float
    slots: tuple[int, int] | None = None

    def hits(self, job: str) -> bool:
        """Whether the job may be where it was broken."""
        return self.slots is None or self.slots[0] <= slot_of_job(job) <= self.slots[1]

    def may_forget(self, done: Act | Delivery) -> bool:
        """Whether it may have forgotten this, given the durability that was reached: anything acknowledged before it
        and, except for kills, while it lasted.
        """
        asked, answer = done.invoke, done.answer
        if answer is None or (answer.durability or "local") not in self.forgets:
            return False
        last = self.begin + _DYING_S if self.nemesis in _KILLS else self.end
        in_time = self.begin - self.forgets_s <= answer.at <= self.end and asked.at <= last
        return in_time and self.hits(answer.id or asked.id or "")


class Faults(list[Fault]):
    """All faults of a history."""

    def excuse(self, done: Act | Delivery | None) -> bool:
        """Whether any of them may have forgotten this."""
        return done is not None and any(fault.may_forget(done) for fault in self)

    def touch(self, since: float, until: float, after_s: float) -> bool:
        """Whether any of them, or the `after_s` seconds following it, overlaps a period."""
        return any(self.touching(since, until, after_s))

    def touching(self, since: float, until: float, after_s: float) -> Iterator[Fault]:
        """The faults that, together with the following `after_s` seconds, overlap a period."""
        return (fault for fault in self if fault.begin <= until and since <= fault.end + after_s)


def faults(events: Iterable[Event]) -> Faults:
    """The faults of a history; one without an end never ends."""
    found: dict[tuple[str, int], Fault] = {}
    for event in events:
        if event.kind == "begin":
            key = event.process, event.op
            found[key] = Fault(event.command, event.at, float("inf"), event.forgets, event.forgets_s, event.slots)
        elif event.kind == "end":
            found[event.process, event.op].end = event.at
    return Faults(found.values())


def by_process(events: Iterable[Event]) -> dict[str, list[Event]]:
    """The events of each participant, without the faults."""
    found: defaultdict[str, list[Event]] = defaultdict(list)
    for event in events:
        if event.kind not in ("begin", "end"):
            found[event.process].append(event)
    return found
