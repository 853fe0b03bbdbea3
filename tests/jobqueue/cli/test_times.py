"""Durations and times as they are typed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime

import pytest

from jobqueue.cli.times import duration, moment, past


@pytest.fixture(autouse=True)
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A zone with an offset and with clock changes."""
    monkeypatch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("typed", "seconds"),
    [
        ("30", 30),
        ("1.5", 1.5),
        ("0", 0),
        ("-1", -1),  # the service refuses it, and says what is allowed
        ("90s", 90),
        ("30m", 1800),
        ("30min", 1800),
        ("1h30m", 5400),
        ("1h 30m", 5400),
        ("1.5h", 5400),
        ("2D", 172_800),
        ("1w", 604_800),
        ("250ms", 0.25),
        ("1s250ms", 1.25),
    ],
)
def test_a_duration_is_seconds_or_has_units(typed: str, seconds: float) -> None:
    assert duration(typed) == seconds


@pytest.mark.parametrize(
    "typed", ["", "soon", "nan", "inf", "1e999", "30 minutes ago", "m", "1h30", "1h-5m", "1mo", "1M2"]
)
def test_what_is_not_a_duration_is_refused_with_examples(typed: str) -> None:
    with pytest.raises(ValueError, match=r"is not a duration; give seconds, or such as 90s, 30m, 1h30m, 2d$"):
        duration(typed)


@pytest.mark.parametrize("typed", ["30m1h", "1h1h"])
def test_a_duration_whose_units_are_out_of_order_is_refused(typed: str) -> None:
    with pytest.raises(ValueError, match="names a unit twice, or a larger one after a smaller"):
        duration(typed)


NOW = datetime(2026, 11, 22, 9, 30)  # UTC+1


@pytest.mark.parametrize(
    ("typed", "local"),
    [
        ("09:31", "2026-11-22 09:31"),
        ("09:30", "2026-11-23 09:30"),  # the next one
        ("9:00", "2026-11-23 09:00"),
        ("23:59:30", "2026-11-22 23:59:30"),
        ("today 18:00", "2026-11-22 18:00"),
        ("today 08:00", "2026-11-22 08:00"),
        ("Tomorrow 09:00", "2026-11-23 09:00"),
        ("2026-11-23", "2026-11-23 00:00"),
        ("2026-11-23 09:00", "2026-11-23 09:00"),
        ("2026-11-23T09:00:00", "2026-11-23 09:00"),
        ("2027-07-01 09:00", "2027-07-01 09:00"),
    ],
)
def test_a_time_without_an_offset_is_local(typed: str, local: str) -> None:
    found = moment(typed, NOW)
    assert not isinstance(found, str) and str(datetime.fromtimestamp(found)).startswith(local)


def test_a_time_with_an_offset_and_unix_seconds_are_left_to_the_service() -> None:
    assert moment("2026-11-23T09:00:00+05:30") == "2026-11-23T09:00:00+05:30"
    assert moment("2026-11-23T09:00:00Z") == "2026-11-23T09:00:00Z"
    assert moment("1893456000") == 1_893_456_000


@pytest.mark.parametrize(
    "typed", ["", "noon", "tomorrow", "25:00", "9:5", "23.11.2026", "2026-13-01", "11/23/2026", "nan"]
)
def test_what_is_not_a_time_or_could_mean_two_is_refused_with_examples(typed: str) -> None:
    with pytest.raises(ValueError, match="is not a time; give one such as 09:00, tomorrow 09:00, 2026-11-23"):
        moment(typed)


@pytest.mark.parametrize("typed", ["2027-03-28 02:30", "2027-10-31 02:30"])
def test_a_time_that_is_skipped_or_comes_twice_is_refused(typed: str) -> None:
    with pytest.raises(ValueError, match="is when the clocks are changed; give the offset"):
        moment(typed)


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("2h", datetime(2026, 11, 22, 7, 30)),
        ("09:00", datetime(2026, 11, 22, 9, 0)),
        ("18:00", datetime(2026, 11, 21, 18, 0)),
        ("today 09:00", datetime(2026, 11, 22, 9, 0)),
        ("2026-11-01", datetime(2026, 11, 1)),
    ],
)
def test_a_past_moment_is_a_duration_ago_or_the_last_one_of_its_name(typed: str, expected: datetime) -> None:
    assert past(typed, NOW) == expected.timestamp()


@pytest.mark.parametrize("typed", ["today 13:00", "tomorrow 09:00", "2026-11-23"])
def test_a_moment_that_is_to_come_is_refused_where_a_past_one_is_wanted(typed: str) -> None:
    with pytest.raises(ValueError, match="is not over yet"):
        past(typed, NOW)
