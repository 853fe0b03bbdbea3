"""The tables, in Markdown, and the same as data."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from bench.compare import NOT_MEASURED, System
from bench.compare.rounds import FAILED, Found, growing
from bench.compare.works import GROWING, WORKS, Figures, Sizes, Work

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

    def show(rounds: list[Figures]) -> str:
        return " / ".join(number(median(rounds, key)) if key in rounds[0] else "-" for key in keys)

    return show


@dataclass(frozen=True)
class Section:
    """A table of works by systems. Ratios refer to `key`, and are over 1 where ours is ahead."""

    title: str
    text: str
    works: Sequence[tuple[str, Work]]  # with their names among the figures
    key: str
    show: Show
    less: bool = False  # less is better
    wanted: bool = True  # has a column of targets


class Report:
    """The report of one run."""

    def __init__(self, systems: Sequence[System], found: Found, sizes: Sizes, machine: dict[str, str]) -> None:
        self._systems, self._found, self._sizes, self._machine = systems, found, sizes, machine
        here = [system for system in systems if system.NAME not in found.missing]
        self._here = [system for system in here if not system.VARIANT]
        self._variants = [system for system in here if system.VARIANT]
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
        sections = self._sections()
        parts = [_HEAD, self._machine_table(), self._systems_list()]
        if [system.NAME for system in self._here] != [OURS] or not self._variants:
            parts += [self._compared(section) for section in sections] + [self._change()]
        if self._variants:
            parts += [_VARIANTS, *(self._versions(section) for section in sections)]
        return "\n\n".join(part for part in [*parts, self._notes_list()] if part) + "\n"

    def _sections(self) -> list[Section]:
        rates = self._named("add", "batch", "pop", "popbatch", "cycle")
        growing = self._growing()
        growing_rates = [each for each in growing if "late" not in each[0]]
        growing_late = [each for each in growing if "late" in each[0]]
        cpu = joined("store_us", "service_us", "load_us")
        late = joined("p50", "p99", "max")
        parked = joined("bytes_each", "store_connections", "wake_p50", "wake_max")
        return [
            Section(*_RATES, rates, "rate", spread("rate")),
            Section(*_LATE, self._named("late"), "p50", late, less=True),
            Section(*_BURST, self._named("burst"), "rate", joined("seconds", "jobs")),
            Section(*_CROWD, self._named("crowd"), "seconds", joined("seconds", "p50", "p99"), less=True),
            Section(*_BYTES, self._named("bytes"), "bytes", spread("bytes"), less=True),
            Section(*_CPU, [*rates, *self._named("burst")], "store_us", cpu, less=True, wanted=False),
            Section(*_GROWTH, growing_rates, "rate", spread("rate"), wanted=False),
            Section("", "", growing_late, "p50", late, less=True),
            Section(*_PARKED, self._named("parked"), "bytes_each", parked, less=True),
            Section(*_IDLE, self._named("idle"), "commands", joined("commands"), less=True),
        ]

    def _named(self, *groups: str) -> list[tuple[str, Work]]:
        return [(work.name, work) for work in WORKS if work.group in groups]

    def _growing(self) -> list[tuple[str, Work]]:
        return [
            (growing(work.name, pending), Work("", "", f"{work.title}, {pending:,} pending", work.measure, work.wanted))
            for work in GROWING
            for pending in self._sizes.pending
        ]

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

    def _change(self) -> str:
        """The ratio of the figure with the fewest pending jobs to that with the most, by work and system."""
        rows = []
        for work in GROWING:
            key = "p50" if "late" in work.name else "rate"
            if not work.most_only and growing(work.name, self._sizes.pending[0]) in self._found.figures:
                rows.append([work.title, *(self._change_of(work.name, system.NAME, key) for system in self._here)])
        return _table(["the most to the fewest pending", *(system.NAME for system in self._here)], rows)

    def _change_of(self, work: str, system: str, key: str) -> str:
        steps = [self._found.figures.get(growing(work, pending), {}).get(system) for pending in self._sizes.pending]
        measured = [median(rounds, key) for rounds in steps if rounds]
        return f"x{measured[-1] / measured[0]:.2f}" if len(measured) > 1 else ""

    def _columns(self, section: Section, systems: Sequence[System]) -> list[System]:
        """The systems that have something to show in a section."""
        return [
            system
            for system in systems
            if any(
                self._found.figures.get(name, {}).get(system.NAME) or self._why(name, system.NAME) != NOT_MEASURED
                for name, _ in section.works
            )
        ]

    def _rows(self, section: Section) -> list[tuple[str, Work]]:
        return [(name, work) for name, work in section.works if name in self._found.figures]

    def _compared(self, section: Section) -> str:
        """The table of ours and its peers."""
        here = self._columns(section, self._here)
        rows = [self._row(name, work, section, here) for name, work in self._rows(section)]
        head = ["", *(system.NAME for system in here), "ours to the best peer", "ours to bare Redis"]
        return _titled(section, _table([*head, *(["target"] if section.wanted else [])], rows))

    def _row(self, name: str, work: Work, section: Section, here: Sequence[System]) -> list[str]:
        cells = [self._cell(name, work, system.NAME, section.show) for system in here]
        medians = self._medians(name, section)
        peers = [medians[system.NAME] for system in here if system.PEER and system.NAME in medians]
        best = (min if section.less else max)(peers, default=None)
        ratios = [_ratio(medians.get(OURS), other, section.less) for other in (best, medians.get(BARE))]
        return [work.title, *cells, *ratios, *([work.wanted] if section.wanted else [])]

    def _medians(self, name: str, section: Section) -> dict[str, float]:
        rounds = self._found.figures[name]
        return {system: median(each, section.key) for system, each in rounds.items() if section.key in each[0]}

    def _versions(self, section: Section) -> str:
        """The table of ours and its other versions and settings."""
        here = self._columns(section, self._variants)
        rows = [self._version_row(name, work, section, here) for name, work in self._rows(section)]
        head = ["", OURS, *(system.NAME for system in here), *(["target"] if section.wanted else [])]
        return _titled(section, _table(head, rows if here else []), level=3)

    def _version_row(self, name: str, work: Work, section: Section, here: Sequence[System]) -> list[str]:
        medians, cells = self._medians(name, section), [self._cell(name, work, OURS, section.show)]
        for system in here:
            ratio = _ratio(medians.get(OURS), medians.get(system.NAME), section.less)
            cells.append(f"{self._cell(name, work, system.NAME, section.show)} {ratio}".strip())
        return [work.title, *cells, *([work.wanted] if section.wanted else [])]

    def _why(self, name: str, system: str) -> str:
        return self._found.words.get(name, {}).get(system, NOT_MEASURED)

    def _cell(self, name: str, work: Work, system: str, show: Show) -> str:
        if rounds := self._found.figures[name].get(system):
            return show(rounds)
        self._notes.append(f"{system}, {work.title}: {self._why(name, system)}")
        return "no"

    def _notes_list(self) -> str:
        notes = list(dict.fromkeys(self._notes))
        return "## What could not be measured\n\n" + "\n".join(f"- {each}" for each in notes) if notes else ""


def _titled(section: Section, table: str, level: int = 2) -> str:
    """A table with its title and text, or nothing without a table."""
    title = section.title and f"{'#' * level} {section.title}"
    return "\n\n".join(part for part in (title, section.text, table) if part) if table else ""


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join([_line(head), _line(["---"] * len(head)), *map(_line, rows)]) if rows else ""


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _ratio(ours: float | None, other: float | None, less: bool) -> str:
    if not ours or not other or min(ours, other) < 0:  # bytes may be: a process has given some back
        return ""
    ratio = other / ours if less else ours / other
    return f"x{ratio:.2f}" if ratio >= 0.1 else f"x{ratio:.2g}"


_HEAD = """# Bench

Written by `make bench`: our service and its alternatives do the same work, in turns (A B A B). The load generator, the
systems and their stores share the machine. A cell shows the median of the rounds, with the minimum and maximum in
brackets. A ratio over 1 means that ours is ahead; bare Redis is not a peer but the physical limit. Jobs are checked: a
system has no figure for a work unless each of its jobs arrives exactly once, and none early. Nothing is subtracted for
the generator, a program in C; what it costs stands under CPU. All systems on Redis use the same one, on a Unix socket,
without RDB and AOF, with hz 100."""
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
    "processes, producers and workers) / of the load generator, where it is a process of its own. The ratio refers to "
    "the store. Target: a whole cycle within 2 times bare Redis, x0.50.",
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
    "p50 / max. The ratio refers to bytes.",
)
_CROWD = (
    "Many jobs due within one second",
    "Seconds from the last one's due time until all are ready / milliseconds that an add, a pop and a finish of a job "
    "of another topic take together meanwhile, p50 / p99. The ratio refers to seconds. Targets: seconds / p99.",
)
_IDLE = (
    "Idleness",
    "Commands that the store runs in a second, also in scripts, for two idle processes of the service and 1,000 topics "
    "with a pending job each.",
)
_VARIANTS = """## Our service in other versions and settings

Measured in turns with ours. A ratio over 1 means that ours is ahead."""
