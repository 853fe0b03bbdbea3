"""Charts show all of the numbers that they are made of, where these belong."""

from __future__ import annotations

from typing import Any

from jobqueue.console.charts import axes, bars, curves
from jobqueue.console.charts.heatmap import heatmap


def test_a_chart_has_all_jobs_of_the_forecast_in_its_bars_and_its_rows() -> None:
    bins = [
        {"begin": 1200.0, "width": 60, "jobs": 3, "scheduled": 0},
        {"begin": 1260.0, "width": 60, "jobs": 4, "scheduled": 2},
        {"begin": 3600.0, "width": 3600, "jobs": 60, "scheduled": 0},
    ]
    chart = bars.forecast(bins, 1190, 24, 600)
    assert [(row.begin, row.width, row.jobs, row.scheduled) for row in chart.rows] == [
        (1200, 600, 7, 2),
        (3600, 3600, 60, 0),
    ]
    assert [bar.kind for bar in chart.bars] == ["jobs", "scheduled", "jobs"]
    assert chart.busiest[0].total == 60
    inside = [bar.x >= 0 and bar.x + bar.width <= axes.WIDTH + 1 and bar.y >= 0 for bar in chart.bars]
    assert all(inside)


def test_topics_are_stacked_and_the_rest_stands_on_them() -> None:
    bins = [{"begin": 1200.0, "width": 60, "jobs": 10, "scheduled": 2}]
    own = {"a": [{"begin": 1200.0, "width": 60, "jobs": 6, "scheduled": 0}], "b": [{**bins[0], "jobs": 9}]}
    chart = bars.forecast(bins, 1190, 24, 600, own, alarm=10)
    assert chart.topics == ["a", "b"] and chart.rows[0].parts == (6, 4)  # b's forecast is newer than that of all
    assert [bar.kind for bar in chart.bars] == ["part-0", "part-1", "scheduled"]
    for lower, upper in zip(chart.bars, chart.bars[1:], strict=False):
        assert abs(upper.y + upper.height - lower.y) < 0.2
    assert chart.alarm is not None and abs(chart.alarm - chart.bars[1].y) < 0.2
    assert bars.forecast(bins, 1190, 24, 600, alarm=1000).alarm is None


def test_a_chart_of_nothing_is_one() -> None:
    chart = bars.forecast([], 1_795_264_116.3, 1, 60)
    assert not chart.bars and not chart.rows
    assert 2 < len(chart.across) <= 12


def _found(**bins: dict[int, int]) -> dict[str, Any]:
    """An answer to `figures` of an hour; `bins`: by minute, how many jobs in which bucket."""
    spreads = {
        int(name[1:]): {"counts": [numbers.get(place, 0) for place in range(4)]} for name, numbers in bins.items()
    }
    return {
        "since": 7200.0,
        "until": 10_800.0,
        "bounds": [0.001, 0.01, 1],
        "bins": [
            {"begin": 7200.0 + 60 * minute, "due_to_ready": spread, "due_to_delivered": None}
            for minute, spread in spreads.items()
        ],
    }


def test_a_heatmap_has_a_mark_for_each_bucket_of_each_minute_that_has_jobs() -> None:
    map_ = heatmap(_found(m0={0: 100, 3: 1}, m59={1: 7}), "due_to_ready")
    assert [(column.begin, column.counts) for column in map_.columns] == [
        (7200, [100, 0, 0, 1]),
        (10_740, [0, 7, 0, 0]),
    ]
    assert map_.used == [0, 1, 3]
    marks = {level.least: level.path.count("z") for level in map_.levels}
    assert sum(marks.values()) == 3
    assert [level.path.count("z") for level in map_.levels if level.least <= 7][-1] == 1
    first, last = map_.levels[0].path, map_.levels[-1].path
    assert float(first.split()[1].partition("h")[0]) < float(last.split()[1].partition("h")[0])  # later stands above
    assert heatmap(_found(), "due_to_ready").levels == []


def test_a_heatmap_of_two_days_adds_minutes_up_and_loses_none() -> None:
    found = _found(**{f"m{minute}": {minute % 4: minute} for minute in range(1, 2880)})
    found["until"] = 7200.0 + 48 * 3600
    map_ = heatmap(found, "due_to_ready")
    assert map_.step_s == 1800 and len(map_.columns) <= 97
    assert sum(sum(column.counts) for column in map_.columns) == sum(range(2880))


def test_a_column_of_a_heatmap_that_has_just_begun_is_a_rectangle() -> None:
    found = _found(m0={0: 1})
    found |= {"since": 7201.0 - 48 * 3600, "until": 7201.0}
    (level,) = (level for level in heatmap(found, "due_to_ready").levels if level.path)
    assert "h0.5v" in level.path and "--" not in level.path


def _rates(*adds: int) -> dict[str, Any]:
    """An answer to `figures` of some minutes and one that is not over."""
    numbers = [dict.fromkeys(("adds", "deliveries", "finishes"), number) for number in adds]
    bins = [{"begin": 7200.0 + 60 * minute, **each} for minute, each in enumerate(numbers) if each["adds"]]
    total = dict.fromkeys(("adds", "deliveries", "finishes"), sum(adds))
    return {"since": 7200.0, "until": 7260.0 + 60 * len(adds), "bins": bins, "total": total}


def test_curves_have_a_point_for_each_minute_that_is_over() -> None:
    chart = curves.rates(_rates(60, 0, 600))
    assert [(row.begin, row.rates[0]) for row in chart.rows] == [(7320, 10), (7260, 0), (7200, 1)]
    points = [tuple(map(float, point.split(","))) for point in chart.curves[0].points.split()]
    assert len(points) == 3 and points[1][1] == axes.HEIGHT - axes.BOTTOM and points[2][1] == axes.TOP
    assert [tick.value for tick in chart.up] == [0, 5, 10]
    assert chart.summary == "660 adds, 660 deliveries, 660 finishes"
    assert [tick.value for tick in curves.rates(_rates(1)).up][-1] == 0.02  # a part of one a second
    assert len(curves.rates(_rates()).rows) == 1  # the first minute of a service


def test_a_spark_says_in_words_what_it_shows() -> None:
    chart = curves.spark(_rates(60, 0, 600))
    assert chart.summary == "660 adds, 660 deliveries in 4 min"
    assert [len(curve.points.split()) for curve in chart.curves] == [3, 3]
