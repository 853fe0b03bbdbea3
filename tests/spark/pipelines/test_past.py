"""What a history lets a forecast expect."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark_jobqueue.errors import BadOption
from pyspark_jobqueue.pipelines import forecast
from pyspark_jobqueue.pipelines.parts import history
from pyspark_jobqueue.pipelines.parts.histogram import OTHERS, Histogram
from pyspark_jobqueue.pipelines.parts.history import Arrivals

from tests.jobqueue.journal.filling import DAY, DAY_MS, Values, life_of
from tests.spark.pipelines.histories import HOUR_MS, exported
from tests.spark.serving import Serving

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

HOUR, DAY_S = 3600, 86_400


def arrivals(now: float, counts: dict[tuple[str, int], dict[int, int]], seen: int = 2) -> Arrivals:
    """By the day, each hour of which was seen so often."""
    return Arrivals(DAY_S, seen, now, {hour * HOUR: seen for hour in range(24)}, counts)


def test_jobs_are_expected_that_will_be_added_in_time_for_their_hour() -> None:
    # At ten o'clock, 20 on two days that were added within an hour, and 8 that were three hours ahead.
    made = arrivals(7.5 * HOUR, {("a", 10 * HOUR): {0: 20, 3: 8}})
    assert made.expected("a", 10 * HOUR) == 10 + 4 / 2  # three hours ahead: half of those are there already
    assert made.expected("a", 10 * HOUR + DAY_S) == 14
    assert (made.expected("a", 9 * HOUR), made.expected("b", 10 * HOUR)) == (0, 0)
    assert arrivals(10.2 * HOUR, {("a", 10 * HOUR): {0: 20}}).expected("a", 10 * HOUR) == 5


@pytest.mark.parametrize(
    ("by", "now", "slots"),
    [
        ("hour", 9 * HOUR, {10 * HOUR: 120}),
        ("minute", 9 * HOUR, {10 * HOUR + 60 * minute: 2 for minute in range(60)}),
        ("minute", 10.75 * HOUR, {10 * HOUR + 60 * minute: 4 for minute in range(45, 60)}),
        ("day", 9 * HOUR, {0: 120}),
    ],
)
def test_what_is_expected_is_spread_over_the_slots_of_its_hour(by: str, now: float, slots: dict[int, float]) -> None:
    coming = arrivals(now, {("a", 10 * HOUR): {0: 240}})
    found = history.with_arrivals(Histogram(by, now, {"a": {10 * HOUR: 1}}, {}), coming, 2)
    expected = dict(slots)
    expected[10 * HOUR] = expected.get(10 * HOUR, 0) + 1
    assert found.topics == {"a": expected}


def test_topics_beyond_the_largest_are_expected_together() -> None:
    pending = Histogram("hour", 0, {**{f"t{number}": {HOUR: 5} for number in range(9)}, OTHERS: {HOUR: 1}}, {})
    coming = arrivals(0, {("large", HOUR): {0: 40}, ("small", HOUR): {0: 2}, ("t0", HOUR): {0: 2}})
    topics = history.with_arrivals(pending, coming, 3).topics
    assert (topics["large"], topics["t0"], topics["t1"]) == ({HOUR: 20}, {HOUR: 6}, {HOUR: 5})
    assert topics[OTHERS] == {HOUR: 2}
    assert list(topics)[-1] == OTHERS


def told(day_ms: int) -> list[Values]:
    """At ten, 60 jobs that were added in the half hour before, which ten workers take 6 s each for; at eight in the
    evening one that was added twelve hours before, and takes a second."""
    at_ten = [
        event
        for number in range(60)
        for event in life_of(
            day_ms + 10 * HOUR_MS - 900, f"{day_ms}:{number}", late_ms=number // 10 * 6000, worked_ms=6000
        )
    ]
    (added, due, popped, finished) = life_of(day_ms + 20 * HOUR_MS, f"{day_ms}:e", worked_ms=1000)
    return [
        *at_ten,
        {**added, "ms": added["ms"] - 12 * HOUR_MS, "at": added["at"] - 12 * HOUR_MS * 1000},
        due,
        popped,
        finished,
    ]


def frame(spark: SparkSession, history: str) -> DataFrame:
    return spark.read.parquet(f"{history}/events")


def test_arrivals_and_working_times_are_learnt_from_a_history(spark: SparkSession, folder: Path) -> None:
    events = frame(spark, exported(folder, [event for day in range(2) for event in told(DAY + day * DAY_MS)]))
    begin = DAY / 1000
    coming = history.arrivals(events, begin - DAY_S, begin + 2 * DAY_S, begin + 2 * DAY_S)
    # From its first event at eight in the morning to its last one in the evening, of whose hour not all is known.
    assert coming.counts == {("order-close", 10 * HOUR): {0: 120}, ("order-close", 20 * HOUR): {12: 1}}
    assert (coming.period_s, coming.days, coming.seen[10 * HOUR], coming.seen[20 * HOUR]) == (DAY_S, 1.5, 2, 1)
    shown = history.workers(events)
    assert shown is not None
    assert shown.busy == 60 * 6 / 60  # all in one minute
    assert shown.work_s == pytest.approx((120 * 6 + 2) / 122)
    assert history.workers(events.filter("false")) is None
    with pytest.raises(BadOption, match="the history covers less than a day"):
        history.arrivals(events, begin + 10 * HOUR, begin + DAY_S, begin + DAY_S)


def test_a_forecast_with_a_history_foresees_what_will_be_added(
    spark: SparkSession, serving: Serving, topic: str, folder: Path
) -> None:
    midnight = int(time.time()) // DAY_S * DAY_S
    days = [told((midnight - day * DAY_S) * 1000) for day in (1, 2, 3)]
    history = exported(folder, [event for day in days for event in day])
    serving.ask("add", topic="order-close", id="f/1", body=1, delay=7200)
    flags = [
        "--url",
        serving.url,
        "--history",
        history,
        "--since",
        "4d",
        "--hours",
        "30",
        "--plot",
        f"{folder}/plot.svg",
    ]
    figures = forecast.forecast(forecast.parser().parse_args(flags)).figures
    assert (figures["jobs"], figures["workers"], figures["work_s"], figures["rate"]) == (1, 6.0, 5.918, 1.01)
    assert 60 <= figures["arrivals"] <= 130  # of 30 hours, one or two have those at ten
    assert figures["peak_jobs"] >= 1 and figures["peak_at"].endswith(":00Z")
    assert [each["topic"] for each in figures["topics"]] == ["order-close"]
    assert "rate: 1.01 jobs/s" in Path(f"{folder}/plot.svg").read_text()
    with pytest.raises(BadOption, match="--since must be before --until"):
        forecast.forecast(forecast.parser().parse_args([*flags, "--until", "2020-01-01"]))
