"""The table of outcomes, one row per scenario; times in ms unless marked as s."""

from __future__ import annotations

from collections.abc import Mapping

from tests.chaos.run import Outcome

# Columns: name and width.
_COLUMNS = {
    "strikes": 7,
    "adds": 6,
    "deliveries": 10,
    "lost": 5,
    "forgotten": 9,
    "early": 5,
    "doubled": 7,
    "revived": 7,
    "late p50/p99 outside": 20,
    "inside of faults": 17,
    "made": 6,
    "made late p50/p99": 17,
    "outage s": 8,
    "later": 6,
    "MB": 9,
    "verdict": 10,
}
HEAD = " ".join(f"{name:>{width}}" for name, width in _COLUMNS.items())


def row(outcome: Outcome) -> str:
    """The row of an outcome. `lost`, `early`, `doubled` and `revived` are failures. `forgotten` counts what a fault was
    allowed to forget and did (jobs lost, doubled or revived by it).
    """
    report, figures = outcome.report, outcome.report.figures
    values = [
        outcome.strikes,
        figures.adds,
        figures.deliveries,
        report.count("lost", "stuck", excused=False),
        report.count("lost", "overlap", "revived", "early", "lease", "tries", "created", excused=True),
        report.count("early", excused=False),
        report.count("overlap", "lease", excused=False),
        report.count("revived", excused=False),
        _pair(figures.late_outside),
        _pair(figures.late_inside),
        figures.occurrences,
        _pair(figures.late_made),
        f"{figures.outage_s:.2f}",
        figures.errors,
        "{:.0f} / {:.0f}".format(*figures.memory_mb),
        "passed" if outcome.passed else f"{len(report.findings)} FOUND",
    ]
    return " ".join(f"{value!s:>{width}}" for value, width in zip(values, _COLUMNS.values(), strict=True))


def _pair(late: Mapping[str, float | None]) -> str:
    p50, p99 = late.get("p50"), late.get("p99")
    return "-" if p50 is None or p99 is None else f"{p50:.1f} / {p99:.1f}"
