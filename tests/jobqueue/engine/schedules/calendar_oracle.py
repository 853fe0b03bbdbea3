"""The times of a cron expression by brute force: each second or minute of a span is looked at.

An expression counts elapsed time, in which every local time that exists is seen as often as it exists, unless it has
five fields and neither minute nor hour begins with `*`: then the wall clock counts, whose missing times are moved to
the end of the gap, and whose repeated times count once.
"""

from __future__ import annotations

import calendar
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

_RANGES = {"second": (0, 59), "minute": (0, 59), "hour": (0, 23), "day": (1, 31), "month": (1, 12), "weekday": (0, 7)}
_MONTHS = {name.upper(): number for number, name in enumerate(calendar.month_abbr)}
_WEEKDAYS = {name.upper(): (number + 1) % 7 for number, name in enumerate(calendar.day_abbr)}


class CalendarOracle:
    """The times of an expression in a time zone."""

    def __init__(self, expression: str, zone: str) -> None:
        fields = expression.upper().split()
        self._zone = ZoneInfo(zone)
        self._step = timedelta(minutes=1) if len(fields) == 5 else timedelta(seconds=1)
        self._fields = dict(zip(_RANGES, ["0", *fields][-6:], strict=True))
        starred = any(self._fields[name].startswith("*") for name in ("minute", "hour"))
        self._is_by_wall_clock = len(fields) == 5 and not starred
        self._numbers = {
            name: set(_numbers(name, self._fields[name])) for name in ("second", "minute", "hour", "month")
        }

    def between(self, begin: datetime, end: datetime) -> list[datetime]:
        """Its times after `begin`, a whole minute, and until `end`."""
        if self._is_by_wall_clock:  # a time may be moved to the span from before it
            walls = self._matching(self._wall(begin) - timedelta(hours=3), self._wall(end))
            found = {self._at(wall) for wall in walls}
        else:
            found = set(self._elapsed(begin, end))
        return sorted(each for each in found if begin < each <= end)

    def _elapsed(self, begin: datetime, end: datetime) -> Iterator[datetime]:
        while begin < end:
            begin += self._step
            if self._matches(self._wall(begin)):
                yield begin

    def _matching(self, begin: datetime, end: datetime) -> Iterator[datetime]:
        while begin <= end:
            if self._matches(begin):
                yield begin
            begin += self._step

    def _wall(self, time: datetime) -> datetime:
        return time.astimezone(self._zone).replace(tzinfo=None)

    def _at(self, wall: datetime) -> datetime:
        """The first moment at which the wall clock shows this time, or the end of the gap that it is in."""
        while self._wall(at := wall.replace(tzinfo=self._zone).astimezone(UTC)) != wall:
            wall += self._step
        return at

    def _matches(self, wall: datetime) -> bool:
        numbers = self._numbers
        if wall.second not in numbers["second"] or wall.minute not in numbers["minute"]:
            return False
        if wall.hour not in numbers["hour"] or wall.month not in numbers["month"]:
            return False
        days = [self._is_day(term, wall.date()) for term in self._fields["day"].split(",")]
        weekdays = [self._is_weekday(term, wall.date()) for term in self._fields["weekday"].split(",")]
        if self._fields["day"].startswith("*") or self._fields["weekday"].startswith("*"):
            return any(days) and any(weekdays)
        return any(days) or any(weekdays)

    def _is_day(self, term: str, day: date) -> bool:
        last = date(day.year, day.month, calendar.monthrange(day.year, day.month)[1])
        if term == "L":
            return day == last
        if term == "LW":
            return day == last - timedelta(days=max(last.isoweekday() - 5, 0))
        return day.day in _numbers("day", term)

    def _is_weekday(self, term: str, day: date) -> bool:
        number = day.isoweekday() % 7
        if "#" in term:
            name, nth = term.split("#")
            return number == _number(name) % 7 and (day.day - 1) // 7 + 1 == int(nth)
        if term.endswith("L"):
            return number == int(term[:-1]) % 7 and (day + timedelta(days=7)).month != day.month
        return number in {each % 7 for each in _numbers("weekday", term)}


def _numbers(name: str, text: str) -> list[int]:
    """The numbers of a field, or of one of its terms."""
    least, most = _RANGES[name]
    found: list[int] = []
    for term in text.split(","):
        span, _, step = term.partition("/")
        if span == "*":
            first, last = least, most
        elif "-" in span:
            first, last = map(_number, span.split("-"))
        else:
            first, last = _number(span), most if step else _number(span)
        found += range(first, last + 1, int(step or 1))
    return found


def _number(text: str) -> int:
    return _MONTHS.get(text, _WEEKDAYS.get(text, -1)) if text.isalpha() else int(text)
