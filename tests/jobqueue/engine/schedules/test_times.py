"""The times of intervals and calendars, through both changes of the clock in three zones, from any moment."""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import islice, takewhile
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobqueue.engine.schedules.times import BadCron, Cron, Interval, Times, zone_of
from tests.jobqueue.engine.schedules.calendar_oracle import CalendarOracle
from tests.jobqueue.engine.schedules.changes import BERLIN, CHANGES, LORD_HOWE, ON_THE_DAY

BY_ELAPSED_TIME = [
    *("* * * * *", "*/10 * * * *", "*/7 2 * * *", "* 2 * * *", "*/15 1-3 * * *", "* 1,2 * * SUN"),
    *("0 * * * *", "30 * * * *", "15 */2 * * *", "45 */2 * * *", "15 */3 * * *", "0 */6 * * *", "5,35 * 1-10 * *"),
]
BY_WALL_CLOCK = [
    *("30 2 * * *", "0 2 * * *", "15 1 * * *", "45 1 * * *", "0 3 * * *", "0 0 * * *", "0 9 * * MON-FRI"),
    *("0,30 2 * * *", "30 1,2,3 * * *", "10 2-3 * * *", "0,15,45 1-3 * * *", "0-59 2 * * SUN"),
]


def in_ms(time: datetime) -> int:
    return int(time.timestamp()) * 1000


def until(times: Times, begin: datetime, end: datetime) -> Iterator[datetime]:
    """The times after one moment, until another."""
    found = (datetime.fromtimestamp(ms / 1000, UTC) for ms in times.after(in_ms(begin)))
    return takewhile(end.__ge__, found)


def around(zone: str, day: str) -> tuple[datetime, datetime]:
    """From midnight before the day of a change until the end of the day after it."""
    midnight = datetime.fromisoformat(day).replace(tzinfo=ZoneInfo(zone)).astimezone(UTC)
    return midnight - timedelta(hours=1), midnight + timedelta(hours=49)


@cache
def expected(expression: str, zone: str, day: str) -> list[datetime]:
    return CalendarOracle(expression, zone).between(*around(zone, day))


def test_a_calendar_goes_through_a_change_of_the_clock_without_missing_or_repeating_a_time(
    subtests: pytest.Subtests,
) -> None:
    for (zone, day), expression in itertools.product(CHANGES, (*BY_ELAPSED_TIME, *BY_WALL_CLOCK)):
        with subtests.test(zone=zone, day=day, expression=expression):
            assert list(until(Cron(expression, zone), *around(zone, day))) == expected(expression, zone, day)


def test_the_next_time_is_the_same_from_any_moment_before_it(subtests: pytest.Subtests) -> None:
    """In a gap and in either pass of a repeated hour too."""
    for (zone, day), expression in itertools.product(CHANGES, (*BY_ELAPSED_TIME, *BY_WALL_CLOCK)):
        with subtests.test(zone=zone, day=day, expression=expression):
            calendar, times = Cron(expression, zone), [in_ms(each) for each in expected(expression, zone, day)]
            begin_ms = in_ms(around(zone, day)[0])
            for now_ms in range(begin_ms + 3_600_000, begin_ms + 5 * 3_600_000, 599_999):  # from midnight until about 4
                if (place := bisect_right(times, now_ms)) < len(times):
                    assert next(calendar.after(now_ms)) == times[place]


def _fields(least: int, most: int) -> st.SearchStrategy[str]:
    numbers = st.lists(st.integers(least, most), min_size=1, max_size=3)
    spans = st.tuples(st.integers(least, most), st.integers(least, most)).map(lambda each: f"{min(each)}-{max(each)}")
    steps = st.integers(1, most).map("*/{}".format)
    return st.just("*") | numbers.map(lambda each: ",".join(map(str, each))) | spans | steps


@given(st.sampled_from(CHANGES), _fields(0, 59), _fields(0, 23), _fields(1, 31), _fields(0, 7))
def test_any_calendar_is_as_a_look_at_each_minute_finds_it(
    change: tuple[str, str], minute: str, hour: str, day: str, weekday: str
) -> None:
    expression = f"{minute} {hour} {day} * {weekday}"
    assert list(until(Cron(expression, change[0]), *around(*change))) == expected(expression, *change)


def test_on_the_day_of_a_change(subtests: pytest.Subtests) -> None:
    for zone, day, expression, clocks in ON_THE_DAY:
        with subtests.test(zone=zone, day=day, expression=expression):
            midnight = datetime.fromisoformat(day).replace(tzinfo=ZoneInfo(zone))
            end = (midnight + timedelta(days=1)).astimezone(UTC) - timedelta(seconds=1)
            found = until(Cron(expression, zone), midnight.astimezone(UTC) - timedelta(seconds=1), end)
            assert [each.astimezone(ZoneInfo(zone)).isoformat(timespec="minutes") for each in found] == [
                f"{day}T{clock}" for clock in clocks
            ]


@pytest.mark.parametrize(
    ("day", "expression", "clocks"),
    [
        ("2026-10-04", "0 * * * *", ["01:00+10:30", "03:00+11:00", "04:00+11:00"]),
        ("2026-10-04", "45 * * * *", ["00:45+10:30", "01:45+10:30", "02:45+11:00"]),
        ("2026-04-05", "0 * * * *", ["01:00+11:00", "02:00+10:30", "03:00+10:30"]),
        ("2026-04-05", "45 * * * *", ["00:45+11:00", "01:45+11:00", "01:45+10:30"]),
    ],
)
def test_half_an_hour_is_no_reason_to_pass_over_a_time(day: str, expression: str, clocks: list[str]) -> None:
    """cronsim, which goes on by whole hours, misses some of these."""
    begin = datetime.fromisoformat(day).replace(tzinfo=ZoneInfo(LORD_HOWE)) + timedelta(minutes=10)
    found = [
        datetime.fromtimestamp(ms / 1000, UTC) for ms in islice(Cron(expression, LORD_HOWE).after(in_ms(begin)), 3)
    ]
    assert [each.astimezone(ZoneInfo(LORD_HOWE)).isoformat(timespec="minutes") for each in found] == [
        f"{day}T{clock}" for clock in clocks
    ]


def test_a_calendar_with_seconds_counts_elapsed_time(subtests: pytest.Subtests) -> None:
    expressions: list[str] = ["*/25 * * * * *", "30,5 59 1 * * *", "0 */20 * * * *", "59 * 2 * * SUN"]
    for expression, (zone, day) in itertools.product(expressions, CHANGES):
        with subtests.test(expression=expression, zone=zone, day=day):
            begin = around(zone, day)[0] + timedelta(hours=1, minutes=30)
            span = begin, begin + timedelta(hours=3)
            assert list(until(Cron(expression, zone), *span)) == CalendarOracle(expression, zone).between(*span)


def test_days_have_names_and_ordinal_numbers(subtests: pytest.Subtests) -> None:
    cases: list[tuple[str, list[str]]] = [
        ("0 9 L * *", ["01-31", "02-28", "03-31", "04-30"]),
        ("0 9 LW * *", ["01-30", "02-27", "03-31", "04-30"]),
        ("0 9 * * FRI#1", ["01-02", "02-06", "03-06", "04-03"]),
        ("0 9 * * MON#5", ["03-30", "06-29", "08-31", "11-30"]),
        ("0 9 * * 5L", ["01-30", "02-27", "03-27", "04-24"]),
        ("0 9 * FEB,MAR SUN#2", ["02-08", "03-08"]),
        ("0 9 13 * FRI", ["01-02", "01-09", "01-13", "01-16"]),  # either
        ("0 9 */13 * FRI", ["02-27", "03-27", "05-01", "08-14"]),  # both
        ("0 9 1-7 JAN-FEB MON-WED", ["01-01", "01-02", "01-03", "01-04"]),
        ("0 9 29 FEB *", []),  # not in 2026
    ]
    for expression, days in cases:
        with subtests.test(expression=expression, days=days):
            year = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 12, 31, tzinfo=UTC)
            found = list(until(Cron(expression, "UTC"), *year))
            assert found == CalendarOracle(expression, "UTC").between(*year)
            assert [f"{each:%m-%d}" for each in found[: len(days)]] == days


def test_the_29th_of_february_is_waited_for() -> None:
    (found,) = islice(Cron("0 0 29 2 *", BERLIN).after(in_ms(datetime(2026, 1, 1, tzinfo=UTC))), 1)
    assert datetime.fromtimestamp(found / 1000, UTC) == datetime(2028, 2, 28, 23, tzinfo=UTC)


def test_a_time_between_two_seconds_is_after_the_first() -> None:
    second = in_ms(datetime(2026, 5, 1, 12, tzinfo=UTC))
    times = Cron("* * * * * *", BERLIN)
    assert next(times.after(second - 1)) == second
    assert next(times.after(second)) == second + 1000
    assert next(times.after(second + 999)) == second + 1000


@given(st.integers(1000, 31_536_000_000), st.integers(0, 2**41), st.integers(-(2**35), 2**41))
def test_an_interval_does_not_drift(every_ms: int, start_ms: int, later_ms: int) -> None:
    now_ms = start_ms + later_ms
    found = list(islice(Interval(every_ms, start_ms).after(now_ms), 3))
    assert [each - found[0] for each in found] == [0, every_ms, 2 * every_ms]
    assert (found[0] - start_ms) % every_ms == 0
    if later_ms < every_ms:
        assert found[0] == start_ms + every_ms
    else:
        assert now_ms < found[0] <= now_ms + every_ms


def test_what_cannot_be_read_or_never_comes_is_refused(subtests: pytest.Subtests) -> None:
    cases: list[tuple[str, str]] = [
        ("* * * *", "Wrong number of fields"),
        ("60 * * * *", "Bad minute"),
        ("* 24 * * *", "Bad hour"),
        ("* * 0 * *", "Bad day-of-month"),
        ("* * * FEBR *", "Bad month"),
        ("* * * * MON#6", "Bad day-of-week"),
        ("* * * * FRIL", "Bad day-of-week"),  # only 5L
        ("0 0 31 2 *", "Bad day-of-month"),
        ("*/0 * * * *", "Bad minute"),
    ]
    for expression, says in cases:
        with subtests.test(expression=expression, says=says), pytest.raises(BadCron, match=says):
            Cron(expression, "UTC")


def test_a_time_zone_that_there_is_not_is_a_key_error(subtests: pytest.Subtests) -> None:
    cases: list[str] = ["", "Europe", "Europe/Atlantis", "../etc/passwd", "/etc/localtime", "a\0b"]
    for name in cases:
        with subtests.test(name=name), pytest.raises(KeyError):
            zone_of(name)
