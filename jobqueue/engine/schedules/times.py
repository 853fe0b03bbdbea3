"""The times of a schedule, in ms since the epoch: of an interval, or of a cron expression in a time zone.

Cron expressions are read by cronsim, with its rules for daylight saving, which are those of Debian's cron: if minute
and hour are fixed, a time that the clock skips occurs once, at the end of the gap, and a time that the clock repeats
occurs only the first time; if either begins with a `*`, or there are seconds, every hour that passes counts.

The names of time zones are those of the library tzdata, whatever the machine has, so that all instances accept the same
ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from difflib import get_close_matches
from functools import cache, lru_cache
from importlib.resources import files
from itertools import takewhile
from typing import Protocol
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

_HOUR = timedelta(hours=1)
_MINUTE = timedelta(minutes=1)
_SECOND = timedelta(seconds=1)


class Times(Protocol):
    """The times at which a schedule has an occurrence."""

    def after(self, ms: int) -> Iterator[int]:
        """The times later than `ms`, in their order. Ends when no further time is found."""


class Interval:
    """Times at an interval from a start: the first is one interval after the start."""

    def __init__(self, every_ms: int, start_ms: int) -> None:
        self._every_ms = every_ms
        self._start_ms = start_ms

    def after(self, ms: int) -> Iterator[int]:
        """See `Times.after`."""
        turn = max((ms - self._start_ms) // self._every_ms + 1, 1)
        while True:
            yield self._start_ms + turn * self._every_ms
            turn += 1


class Cron:
    """The times of a cron expression in a time zone. Raises BadCron."""

    def __init__(self, expression: str, zone: str) -> None:
        self._expression = expression
        self._zone = zone_of(zone)
        _check(expression)

    def after(self, ms: int) -> Iterator[int]:
        """See `Times.after`. cronsim gives up after 50 years without a match."""
        last = datetime.fromtimestamp(ms // 1000, UTC)
        found: datetime | None = last
        while found:
            found = None
            for time in self._from(last):
                found = self._before_change(last, time)
                last = found or time
                yield int(last.timestamp()) * 1000
                if found:
                    break

    def _from(self, time: datetime) -> Iterator[datetime]:
        """The times later than `time`. (In an hour that the clock repeats, cronsim may return times of the first pass
        even if it begins in the second.)"""
        found = (each.astimezone(UTC) for each in CronSim(self._expression, time.astimezone(self._zone)))
        return (each for each in found if each > time)

    def _before_change(self, last: datetime, time: datetime) -> datetime | None:
        """The time that cronsim has skipped between these two, or None. cronsim advances by whole hours, and so misses
        times after the clock changes by half an hour, as on Lord Howe Island."""
        begin = last - _HOUR
        if (_offset(time, self._zone) - _offset(begin, self._zone)) % _HOUR == timedelta(0):
            return None
        first = next(each for each in self._behind(_change(begin, time, self._zone)) if each > last)
        return first if first < time else None

    def _behind(self, change: datetime) -> Iterator[datetime]:
        """The times from a change of the clock on: searched minute by minute to the next whole hour, and normally from
        there."""
        begin = change
        while begin.astimezone(self._zone).minute:
            end = begin + _MINUTE
            yield from takewhile(end.__gt__, self._from(begin - _SECOND))
            begin = end
        yield from self._from(begin - _SECOND)


class BadCron(ValueError):
    """An expression that cannot be read, or that matches no time."""


@lru_cache(maxsize=1000)
def _check(expression: str) -> None:
    """Raises BadCron."""
    try:
        next(CronSim(expression, datetime(2000, 1, 1, tzinfo=UTC)))
    except CronSimError as error:
        raise BadCron(str(error)) from None
    except StopIteration:
        raise BadCron("matches no time") from None


def zone_of(name: str) -> tzinfo:
    """A time zone by its name in the IANA database. Raises KeyError for an unknown one."""
    try:
        return UTC if name == "UTC" else ZoneInfo(name)
    except (OSError, ValueError):  # such as for the name of a folder of zones
        raise KeyError(name) from None


def _offset(time: datetime, zone: tzinfo) -> timedelta:
    return time.astimezone(zone).utcoffset() or timedelta(0)


def _change(begin: datetime, end: datetime, zone: tzinfo) -> datetime:
    """The second at which the offset of the zone changed, between two times with different offsets."""
    before = _offset(begin, zone)
    while end - begin > _SECOND:
        middle = begin + timedelta(seconds=(end - begin) // _SECOND // 2)
        if _offset(middle, zone) == before:
            begin = middle
        else:
            end = middle
    return end


@cache
def names() -> frozenset[str]:
    """All names of the IANA database."""
    return frozenset(files("tzdata").joinpath("zones").read_text().split())


def near(name: str) -> str | None:
    """The zone that somebody may have meant by this name: in another case, without its region, or misspelt."""
    known = _by_lower_case()
    meant = name.strip().lower().replace(" ", "_")
    alike = [each for each in known if "/" in each and each[:3] == meant[:3]]  # comparing with all takes 30 ms
    found = [meant] if meant in known else get_close_matches(meant, alike, 1, 0.8)
    return known[found[0]] if found else None


@cache
def _by_lower_case() -> dict[str, str]:
    """The time zones, by their names and by those of their cities. Those of Etc are left out, because Etc/GMT+2 is what
    others call GMT-2."""
    common = sorted(name for name in names() if not name.startswith("Etc/"))
    cities = {name.rpartition("/")[2].lower(): name for name in reversed(common)}
    return cities | {name.lower(): name for name in common}
