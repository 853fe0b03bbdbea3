"""sla: how late jobs were delivered, and how long they waited for a worker, by topic and hour.

Lateness is the time from a job's due time to its first delivery; waiting is the time from ready to each delivery.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from pyspark_jobqueue.pipelines.parts import command_line, history
from pyspark_jobqueue.pipelines.parts.command_line import Report, instant

_MOST_SHOWN = 20
_ACCURACY = 10_000  # of percentiles: 1 / 10,000 of the rank
_FIGURES = ("late", "waited")


def parser() -> argparse.ArgumentParser:
    """All flags of sla."""
    made = command_line.parser("sla", "How late jobs were delivered, and how long they waited for a worker.")
    made.add_argument("--topic", default="*", help="a topic, several with commas, or a pattern with * and ? [all]")
    history.add_flags(made, "7d")
    command_line.add_plot_flag(made)
    return made


def sla(arguments: argparse.Namespace) -> Report:
    """Run once. The report never counts as a failure. Raises BadOption, Unreachable."""
    report = Report("sla")
    history.span(arguments)
    drawing = command_line.charts(arguments.plot)
    events = history.read(command_line.begin(arguments), arguments, arguments.topic)
    found = _deliveries(events).persist()
    try:
        groups = [row.asDict() for row in _groups(found).collect()]
        worst = found.filter("late > 0").orderBy(F.desc("late"), "id").limit(_MOST_SHOWN).collect()
    finally:
        found.unpersist()
    _note(report, groups, worst)
    if drawing:
        drawing.draw_lateness(Path(arguments.plot), [row for row in groups if row["hour"] is not None])
    return report


def _deliveries(events: DataFrame) -> DataFrame:
    """A row for each delivery, with its spans in seconds."""
    is_first, was_ready = F.col("deliveries") == 1, F.col("state_before") == "ready"
    return events.filter(F.col("what").isin("delivered", "taken")).select(
        "topic",
        "id",
        "due",
        "worker",
        "time",
        (F.floor(F.unix_micros("time") / 3_600_000_000) * 3600).alias("hour"),
        F.when(is_first, _seconds_since("due")).alias("late"),
        F.when(was_ready, _seconds_since("was")).alias("waited"),
    )


def _seconds_since(name: str) -> Column:
    """The seconds since the time in a column; 0 if a job was delivered before that time."""
    return F.greatest(F.unix_micros("time") - F.unix_micros(name), F.lit(0)) / 1e6


def _groups(found: DataFrame) -> DataFrame:
    """The figures for each topic and hour, for each topic (hour null), and for all topics (topic null too)."""
    figures = [F.count("*").alias("deliveries"), F.count("late").alias("first_deliveries")]
    for name in _FIGURES:
        shares = F.percentile_approx(name, [0.5, 0.99], _ACCURACY)
        figures += [shares[0].alias(f"{name}_p50"), shares[1].alias(f"{name}_p99"), F.max(name).alias(f"{name}_most")]
    return found.rollup("topic", "hour").agg(*figures, F.max_by("id", "late").alias("worst"))


def _note(report: Report, groups: list[dict[str, Any]], worst: Iterable[Row]) -> None:
    (total,) = [row for row in groups if row["topic"] is None] or [{"deliveries": 0}]
    topics = [row for row in groups if row["hour"] is None and row["topic"] is not None]
    hours = [row for row in groups if row["hour"] is not None]
    report.note(**{name: value for name, value in _shown(total).items() if name not in ("topic", "hour", "worst")})
    report.note(topics=[_without(_shown(row), "hour") for row in sorted(topics, key=_lateness)[:_MOST_SHOWN]])
    report.note(worst_hours=[_shown(row) for row in sorted(hours, key=_lateness)[:_MOST_SHOWN]])
    report.note(
        worst=[
            {
                "id": row["id"],
                "topic": row["topic"],
                "due": instant(row["due"].timestamp()),
                "late_s": row["late"],
                "worker": row["worker"] or "",
            }
            for row in worst
        ]
    )
    report.keep(hours=[_shown(row) for row in sorted(hours, key=lambda row: (row["topic"], row["hour"]))])


def _lateness(row: dict[str, Any]) -> tuple[float, float, str]:
    """A sort key that puts the latest first."""
    return -(row["late_p99"] or 0), -(row["waited_p99"] or 0), str(row["topic"])


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    hour, worst = row.get("hour"), row.get("worst")
    spans = {name: round(value, 6) for name, value in row.items() if name.startswith(_FIGURES) and value is not None}
    return {**row, **spans, "hour": "" if hour is None else instant(hour), "worst": worst or ""}


def _without(row: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key != name}


if __name__ == "__main__":
    command_line.run(sla, parser().parse_args())
