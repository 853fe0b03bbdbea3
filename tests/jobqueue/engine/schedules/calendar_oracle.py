"""The times of a cron expression by brute force: each second or minute of a span, or each day, is looked at.

An expression counts elapsed time, in which every local time that exists is seen as often as it exists, unless it has
five fields and neither minute nor hour begins with `*`: then the wall clock counts, whose missing times are moved to
the end of the gap, and whose repeated times count once.
"""

from __future__ import annotations

import calendar
import itertools
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

_RANGES = {"second": (0, 59), "minute": (0, 59), "hour": (0, 23), "day": (1, 31), "month": (1, 12), "weekday": (0, 7)}
_MONTHS = {name.upper(): number for number, name in enumerate(calendar.month_abbr)}
_WEEKDAYS = {name.upper(): (number + 1) % 7 for number, name in enumerate(calendar.day_abbr)}


class CalendarOracle:
    """The times of an expression in a time zone."""

    def __init__(self, expression: str, zone: str) -> None:
        fields = expression.upper().split()
        self._zone = zone
        self._step = timedelta(minutes=1) if len(fields) == 5 else timedelta(seconds=1)
        self._fields = dict(zip(_RANGES, ["0", *fields][-6:], strict=True))
        starred = any(self._fields[name].startswith("*") for name in ("minute", "hour"))
        self._is_by_wall_clock = len(fields) == 5 and not starred
        numbers = [_numbers(name, self._fields[name]) for name in ("hour", "minute", "second")]
        self._clock = {time(hour, minute, second) for hour, minute, second in itertools.product(*numbers)}

    def between(self, begin: datetime, end: datetime) -> list[datetime]:
        """Its times after `begin`, a whole minute, and until `end`."""
        if self._is_by_wall_clock:  # a time may be moved to the span from before it
            walls = self._matching(_wall(begin, self._zone) - timedelta(hours=3), _wall(end, self._zone))
            found = {self._at(wall) for wall in walls}
        else:
            moments = _moments(self._zone, begin, end, self._step)
            found = {moment for moment, wall in moments if wall.time() in self._clock and self._is_on(wall.date())}
        return sorted(each for each in found if begin < each <= end)

    def _matching(self, begin: datetime, end: datetime) -> Iterator[datetime]:
        for number in range((end.date() - begin.date()).days + 1):
            day = begin.date() + timedelta(days=number)
            if self._is_on(day):
                walls = (datetime.combine(day, each) for each in self._clock)
                yield from (wall for wall in walls if begin <= wall <= end)

    def _at(self, wall: datetime) -> datetime:
        """The first moment at which the wall clock shows this time, or the end of the gap that it is in."""
        while _wall(at := wall.replace(tzinfo=ZoneInfo(self._zone)).astimezone(UTC), self._zone) != wall:
            wall += self._step
        return at

    def _is_on(self, day: date) -> bool:
        return _is_on(self._fields["month"], self._fields["day"], self._fields["weekday"], day)


def _wall(moment: datetime, zone: str) -> datetime:
    return moment.astimezone(ZoneInfo(zone)).replace(tzinfo=None)


@lru_cache(maxsize=8)
def _moments(zone: str, begin: datetime, end: datetime, step: timedelta) -> list[tuple[datetime, datetime]]:
    """Each moment after `begin`, until `end`, and what the clock shows then."""
    moments = [begin + number * step for number in range(1, (end - begin) // step + 1)]
    return [(moment, _wall(moment, zone)) for moment in moments]


@lru_cache(maxsize=1000)
def _is_on(month: str, days: str, weekdays: str, day: date) -> bool:
    if day.month not in _numbers("month", month):
        return False
    is_day = any(_is_day(term, day) for term in days.split(","))
    is_weekday = any(_is_weekday(term, day) for term in weekdays.split(","))
    if days.startswith("*") or weekdays.startswith("*"):
        return is_day and is_weekday
    return is_day or is_weekday


def _is_day(term: str, day: date) -> bool:
    last = date(day.year, day.month, calendar.monthrange(day.year, day.month)[1])
    if term == "L":
        return day == last
    if term == "LW":
        return day == last - timedelta(days=max(last.isoweekday() - 5, 0))
    return day.day in _numbers("day", term)


def _is_weekday(term: str, day: date) -> bool:
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
