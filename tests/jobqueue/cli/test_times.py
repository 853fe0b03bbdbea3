"""Durations and times as they are typed."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime

import pytest

from jobqueue.cli.times import duration, moment, past

NOW = datetime(2026, 11, 22, 9, 30)  # UTC+1


@pytest.fixture(autouse=True)
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A zone with an offset and with clock changes."""
    monkeypatch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def others(read: Callable[[str], object], complaint: str, typings: Sequence[str]) -> list[str]:
    """Those that are not refused with this complaint, a pattern."""
    found = []
    for typed in typings:
        try:
            found.append(f"{typed!r} is {read(typed)!r}")
        except ValueError as error:
            if not re.search(complaint, str(error)):
                found.append(f"{typed!r}: {error}")
    return found


def test_a_duration_is_seconds_or_has_units() -> None:
    typings: dict[str, float] = {
        "30": 30,
        "1.5": 1.5,
        "0": 0,
        "-1": -1,  # the service refuses it, and says what is allowed
        "90s": 90,
        "30m": 1800,
        "30min": 1800,
        "1h30m": 5400,
        "1h 30m": 5400,
        "1.5h": 5400,
        "2D": 172_800,
        "1w": 604_800,
        "250ms": 0.25,
        "1s250ms": 1.25,
    }
    found = {typed: duration(typed) for typed in typings}
    assert found == typings


def test_what_is_not_a_duration_is_refused_with_examples() -> None:
    typings = (
        "",
        "soon",
        "nan",
        "inf",
        "1e999",
        "30 minutes ago",
        "m",
        "1h30",
        "1h-5m",
        "1mo",
        "1M2",
    )
    assert others(duration, r"is not a duration; give seconds, or such as 90s, 30m, 1h30m, 2d$", typings) == []


def test_a_duration_whose_units_are_out_of_order_is_refused() -> None:
    typings = (
        "30m1h",
        "1h1h",
    )
    assert others(duration, "names a unit twice, or a larger one after a smaller", typings) == []


def test_a_time_without_an_offset_is_local() -> None:
    typings: dict[str, str] = {
        "09:31": "2026-11-22 09:31",
        "09:30": "2026-11-23 09:30",  # the next one
        "9:00": "2026-11-23 09:00",
        "23:59:30": "2026-11-22 23:59:30",
        "today 18:00": "2026-11-22 18:00",
        "today 08:00": "2026-11-22 08:00",
        "Tomorrow 09:00": "2026-11-23 09:00",
        "2026-11-23": "2026-11-23 00:00",
        "2026-11-23 09:00": "2026-11-23 09:00",
        "2026-11-23T09:00:00": "2026-11-23 09:00",
        "2027-07-01 09:00": "2027-07-01 09:00",
    }
    found = {typed: moment(typed, NOW) for typed in typings}
    shown = {typed: str(datetime.fromtimestamp(float(each)))[: len(typings[typed])] for typed, each in found.items()}
    assert shown == typings
    assert not any(isinstance(each, str) for each in found.values())


def test_a_time_with_an_offset_and_unix_seconds_are_left_to_the_service() -> None:
    assert moment("2026-11-23T09:00:00+05:30") == "2026-11-23T09:00:00+05:30"
    assert moment("2026-11-23T09:00:00Z") == "2026-11-23T09:00:00Z"
    assert moment("1893456000") == 1_893_456_000


def test_what_is_not_a_time_or_could_mean_two_is_refused_with_examples() -> None:
    typings = (
        "",
        "noon",
        "tomorrow",
        "25:00",
        "9:5",
        "23.11.2026",
        "2026-13-01",
        "11/23/2026",
        "nan",
    )
    assert others(moment, "is not a time; give one such as 09:00, tomorrow 09:00, 2026-11-23", typings) == []


def test_a_time_that_is_skipped_or_comes_twice_is_refused() -> None:
    typings = (
        "2027-03-28 02:30",
        "2027-10-31 02:30",
    )
    assert others(moment, "is when the clocks are changed; give the offset", typings) == []


def test_a_past_moment_is_a_duration_ago_or_the_last_one_of_its_name() -> None:
    typings: dict[str, datetime] = {
        "2h": datetime(2026, 11, 22, 7, 30),
        "09:00": datetime(2026, 11, 22, 9, 0),
        "18:00": datetime(2026, 11, 21, 18, 0),
        "today 09:00": datetime(2026, 11, 22, 9, 0),
        "2026-11-01": datetime(2026, 11, 1),
    }
    assert {typed: datetime.fromtimestamp(past(typed, NOW)) for typed in typings} == typings


def test_a_moment_that_is_to_come_is_refused_where_a_past_one_is_wanted() -> None:
    typings = (
        "today 13:00",
        "tomorrow 09:00",
        "2026-11-23",
    )
    assert others(lambda typed: past(typed, NOW), "is not over yet", typings) == []
