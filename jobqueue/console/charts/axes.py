"""The axes of charts: the positions of times and numbers, in units of the drawing."""

from __future__ import annotations

from typing import NamedTuple

WIDTH, HEIGHT = 960, 180
LEFT, BOTTOM, TOP = 64, 24, 8
"""Room for the labels beside the axes."""
_DAY_S = 86_400


class Tick(NamedTuple):
    """A mark on an axis: its position, and the number or the time (unix seconds) that it represents."""

    at: float
    value: float


def x(at: float, begin: float, end: float) -> float:
    """The horizontal position of a time between `begin` and `end`."""
    return LEFT + (at - begin) / (end - begin) * (WIDTH - LEFT)


def across(begin: float, end: float) -> list[Tick]:
    """Up to eight marks at round times."""
    steps = (300, 600, 900, 1800, 3600, 10_800, 21_600, 43_200, 86_400, 345_600)
    step = next((step for step in steps if (end - begin) / step <= 8), steps[-1])
    first = int(begin // step + 1) * step
    return [Tick(round(x(at, begin, end), 1), at) for at in range(first, int(end), step)]


def are_days(ticks: list[Tick]) -> bool:
    """Whether marks at times are a day or more apart."""
    return len(ticks) > 1 and ticks[1].value - ticks[0].value >= _DAY_S


def up(most: int) -> list[Tick]:
    """Three marks: at 0, at half of `most`, and at `most`."""
    room = HEIGHT - TOP - BOTTOM
    return [Tick(round(TOP + room * (1 - part / 2), 1), most * part / 2) for part in range(3)]


def round_up(most: float) -> int:
    """Round up to 2, 4 or 10 times a power of ten, so that half of the result is an integer."""
    unit = 1
    while True:
        for factor in (2, 4, 10):
            if most <= factor * unit:
                return factor * unit
        unit *= 10
