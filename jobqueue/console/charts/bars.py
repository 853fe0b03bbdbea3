"""Bars: how many jobs fall due in each span of time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from jobqueue.console.charts.axes import BOTTOM, HEIGHT, LEFT, TOP, WIDTH, Tick, across, are_days, round_up, up, x


class Row(NamedTuple):
    """A span of time: when it begins, its width in seconds, and how many jobs fall due in it."""

    begin: float
    width: int
    jobs: int
    scheduled: int
    parts: tuple[int, ...] = ()
    """How many of the `jobs` belong to each topic that is drawn separately; the rest belong to other topics."""

    @property
    def total(self) -> int:
        return self.jobs + self.scheduled


class Bar(NamedTuple):
    """A rectangle."""

    kind: str
    x: float
    y: float
    width: float
    height: float


class Chart(NamedTuple):
    """Everything that is drawn, and the rows of the table."""

    bars: list[Bar]
    across: list[Tick]
    up: list[Tick]
    rows: list[Row]
    busiest: list[Row]
    is_long: bool
    """True if the marks across are days."""
    topics: list[str]
    """The topics that are drawn separately, from the bottom up."""
    alarm: float | None
    """The vertical position of the alarm line, or None without an alarm, or if it is above everything drawn."""


Bins = Sequence[Mapping[str, Any]]


def forecast(
    bins: Bins,
    now: float,
    hours: int,
    step_s: int,
    topics: Mapping[str, Bins] | None = None,
    alarm: float | None = None,
) -> Chart:
    """Chart the jobs that fall due from now on, in steps of `step_s` seconds; a wider bin keeps its own width.
    `topics`: the bins of the topics to draw separately; `alarm`: the number of jobs in a step at which to draw a
    line."""
    topics = topics or {}
    rows = _with_parts(_rows(bins, step_s), [_rows(own, step_s) for own in topics.values()])
    begin = min([now // step_s * step_s, *(row.begin for row in rows)])
    end = max([now + hours * 3600, *(row.begin + row.width for row in rows)])
    most = round_up(max((row.total * step_s / row.width for row in rows), default=0))
    bars = [bar for row in rows for bar in _bars(row, begin, end, most, step_s)]
    busiest = sorted(rows, key=lambda row: -row.total)[:5]
    ticks = across(begin, end)
    line = None if alarm is None or alarm > most else round(HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * alarm / most, 1)
    return Chart(bars, ticks, up(most), rows, busiest, are_days(ticks), [*topics], line)


def _with_parts(rows: list[Row], parts: Sequence[Sequence[Row]]) -> list[Row]:
    """The rows with the jobs of each topic. The forecast of a topic may be newer than the forecast of all topics, and
    have jobs that the latter lacks: those jobs are not drawn."""
    by_topic = [{(row.begin, row.width): row.jobs for row in own} for own in parts]
    whole = []
    for row in rows:
        left, own = row.jobs, []
        for jobs in by_topic:
            own.append(min(left, jobs.get((row.begin, row.width), 0)))
            left -= own[-1]
        whole.append(row._replace(parts=tuple(own)))
    return whole


def _rows(bins: Sequence[Mapping[str, Any]], step_s: int) -> list[Row]:
    sums: dict[tuple[int, int], tuple[int, int]] = {}
    for each in bins:
        width = max(step_s, each["width"])
        place = (int(each["begin"] // width * width), width)
        jobs, scheduled = sums.get(place, (0, 0))
        sums[place] = jobs + each["jobs"], scheduled + each["scheduled"]
    return [Row(begin, width, *sums[begin, width]) for begin, width in sorted(sums)]


def _bars(row: Row, begin: float, end: float, most: int, step_s: int) -> list[Bar]:
    """The bars of a row: one for each topic that is drawn separately, one for all other existing jobs, and on top one
    for the jobs that schedules will add. If the row is wider than a step, its jobs are spread over its width."""
    scale = (HEIGHT - TOP - BOTTOM) * step_s / row.width / most
    left, width = x(row.begin, begin, end), max(1.0, row.width / (end - begin) * (WIDTH - LEFT) - 0.5)
    layers = [(f"part-{number}", jobs) for number, jobs in enumerate(row.parts)]
    layers += [("jobs", row.jobs - sum(row.parts)), ("scheduled", row.scheduled)]
    floor, bars = float(HEIGHT - BOTTOM), []
    for kind, jobs in layers:
        floor -= jobs * scale
        if jobs:
            bars.append(Bar(kind, *(round(number, 1) for number in (left, floor, width, jobs * scale))))
    return bars
