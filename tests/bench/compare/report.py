"""The tables, in Markdown, and the same as data."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Any

from tests.bench.compare import System
from tests.bench.compare.rounds import FAILED, Found, growing
from tests.bench.compare.works import GROWING, WORKS, Figures, Sizes, Work

OURS, BARE = "ours", "redis"
Show = Callable[[list[Figures]], str]


def _values(rounds: list[Figures], key: str) -> list[float]:
    return [each[key] for each in rounds]


def median(rounds: list[Figures], key: str) -> float:
    return statistics.median(_values(rounds, key))


def number(value: float) -> str:
    """A number with as many digits as are meaningful."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def spread(key: str) -> Show:
    """Shows the median, with the minimum and maximum of the rounds."""

    def show(rounds: list[Figures]) -> str:
        values = _values(rounds, key)
        middle = number(statistics.median(values))
        return middle if len(values) == 1 else f"{middle} ({number(min(values))} to {number(max(values))})"

    return show


def joined(*keys: str) -> Show:
    """The medians of some figures."""
    return lambda rounds: " / ".join(number(median(rounds, key)) for key in keys)


class Report:
    """The report of one run."""

    def __init__(self, systems: Sequence[System], found: Found, sizes: Sizes, machine: dict[str, str]) -> None:
        self._systems, self._found, self._sizes, self._machine = systems, found, sizes, machine
        self._here = [system for system in systems if system.NAME not in found.missing]
        self._notes: list[str] = []

    def data(self) -> dict[str, Any]:
        """Everything that was measured, round by round."""
        return {
            "machine": self._machine,
            "versions": self._found.versions,
            "sizes": self._sizes.__dict__,
            "missing": self._found.missing,
            "figures": self._found.figures,
            "words": self._found.words,
        }

    def failed(self, system: str) -> bool:
        """Whether it failed to start, or got some work wrong."""
        words = [each.get(system, "") for each in self._found.words.values()]
        return system in self._found.missing or any(each.startswith(FAILED) for each in words)

    def markdown(self) -> str:
        """The whole document."""
        parts = [_HEAD, self._machine_table(), self._systems_list()]
        parts += [
            self._section(*_RATES, self._named("add", "batch", "pop", "popbatch", "cycle"), "rate", spread("rate")),
            self._section(*_LATE, self._named("late"), "p50", joined("p50", "p99", "max"), less=True),
            self._section(*_BURST, self._named("burst"), "rate", joined("seconds", "jobs")),
            self._section(*_BYTES, self._named("bytes"), "bytes", spread("bytes"), less=True),
            self._section(
                *_CPU,
                self._named("add", "batch", "pop", "popbatch", "cycle", "burst"),
                "store_us",
                joined("store_us", "service_us"),
                less=True,
                wanted=False,
            ),
            self._growth(),
            self._section(
                *_PARKED,
                self._named("parked"),
                "wake_p50",
                joined("bytes_each", "store_connections", "wake_p50", "wake_max"),
                less=True,
            ),
            self._notes_list(),
        ]
        return "\n\n".join(part for part in parts if part) + "\n"

    def _named(self, *groups: str) -> list[tuple[str, Work]]:
        return [(work.name, work) for work in WORKS if work.group in groups]

    def _machine_table(self) -> str:
        return "## Machine\n\n" + "\n".join(f"- {name}: {value}" for name, value in self._machine.items())

    def _systems_list(self) -> str:
        lines = ["## Systems\n"]
        for system in self._systems:
            version = self._found.versions.get(system.NAME, "")
            why = self._found.missing.get(system.NAME)
            lines.append(
                f"- **{system.NAME}** {version}: " + (f"not measured: {why}" if why else system.DESCRIPTION + ".")
            )
        return "\n".join(lines)

    def _growth(self) -> str:
        works = [
            (growing(work.name, pending), Work("", "", f"{work.title}, {pending:,} pending", work.measure, work.wanted))
            for work in GROWING
            for pending in self._sizes.pending
        ]
        rates = [each for each in works if "late" not in each[0]]
        lates = [each for each in works if "late" in each[0]]
        tables = [
            self._section(*_GROWTH, rates, "rate", spread("rate"), wanted=False),
            self._section("", "", lates, "p50", joined("p50", "p99", "max"), less=True),
        ]
        return "\n\n".join(table for table in [*tables, self._change()] if table)

    def _change(self) -> str:
        """The ratio of the figure with the fewest pending jobs to that with the most, by work and system."""
        rows = []
        for work in GROWING:
            key = "p50" if "late" in work.name else "rate"
            if not work.most_only and growing(work.name, self._sizes.pending[0]) in self._found.figures:
                rows.append([work.title, *(self._change_of(work.name, system.NAME, key) for system in self._here)])
        head = ["the most to the fewest pending", *(system.NAME for system in self._here)]
        return "\n".join([_line(head), _line(["---"] * len(head)), *map(_line, rows)]) if rows else ""

    def _change_of(self, work: str, system: str, key: str) -> str:
        steps = [self._found.figures.get(growing(work, pending), {}).get(system) for pending in self._sizes.pending]
        measured = [median(rounds, key) for rounds in steps if rounds]
        return f"x{measured[-1] / measured[0]:.2f}" if len(measured) > 1 else ""

    def _section(
        self,
        title: str,
        text: str,
        works: list[tuple[str, Work]],
        key: str,
        show: Show,
        *,
        less: bool = False,
        wanted: bool = True,
    ) -> str:
        """A table of works by systems; ratios refer to `key`, and are over 1 where ours is ahead."""
        rows = [self._row(name, work, key, show, less, wanted) for name, work in works if name in self._found.figures]
        if not rows:
            return ""
        names = [system.NAME for system in self._here]
        head = ["", *names, "ours to the best peer", "ours to bare Redis", *(["target"] if wanted else [])]
        lines = [_line(head), _line(["---"] * len(head)), *map(_line, rows)]
        return "\n\n".join(part for part in (title and f"## {title}", text, "\n".join(lines)) if part)

    def _row(self, name: str, work: Work, key: str, show: Show, less: bool, wanted: bool) -> list[str]:
        rounds = self._found.figures[name]
        cells = [self._cell(name, work, system.NAME, show) for system in self._here]
        medians = {system: median(each, key) for system, each in rounds.items() if key in each[0]}
        peers = [medians[system.NAME] for system in self._here if system.PEER and system.NAME in medians]
        best = (min if less else max)(peers, default=None)
        ratios = [_ratio(medians.get(OURS), other, less) for other in (best, medians.get(BARE))]
        return [work.title, *cells, *ratios, *([work.wanted] if wanted else [])]

    def _cell(self, name: str, work: Work, system: str, show: Show) -> str:
        if rounds := self._found.figures[name].get(system):
            return show(rounds)
        self._notes.append(f"{system}, {work.title}: {self._found.words.get(name, {}).get(system, 'not measured')}")
        return "no"

    def _notes_list(self) -> str:
        notes = list(dict.fromkeys(self._notes))
        return "## What could not be measured\n\n" + "\n".join(f"- {each}" for each in notes) if notes else ""


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _ratio(ours: float | None, other: float | None, less: bool) -> str:
    if not ours or not other:
        return ""
    ratio = other / ours if less else ours / other
    return f"x{ratio:.2f}" if ratio >= 0.1 else f"x{ratio:.2g}"


_HEAD = """# Bench

Written by `make bench`: our service and its alternatives do the same work, in turns (A B A B). The load generator, the
systems and their stores share the machine. A cell shows the median of the rounds, with the minimum and maximum in
brackets. A ratio over 1 means that ours is ahead; bare Redis is not a peer but the physical limit. Jobs are checked: a
system has no figure for a work unless each of its jobs arrives exactly once, and none early. Nothing is subtracted for
the generator. All systems on Redis use the same one, on a Unix socket, without RDB and AOF, with hz 100."""
_RATES = ("Jobs per second", "Bodies of 100 bytes, ids of 20 characters; added jobs are due in a day.")
_LATE = (
    "Lateness",
    "Milliseconds from the due time until a consumer has the job, p50 / p99 / max (medians of the rounds), with 16 "
    "waiting consumers that take one job at a time. The ratio refers to p50.\n\n"
    "![share of jobs by their largest lateness](lateness.svg)",
)
_BURST = (
    "Many jobs due in one millisecond",
    "Seconds until a consumer has the last one / jobs. The ratio refers to jobs per second.",
)
_BYTES = ("Bytes", "Memory of the store (`used_memory`; for beanstalkd, its process) per pending job.")
_CPU = (
    "CPU",
    "Microseconds per job: of the store / of what stands between it and the user (our service; for a library, its own "
    "processes, producers and workers). The ratio refers to the store. Target: a whole cycle within "
    "2 times bare Redis, x0.50.",
)
_GROWTH = (
    "Growth",
    "The same works with this many pending jobs that are due later. Target: within 20 % from the fewest to the "
    "most.\n\n"
    "![rates and lateness by pending jobs](growth.svg)",
)
_PARKED = (
    "Waiting consumers",
    "Bytes per consumer / connections of all to the store / milliseconds from an add until one of them has the job, "
    "p50 / max.",
)
