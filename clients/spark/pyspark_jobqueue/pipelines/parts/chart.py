"""The chart of a forecast: on top, what falls due by topic, and the rate; below, the backlog if there is one."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure  # without pyplot, so that no window opens
from matplotlib.ticker import MaxNLocator, StrMethodFormatter

from pyspark_jobqueue.pipelines.parts.axes import COLOURS, day, make_plain, show_time
from pyspark_jobqueue.pipelines.parts.backlog import Backlog
from pyspark_jobqueue.pipelines.parts.histogram import OTHERS, Histogram

_OF_OTHERS, _OF_RATE = "#999999", "#d62728"


def draw(file: Path, found: Histogram, expected: Backlog | None, rate: float | None) -> None:
    """Write a .png or .svg file. `expected` is given if there is a `rate` (jobs per second)."""
    below = expected if expected and expected.most[1] >= 1 else None
    figure = Figure(figsize=(11, 7 if below else 4.8), layout="constrained")
    above, *lower = figure.subplots(2 if below else 1, 1, sharex=True, squeeze=False)[:, 0]
    _due(above, found)
    if rate:
        above.axhline(rate, color=_OF_RATE, linestyle="--", linewidth=1.5, label=f"rate: {rate:,g} jobs/s")
    if above.get_legend_handles_labels()[1]:
        figure.legend(loc="outside right upper", frameon=False)
    if below:
        _backlog(lower[0], below)
    bottom = lower[0] if below else above
    show_time(bottom)
    figure.savefig(file, dpi=120)


def _due(axes: Axes, found: Histogram) -> None:
    """Draw stacked steps, one colour per topic."""
    total, due_now = found.together(), sum(found.due_now.values())
    edges, starts = _edges(found, list(total))
    floor = [0.0] * len(starts)
    for (name, slots), colour in zip(_series(found), (*COLOURS, _OF_OTHERS), strict=False):
        top = [low + found.rate(start, slots.get(start, 0)) for low, start in zip(floor, starts, strict=True)]
        shade = _OF_OTHERS if name == OTHERS else colour
        axes.stairs(top, edges, baseline=floor, fill=True, color=shade, label=name)
        floor = top
    waiting = f", and {due_now:,} are due already" if due_now else ""
    axes.set_title(f"{sum(total.values()):,.0f} jobs fall due{waiting} ({_moment(found.now)} UTC)", loc="left")
    axes.set_ylabel(f"due, jobs/s by the {found.by}")
    axes.set_ylim(bottom=0)
    _plain(axes)


def _backlog(axes: Axes, expected: Backlog) -> None:
    times = [day(at) for at, _ in expected.points]
    jobs = [left for _, left in expected.points]
    axes.fill_between(times, jobs, color=_OF_RATE, alpha=0.25, linewidth=0)
    axes.plot(times, jobs, color=_OF_RATE, linewidth=1.5)
    at, most = expected.most
    assert expected.worked_off_at is not None
    axes.set_title(
        f"backlog: {most:,.0f} jobs at {_moment(at)}, worked off at {_moment(expected.worked_off_at)} UTC", loc="left"
    )
    axes.set_ylabel("due and waiting, jobs")
    axes.set_ylim(bottom=0)
    _plain(axes)


def _series(found: Histogram) -> list[tuple[str, dict[int, float]]]:
    """One series per topic, up to the number of colours, and one for all others."""
    series = [(name, dict(slots)) for name, slots in found.topics.items() if name != OTHERS][: len(COLOURS)]
    rest = found.together()
    for _, slots in series:
        for start, jobs in slots.items():
            rest[start] -= jobs
    return [*series, (OTHERS, rest)] if any(rest.values()) else series


def _edges(found: Histogram, starts: Sequence[int]) -> tuple[list[float], list[int]]:
    """The edges of the steps, including those of the gaps between slots; and the slot of each step (for a gap its own
    start, where no slot is)."""
    edges: list[float] = []
    steps: list[int] = []
    for start in starts:
        if edges and edges[-1] != start:
            steps.append(int(edges[-1]))
        if not edges or edges[-1] != start:
            edges.append(found.begin(start))
        steps.append(start)
        edges.append(start + found.width)
    return [day(edge) for edge in edges], steps


def _plain(axes: Axes) -> None:
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,g}"))
    axes.yaxis.set_major_locator(MaxNLocator(nbins=6))
    make_plain(axes)


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")
