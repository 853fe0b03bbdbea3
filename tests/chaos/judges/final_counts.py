"""The service's own account at the end: its counts against the answers, and the findings of fsck."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from tests.chaos.history import Event
from tests.chaos.judges.findings import Finding
from tests.chaos.judges.lives import Act, Faults, Life

LIVE = ("delayed", "ready", "reserved")
"""The states that are empty once a queue has drained."""


def check_whole(events: Iterable[Event]) -> Iterator[Finding]:
    """fsck finds nothing."""
    for event in events:
        if event.command == "fsck" and event.faults:
            yield Finding("broken", f"fsck found {event.counts}", lines=(event.line,))


@dataclass(slots=True)
class _Sums:
    """The bounds that a history sets to a total: it is between these two, or at least the lower one."""

    least: int = 0
    most: int | None = 0

    def add(self, acts: Iterable[Act], trouble: Faults) -> None:
        """Add one job's acts of a kind."""
        perhaps = [act for act in acts if act.perhaps]
        self.most = (self.most or 0) + bool(perhaps)
        self.least += any(act.ok and not trouble.excuse(act) for act in perhaps)


def check_counts(events: Iterable[Event], known: Mapping[str, Life], trouble: Faults) -> Iterator[Finding]:
    """The final stats of each topic balance, and agree with the answers."""
    last = {event.topic: event for event in events if event.command == "stats" and event.kind == "ok" and event.topic}
    sums: dict[str, dict[str, _Sums]] = defaultdict(lambda: defaultdict(_Sums))
    for life in known.values():
        if topic := next((act.invoke.topic for act in life.acts["add"]), None):
            sums[topic]["created"].add(life.acts["add"], trouble)
            sums[topic]["finished"].add(life.acts["finish"], trouble)
            sums[topic]["deleted"].add(life.acts["delete"], trouble)
            delivered = sums[topic]["delivered"]
            delivered.most = None  # some are delivered to nobody
            delivered.least += sum(not trouble.excuse(each) for each in life.deliveries)
    for topic, event in last.items():
        assert topic is not None
        totals, counts = event.totals or {}, event.counts or {}
        if left := {state: number for state, number in counts.items() if state in LIVE and number}:
            yield Finding("stuck", f"{topic}: {left} at the end", lines=(event.line,))
        born = totals.get("created", 0) + totals.get("replaced", 0)
        there = sum(counts.values()) + totals.get("finished", 0) + totals.get("deleted", 0)
        if born != there:
            yield Finding("count", f"{topic}: {born} were created, {there} live or ended", lines=(event.line,))
        for name, sum_ in sums[topic].items():
            total = totals.get(name, 0)
            if total < sum_.least or (sum_.most is not None and total > sum_.most):
                says = f"{topic}: {name} is {total}, the answers say {sum_.least} to {sum_.most}"
                yield Finding("count", says, lines=(event.line,))
