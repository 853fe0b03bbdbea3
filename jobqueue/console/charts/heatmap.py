"""A heatmap of how late jobs were, with a column for each span of time and a row for each bucket of lateness.

A mark shows the number of jobs twice, by its height within its cell and by its shade, so that nobody needs colours.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from jobqueue.console.charts.axes import BOTTOM, LEFT, TOP, Tick, across, are_days, x

_ROW = 15  # the height of a row
_LEVELS = 5
_MOST_COLUMNS = 120
_STEPS_S = (60, 120, 300, 600, 900, 1800, 3600)


class Column(NamedTuple):
    """A span of time: when it begins, and how many jobs were in each bucket."""

    begin: float
    counts: list[int]


class Level(NamedTuple):
    """The marks of one height and shade, as the path of a drawing: each represents `least` jobs or more."""

    number: int
    least: int
    path: str


class Heatmap(NamedTuple):
    """Everything that is drawn, and the columns of the table. `rows`: the position of each bucket's name; `used`: the
    buckets that have any jobs."""

    height: int
    step_s: int
    levels: list[Level]
    across: list[Tick]
    rows: list[Tick]
    columns: list[Column]
    used: list[int]
    is_long: bool
    """True if the marks across are days."""


def heatmap(found: Mapping[str, Any], kind: str) -> Heatmap:
    """Chart one kind of lateness (`due_to_ready`, `due_to_delivered`) from an answer to `figures`."""
    begin, end, buckets = found["since"], found["until"], len(found["bounds"]) + 1
    step_s = step_of(end - begin)
    columns = _columns(found["bins"], kind, step_s)
    ticks = across(begin, end)
    used = [place for place in range(buckets) if any(column.counts[place] for column in columns)]
    rows = [Tick(_top(place, buckets) + _ROW - 4, place) for place in range(buckets)]
    levels = _levels(columns, begin, end, step_s)
    return Heatmap(TOP + buckets * _ROW + BOTTOM, step_s, levels, ticks, rows, columns, used, are_days(ticks))


def step_of(span_s: float) -> int:
    """The width in seconds of a column of a heatmap."""
    return next((step for step in _STEPS_S if span_s / step <= _MOST_COLUMNS), _STEPS_S[-1])


def _columns(bins: Sequence[Mapping[str, Any]], kind: str, step_s: int) -> list[Column]:
    sums: dict[float, list[int]] = {}
    for each in bins:
        if each[kind]:
            begin, counts = each["begin"] // step_s * step_s, each[kind]["counts"]
            before = sums.get(begin, [0] * len(counts))
            sums[begin] = [one + other for one, other in zip(before, counts, strict=True)]
    return [Column(begin, sums[begin]) for begin in sorted(sums)]


def _levels(columns: Sequence[Column], begin: float, end: float, step_s: int) -> list[Level]:
    """The marks by level; each level begins at a fixed multiple of the level below it."""
    most = max((count for column in columns for count in column.counts), default=0)
    leasts = sorted({math.ceil(most ** (part / _LEVELS)) for part in range(_LEVELS)}) if most else []
    paths: defaultdict[int, list[str]] = defaultdict(list)
    for column in columns:
        left = max(LEFT, x(column.begin, begin, end))
        # A column that has just begun is narrower than the gap after it.
        width = max(x(min(column.begin + step_s, end), begin, end) - left - 0.5, 0.5)
        for place, count in enumerate(column.counts):
            if count:
                level = sum(count >= least for least in leasts)
                paths[level].append(_mark(left, width, _top(place, len(column.counts)), level))
    return [Level(level, least, "".join(paths[level])) for level, least in enumerate(leasts, 1)]


def _mark(left: float, width: float, top: float, level: int) -> str:
    """A rectangle that stands on the floor of its cell."""
    height = (_ROW - 1) * level / _LEVELS
    return f"M{left:.1f} {top + _ROW - height:.1f}h{width:.1f}v{height:.1f}h-{width:.1f}z"


def _top(place: int, buckets: int) -> float:
    """The top of a bucket's row; the row of the greatest lateness is at the top."""
    return TOP + (buckets - 1 - place) * _ROW
