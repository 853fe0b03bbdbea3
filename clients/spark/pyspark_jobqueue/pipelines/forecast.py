"""forecast: when pending jobs will fall due: a histogram, its peak, and the backlog that a given rate leaves.

Delayed jobs count at their next due time, ready jobs as due now. Reserved jobs are not counted. With a history, the
forecast includes jobs that are yet to be added, but not jobs that workers will release.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame

from pyspark_jobqueue.pipelines.parts import command_line, history
from pyspark_jobqueue.pipelines.parts.command_line import Report, instant
from pyspark_jobqueue.pipelines.parts.histogram import MOST_SLOTS, Backlog, Histogram, backlog, histogram

_BUSIEST = 10
_WEEK_H = 168.0


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = command_line.parser(
        "forecast", "When pending jobs will fall due, the peak, and the backlog that a given rate leaves."
    )
    made.add_argument("--topic", default="*", help="a topic, several with commas, or a pattern with * and ? [all]")
    made.add_argument(
        "--by",
        choices=["minute", "hour"],
        default="minute",
        help="width of a slot; a longer one is used beyond 3,000 slots [minute]",
    )
    made.add_argument(
        "--hours", type=command_line.positive, metavar="N", help="how far to look ahead [no limit; with a history 168]"
    )
    made.add_argument(
        "--rate",
        type=command_line.positive,
        metavar="JOBS/S",
        help="jobs per second that the workers manage [of the history]",
    )
    command_line.add_plot_flag(made)
    history.add_flags(made, "28d", "learn from it which jobs will be added, and how fast the workers are")
    return made


def forecast(arguments: argparse.Namespace) -> Report:
    """Run once. Raises BadOption, Refused, Unreachable."""
    report = Report("forecast")
    drawing = command_line.charts(arguments.plot)
    if history.is_given(arguments):
        _look_ahead(arguments)
    spark = command_line.begin(arguments)
    options = {**command_line.connection(arguments), "topic": arguments.topic, "state": "delayed,ready"}
    jobs = spark.read.format("jobqueue").options(**options).load()
    found = histogram(jobs, arguments.by, time.time(), arguments.hours)
    _note_pending(report, found, arguments)
    if history.is_given(arguments):
        found = _with_history(report, found, history.read(spark, arguments, arguments.topic), arguments)
    expected = _backlog(found, arguments.rate) if arguments.rate else None
    if drawing:
        drawing.draw_forecast(Path(arguments.plot), found, expected, arguments.rate)
    _note(report, found, expected, arguments)
    return report


def _look_ahead(arguments: argparse.Namespace) -> None:
    """Limit how far to look ahead, since with a history jobs keep arriving. Raises BadOption."""
    history.span(arguments)
    arguments.hours = arguments.hours or _WEEK_H
    if arguments.hours * 60 > MOST_SLOTS:
        arguments.by = "hour"


def _with_history(report: Report, found: Histogram, events: DataFrame, arguments: argparse.Namespace) -> Histogram:
    """Add the jobs that the history predicts. Without --rate, set it to the rate of the workers in the history."""
    events = events.select(*history.COLUMNS).persist()
    try:
        coming = history.arrivals(events, *history.span(arguments), found.now)
        shown = history.workers(events)
    finally:
        events.unpersist()
    report.note(learnt_from_days=coming.days)
    if shown:
        report.note(workers=round(shown.busy, 1), work_s=round(shown.work_s, 3))
        arguments.rate = arguments.rate or float(f"{shown.rate:.3g}")
    together = history.with_arrivals(found, coming, arguments.hours)
    report.note(arrivals=round(sum(together.together().values()) - sum(found.together().values())))
    return together


def _backlog(found: Histogram, rate: float) -> Backlog:
    return backlog(found.together(), found.width, rate, found.now, sum(found.due_now.values()))


def _note_pending(report: Report, found: Histogram, arguments: argparse.Namespace) -> None:
    due_now = sum(found.due_now.values())
    jobs = sum(found.together().values()) + due_now + found.later
    report.note(topic=arguments.topic, jobs=jobs, due_now=due_now)
    if arguments.hours:
        report.note(later=found.later)


def _note(report: Report, found: Histogram, expected: Backlog | None, arguments: argparse.Namespace) -> None:
    total = found.together()
    busiest = _busiest(found, total)[:_BUSIEST]
    report.note(by=found.by)
    if total:
        peak = busiest[0]
        report.note(last=instant(max(total)), peak_at=instant(peak), peak_jobs=_jobs(total[peak]))
        # The rate at which no slot's jobs spill into the next.
        report.note(needed_jobs_per_s=_rate(found, peak, total[peak]))
    if expected:
        report.note(rate=arguments.rate, **_expectation(expected, arguments.rate))
    report.note(
        busiest=[
            {"at": instant(start), "jobs": _jobs(total[start]), "jobs_per_s": _rate(found, start, total[start])}
            for start in busiest
        ],
        topics=[_topic(found, name) for name in dict.fromkeys([*found.topics, *found.due_now])],
    )
    report.keep(
        histogram=[
            {"topic": name, "at": instant(start), "jobs": _jobs(jobs)}
            for name, slots in found.topics.items()
            for start, jobs in sorted(slots.items())
        ]
    )


def _topic(found: Histogram, name: str) -> dict[str, Any]:
    slots, due_now = found.topics.get(name, {}), found.due_now.get(name, 0)
    peak = next(iter(_busiest(found, slots)), None)
    return {
        "topic": name,
        "jobs": _jobs(sum(slots.values()) + due_now),
        "due_now": due_now,
        "peak_at": "" if peak is None else instant(peak),
        "peak_jobs": 0 if peak is None else _jobs(slots[peak]),
    }


def _expectation(expected: Backlog, rate: float) -> dict[str, Any]:
    at, jobs = expected.most
    if jobs < 1:
        return {"backlog": 0}
    assert expected.worked_off_at is not None
    return {
        "backlog": round(jobs),
        "backlog_at": instant(at),
        "longest_wait_s": round(jobs / rate, 1),
        "worked_off_at": instant(expected.worked_off_at),
    }


def _busiest(found: Histogram, slots: Mapping[int, float]) -> list[int]:
    """The slots, with the most jobs per second first."""
    return sorted(slots, key=lambda start: (-found.rate(start, slots[start]), start))


def _jobs(number: float) -> float:
    """A rounded number of jobs: predicted numbers are not whole."""
    return round(number, 1) if number % 1 else int(number)


def _rate(found: Histogram, start: int, jobs: float) -> float:
    return float(f"{found.rate(start, jobs):.3g}")


if __name__ == "__main__":
    command_line.run(forecast, parser().parse_args())
