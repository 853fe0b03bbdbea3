"""dead: counts dead letters by topic, hour and reason; with --redrive it kicks them, so that they are ready again."""

from __future__ import annotations

import argparse
import time
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import DataFrame, Row, Window
from pyspark.sql import functions as F

from pyspark_jobqueue.connector.options import moment
from pyspark_jobqueue.errors import BadOption
from pyspark_jobqueue.pipelines.parts import command_line, jobs
from pyspark_jobqueue.pipelines.parts.command_line import Report

_MOST_GROUPS = 50
_SAMPLES = 3
_REASON = 80  # characters: reasons that differ only after these count as one
_KIND = ("topic", "hour", "cause", "reason")


def parser() -> argparse.ArgumentParser:
    """All flags of dead."""
    made = command_line.parser("dead", __doc__ or "")
    group = made.add_argument_group("which")
    group.add_argument("--topic", default="*", help="a topic, several with commas, or a pattern with * and ? [all]")
    group.add_argument("--since", metavar="WHEN", help="died since: 2026-11-21T10:00Z, or 90m, 24h, 7d ago [any time]")
    group.add_argument(
        "--reason", metavar="PATTERN", help="like SQL's LIKE: %% for any characters, _ for one [any reason or none]"
    )
    group = made.add_argument_group("redrive")
    group.add_argument("--redrive", action="store_true", help="kick the jobs found: ready again, with fresh tries")
    group.add_argument("--rate", type=int, metavar="JOBS/S", help="kicks per second at most [no limit]")
    return made


def dead(arguments: argparse.Namespace) -> Report:
    """Run once. The report never counts as a failure. Raises BadOption, Refused, Unreachable."""
    since = moment(arguments.since, time.time(), "--since") if arguments.since else None
    _check(arguments)
    report = Report("dead")
    spark = command_line.begin(arguments)
    options = {**command_line.connection(arguments), "what": "dead", "topic": arguments.topic}
    letters = spark.read.format("jobqueue").options(**options).load()
    found = _chosen(letters, since, arguments.reason).persist()  # so that exactly the reported jobs are kicked
    try:
        _note(_groups(found), report)
        if arguments.redrive:
            _redrive(found, arguments, report)
    finally:
        found.unpersist()
    return report


def _check(arguments: argparse.Namespace) -> None:
    if arguments.rate is not None and not arguments.redrive:
        raise BadOption("--rate requires --redrive")
    jobs.check_rate(arguments.rate)


def _chosen(letters: DataFrame, since: float | None, reason: str | None) -> DataFrame:
    # In microseconds instead of a timestamp, so that the session's time zone does not matter.
    died = F.unix_micros("dead_since")
    if since is not None:
        letters = letters.filter(died >= round(since * 1e6))
    if reason is not None:
        letters = letters.filter(F.col("reason").like(reason))
    hour = F.floor(died / 3_600_000_000) * 3600
    return letters.select(
        "id", "topic", "dead_since", hour.alias("hour"), "cause", F.left("reason", F.lit(_REASON)).alias("reason")
    )


def _groups(found: DataFrame) -> DataFrame:
    """The number of jobs in each group, and the ids of the few jobs that died first."""
    place = F.row_number().over(Window.partitionBy(*_KIND).orderBy("dead_since", "id"))
    sample = F.when(F.col("place") <= _SAMPLES, F.col("id"))
    return (
        found.withColumn("place", place)
        .groupBy(*_KIND)
        .agg(F.count("id").alias("jobs"), F.sort_array(F.collect_list(sample)).alias("samples"))
    )


def _note(groups: DataFrame, report: Report) -> None:
    (sums,) = groups.agg(F.count("jobs").alias("groups"), F.sum("jobs").alias("jobs")).collect()
    report.note(dead=sums["jobs"] or 0, groups=sums["groups"])
    largest = groups.orderBy(F.desc("jobs"), *_KIND).limit(_MOST_GROUPS).collect()
    report.note(largest=[_described(row) for row in largest])


def _described(row: Row) -> dict[str, Any]:
    hour = datetime.fromtimestamp(row["hour"], UTC).strftime("%Y-%m-%dT%H:00Z")
    texts = {"topic": row["topic"], "hour": hour, "cause": row["cause"], "reason": row["reason"] or ""}
    return {**texts, "jobs": row["jobs"], "samples": " ".join(row["samples"])}


def _redrive(found: DataFrame, arguments: argparse.Namespace, report: Report) -> None:
    """Kick the jobs. A job that was kicked or deleted meanwhile is refused, which does no harm."""
    kicks = found.select("id", F.lit("kick").alias("action"))
    totals = jobs.write(kicks, {**command_line.connection(arguments), "onError": "skip"}, arguments.rate)
    if totals:
        report.note(kicked=totals["accepted"], refused=totals["refused"])


if __name__ == "__main__":
    command_line.run(dead, parser().parse_args())
