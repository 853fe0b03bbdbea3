"""Curves: how often something happened in each minute, as lines over time, each with its own dash pattern."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from jobqueue.console.charts.axes import BOTTOM, HEIGHT, TOP, Tick, across, are_days, round_up, up, x

RATES = ("adds", "deliveries", "finishes")
SPARK_WIDTH, SPARK_HEIGHT = 120, 20
_MINUTE_S = 60


class Curve(NamedTuple):
    """A line: its name, and its points in the drawing."""

    name: str
    points: str


class Row(NamedTuple):
    """A minute: when it begins, and the number per second of each of `RATES`."""

    begin: float
    rates: list[float]


class Curves(NamedTuple):
    """Everything that is drawn, and the rows of the table, newest first."""

    curves: list[Curve]
    across: list[Tick]
    up: list[Tick]
    rows: list[Row]
    summary: str
    is_long: bool
    """True if the marks across are days."""


def rates(found: Mapping[str, Any]) -> Curves:
    """The curves of adds, deliveries and finishes per second, from an answer to `figures` by minute. The newest minute
    is not over yet, and is left out."""
    begin, end = found["since"], max(found["until"] - _MINUTE_S, found["since"] + _MINUTE_S)
    rows = _rows(found["bins"], begin, end)
    most = max((rate for row in rows for rate in row.rates), default=0)
    scale = _scale(most)
    curves = [Curve(name, _points(rows, place, begin, end, scale)) for place, name in enumerate(RATES)]
    ticks = across(begin, end)
    marks = [Tick(tick.at, tick.value * scale) for tick in up(1)]
    return Curves(curves, ticks, marks, rows[::-1], _told(found, RATES), are_days(ticks))


def _rows(bins: Sequence[Mapping[str, Any]], begin: float, end: float) -> list[Row]:
    """A row for each minute, including minutes in which nothing happened."""
    by_minute = {each["begin"]: each for each in bins}
    minutes = [begin + _MINUTE_S * number for number in range(round((end - begin) / _MINUTE_S))]
    nothing = dict.fromkeys(RATES, 0)
    return [Row(at, [by_minute.get(at, nothing)[name] / _MINUTE_S for name in RATES]) for at in minutes]


def _scale(most: float) -> float:
    """The value at the top of the chart: a round number of jobs per second, or a round fraction up to 1."""
    return round_up(most) if most > 1 else round_up(most * 100) / 100


def _points(rows: Sequence[Row], place: int, begin: float, end: float, scale: float) -> str:
    """A point in the middle of each minute."""
    room = HEIGHT - TOP - BOTTOM
    middles = [x(row.begin + _MINUTE_S / 2, begin, end) for row in rows]
    heights = [TOP + room * (1 - row.rates[place] / scale) for row in rows]
    return _line(middles, heights)


def _line(across: Sequence[float], down: Sequence[float]) -> str:
    return " ".join(f"{left:.1f},{top:.1f}" for left, top in zip(across, down, strict=True))


class Spark(NamedTuple):
    """Small curves without axes, and what they show in words."""

    curves: list[Curve]
    summary: str


def spark(found: Mapping[str, Any]) -> Spark:
    """The curves of adds and deliveries, from an answer to `figures` by minute."""
    begin, end = found["since"], found["until"] - _MINUTE_S
    rows = _rows(found["bins"], begin, end)
    most = max(rate for row in rows for rate in row.rates) or 1
    places = [number * SPARK_WIDTH / max(1, len(rows) - 1) for number in range(len(rows))]
    curves = [
        Curve(name, _line(places, [1 + (SPARK_HEIGHT - 2) * (1 - row.rates[place] / most) for row in rows]))
        for place, name in enumerate(RATES[:2])
    ]
    return Spark(curves, f"{_told(found, RATES[:2])} in {round((end - begin) / _MINUTE_S) + 1} min")


def _told(found: Mapping[str, Any], names: Sequence[str]) -> str:
    return ", ".join(f"{found['total'][name]:,} {name}" for name in names)
