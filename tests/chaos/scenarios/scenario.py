"""A scenario: servers, instances, load, nemeses, and what is promised in spite of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.chaos.judges.findings import Figures, Finding, Report
from tests.chaos.load.load import Work
from tests.chaos.servers import Factory

_LEAST_ADDS_A_SECOND = 10.0
_LATE_S = 5.0  # on a machine that has other work; less than the longest sleep of a timer or sweep
_LATE_SHORT_S = 9.0  # the same in the short form
_SLOW = 3.0  # by how much longer an outage may last in the short form, which has to pass on slow machines
_SAME_MS = 5.0  # more than this is a difference


@dataclass(frozen=True)
class Promise:
    """Pass marks besides the invariants, which hold in every scenario. None: not judged."""

    late_p99_ms: float | None = None  # of all first deliveries
    late_outside_p99_ms: float | None = None  # of those not affected by a fault
    late_elsewhere_p99_ms: float | None = None  # during faults of a part of a Cluster, on the other parts
    late_ratio: float | None = None  # ratio of p99 inside of faults to p99 outside; differences below 5 ms do not count
    late_more_ms: float | None = None  # by how much the p99 inside of faults may exceed that outside
    outage_s: float | None = None  # see findings.Figures
    errors: int | None = None  # answers that meant "later", and requests without an answer


@dataclass(frozen=True)
class Scenario:
    """`nemeses`: the options of each, by name. `alone`: it measures lateness, so in the long form nothing else runs
    beside it.

    `seconds` and `short_s`: the time under attack in `make chaos` and in `make chaos-short`. `short` and `short_work`:
    options of nemeses, and the load, for the latter. The pass marks of lateness apply to the long form only: short runs
    have too few jobs for a p99.
    """

    name: str
    says: str
    servers: Factory
    nemeses: Mapping[str, Mapping[str, Any]]
    instances: int = 1
    workers: int = 0  # worker processes
    work: Work = field(default_factory=Work)
    flags: tuple[str, ...] = ()  # for `jobqueue serve`
    promise: Promise = field(default_factory=Promise)
    seconds: float = 60.0
    short_s: float = 6.0
    short: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    short_work: Work | None = None
    alone: bool = False

    def options(self, nemesis: str, short: bool) -> Mapping[str, Any]:
        """The options of a nemesis in the long or the short form."""
        return {**self.nemeses[nemesis], **(self.short.get(nemesis, {}) if short else {})}


def judge(promise: Promise, report: Report, seconds: float, strikes: int, short: bool) -> list[Finding]:
    """The broken promises besides the invariants; and whether there was anything to judge."""
    figures = report.figures
    found = []
    outage_s = promise.outage_s and promise.outage_s * (_SLOW if short else 1)
    if figures.adds < seconds * _LEAST_ADDS_A_SECOND:
        found.append(Finding("load", f"{figures.adds} adds in {seconds:g} s: that was no load"))
    if not strikes:
        found.append(Finding("load", "nothing was broken"))
    marks: list[tuple[str, float | None, float | None]] = [
        (f"seconds without an answer ({figures.outage_of})", figures.outage_s, outage_s),
        ("answers that said `later`", figures.errors, promise.errors),
        (
            f"seconds late beyond what faults explain ({figures.latest})",
            figures.late_beyond_s,
            _LATE_SHORT_S if short else _LATE_S,
        ),
        *(() if short else _lateness(promise, figures)),
    ]
    for what, measured, most in marks:
        if most is not None and measured is None:
            found.append(Finding("load", f"{what}: there was nothing to measure"))
        elif most is not None and measured is not None and measured > most:
            found.append(Finding("late", f"{what}: {measured:.1f}, promised at most {most:g}"))
    return found


def _lateness(promise: Promise, figures: Figures) -> list[tuple[str, float | None, float | None]]:
    """The pass marks of lateness: name, measured value and limit, in ms."""
    inside, outside, all_ = (late.get("p99") for late in (figures.late_inside, figures.late_outside, figures.late_all))
    elsewhere = figures.late_elsewhere.get("p99")
    more = None if inside is None or outside is None else inside - outside
    ratio = promise.late_ratio
    same = ratio and max((outside or 0) * ratio, (outside or 0) + _SAME_MS)
    return [
        ("p99 of all lateness, ms", all_, promise.late_p99_ms),
        ("p99 of lateness outside of faults, ms", outside, promise.late_outside_p99_ms),
        ("p99 of lateness inside of faults, ms", inside, same),
        ("p99 of lateness inside of faults beyond that outside, ms", more, promise.late_more_ms),
        ("p99 of lateness on other nodes during faults, ms", elsewhere, promise.late_elsewhere_p99_ms),
    ]
