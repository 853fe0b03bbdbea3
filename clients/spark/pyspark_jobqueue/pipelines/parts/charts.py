"""The charts. Times are in UTC. This module needs matplotlib.

forecast: above, the jobs that fall due by topic, and the rate; below, the backlog, if any. sla: lateness above, waiting
below, by hour, for the topics with the largest values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, StrMethodFormatter

from pyspark_jobqueue.pipelines.parts.histogram import OTHERS, Backlog, Histogram

COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9")
"""Colours that people with most kinds of colour blindness can distinguish."""


def day(seconds: float) -> float:
    """Unix seconds as days, matplotlib's unit of time."""
    return seconds / 86_400


def show_time(axes: Axes) -> None:
    """Label the lowest axes with times."""
    locator = AutoDateLocator(tz=UTC)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator, tz=UTC))  # type: ignore[no-untyped-call]
    axes.set_xlabel("time (UTC)")


def make_plain(axes: Axes) -> None:
    axes.grid(axis="y", alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)


_OF_OTHERS, _OF_RATE = "#999999", "#d62728"


def draw_forecast(file: Path, found: Histogram, expected: Backlog | None, rate: float | None) -> None:
    """Write a .png or .svg file. `expected`: the backlog at the `rate` (jobs per second); without a rate, both are
    None."""
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
    """The edges of the steps, including steps for the gaps between slots; and the start of the slot of each step (for a
    gap, the start of the gap, at which no slot starts)."""
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


_HOUR_S = 3600
_LEAST_S = 0.001  # below it the scale is linear, as 0 has no logarithm
Row = Mapping[str, Any]


def draw_lateness(file: Path, rows: Sequence[Row]) -> None:
    """Write a .png or .svg file. `rows`: the figures for each topic and hour."""
    figure = Figure(figsize=(11, 7), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True)
    topics = _worst_topics(rows)
    _lines(above, rows, topics, "late")
    _lines(below, rows, topics, "waited")
    above.set_title("first deliveries, after their due time", loc="left")
    below.set_title("all deliveries, since the job was ready", loc="left")
    show_time(below)
    if above.get_legend_handles_labels()[1]:
        figure.legend(*above.get_legend_handles_labels(), loc="outside right upper", frameon=False)
    figure.savefig(file, dpi=120)


def _worst_topics(rows: Sequence[Row]) -> list[str]:
    most: dict[str, float] = {}
    for row in rows:
        most[row["topic"]] = max(most.get(row["topic"], 0.0), row["late_p99"] or 0.0, row["waited_p99"] or 0.0)
    return sorted(most, key=lambda topic: (-most[topic], topic))[: len(COLOURS)]


def _lines(axes: Axes, rows: Sequence[Row], topics: Sequence[str], what: str) -> None:
    for topic, colour in zip(topics, COLOURS, strict=False):
        of_topic = sorted((row for row in rows if row["topic"] == topic), key=lambda row: row["hour"])
        times = [day(row["hour"] + _HOUR_S / 2) for row in of_topic]
        for share, style in (("p99", "-"), ("p50", ":")):
            seconds = [float("nan") if row[f"{what}_{share}"] is None else row[f"{what}_{share}"] for row in of_topic]
            label = f"{topic}, {share}"
            axes.plot(times, seconds, style, color=colour, marker=".", markersize=4, linewidth=1.5, label=label)
    axes.set_yscale("symlog", linthresh=_LEAST_S)
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.set_ylabel("seconds")
    make_plain(axes)
