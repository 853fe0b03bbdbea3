"""The figures of a run: how late jobs were inside and outside of faults, and how long participants got no answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tests.chaos.codes import TEMPORARY
from tests.chaos.history import Event
from tests.chaos.judges.findings import Figures
from tests.chaos.judges.leaks import held
from tests.chaos.judges.lives import Delivery, Faults, Life, by_process
from tests.chaos.judges.occurrences import late_ms
from tests.chaos.load.in_order import IN_ORDER

SETTLE_S = 1.0
"""Seconds after a fault during which due jobs still count as inside of it."""
_PILED_S = 5.0
"""How long after a fault jobs that piled up during it may still be around."""
_PILE = 2  # factor on the duration of a fault: the fault itself, and as much again for what piled up


def figures(events: Sequence[Event], known: Mapping[str, Life], trouble: Faults) -> Figures:
    """The figures of a history."""
    inside: list[float] = []
    outside: list[float] = []
    elsewhere: list[float] = []
    beyond = (0.0, "")
    for life in known.values():
        for delivery in life.deliveries[:1]:
            if delivery.answer.attempt == 1 and delivery.answer.due is not None and not _waits_in_line(life, delivery):
                late_s = delivery.lease / 1e6 - delivery.answer.due
                beyond = max(beyond, (_beyond(life.id, delivery, late_s, trouble), life.id))
                (inside if _is_inside(delivery, late_s, trouble) else outside).append(late_s * 1000)
                if _is_elsewhere(life.id, delivery, late_s, trouble):
                    elsewhere.append(late_s * 1000)
    outage_s, outage_of = _outage(events, trouble)
    made_late = late_ms(known)
    return Figures(
        adds=sum(life.added is not None for life in known.values()) - len(made_late),
        occurrences=len(made_late),
        late_made=quantiles(made_late),
        deliveries=sum(len(life.deliveries) for life in known.values()),
        errors=sum(event.code in TEMPORARY for event in events),
        late_inside=quantiles(inside),
        late_outside=quantiles(outside),
        late_elsewhere=quantiles(elsewhere),
        late_all=quantiles(inside + outside),
        memory_mb=(_memory_mb(events, "before"), _memory_mb(events, "after")),
        late_beyond_s=beyond[0],
        latest=beyond[1],
        outage_s=outage_s,
        outage_of=outage_of,
    )


def _waits_in_line(life: Life, delivery: Delivery) -> bool:
    """Whether it had to wait for the single consumer of its topic, or for its key, which would measure consumers."""
    return delivery.answer.topic in IN_ORDER or life.key is not None


def _beyond(job: str, delivery: Delivery, late_s: float, trouble: Faults) -> float:
    """How late it was beyond what faults of its part of the servers explain, in s."""
    heard = delivery.answer.at
    met = (fault for fault in trouble.touching(heard - late_s, heard, _PILED_S) if fault.hits(job))
    return late_s - _PILE * sum(min(fault.end, heard) - fault.begin for fault in met)


def _is_inside(delivery: Delivery, late_s: float, trouble: Faults) -> bool:
    """Whether a fault overlaps the time between its due time and its delivery."""
    return trouble.touch(delivery.answer.at - late_s, delivery.answer.at, SETTLE_S)


def _is_elsewhere(job: str, delivery: Delivery, late_s: float, trouble: Faults) -> bool:
    """Whether only faults of a part of a Cluster overlap that time, and the job was on another part."""
    met = list(trouble.touching(delivery.answer.at - late_s, delivery.answer.at, SETTLE_S))
    return bool(met) and not any(fault.hits(job) for fault in met)


def quantiles(values: Sequence[float]) -> dict[str, float | None]:
    """p50, p99 and the maximum; None without values."""
    if not values:
        return {"p50": None, "p99": None, "max": None}
    ordered = sorted(values)
    return {"p50": ordered[len(ordered) // 2], "p99": ordered[len(ordered) * 99 // 100], "max": ordered[-1]}


def _memory_mb(events: Sequence[Event], moment: str) -> float:
    return max((numbers.get("kB", 0) for numbers in held(events, moment).values()), default=0) / 1000


def _outage(events: Sequence[Event], trouble: Faults) -> tuple[float, str]:
    """The longest time from the beginning of a fault until a participant got the first answer to something it asked
    afterwards; and the nemesis.
    """
    longest, whose = 0.0, ""
    for own in by_process(events).values():
        answered = [(invoke.at, answer.at) for invoke, answer in _answered(own)]
        place = 0
        for fault in sorted(trouble, key=lambda each: each.begin):
            if fault.begin < own[0].at:
                continue  # it had not started yet
            while place < len(answered) and answered[place][0] < fault.begin:
                place += 1
            heard = answered[place][1] if place < len(answered) else own[-1].at  # or it never got one while it asked
            if heard - fault.begin > longest:
                longest, whose = heard - fault.begin, fault.nemesis
    return longest, whose


def _answered(own: Sequence[Event]) -> list[tuple[Event, Event]]:
    """The requests of a participant that were answered without an error, in the order of asking."""
    sent = {event.op: event for event in own if event.kind == "invoke"}
    ends = {event.op: event for event in own if event.kind == "ok"}
    return [(sent[op], ends[op]) for op in sorted(ends)]
