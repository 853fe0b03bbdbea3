"""reconcile: compares the jobs that rows call for with those in the queue, and finds missing, wrong, dead or unexpected
ones; or with a history, and finds those that were never added, or delivered late or twice."""

from __future__ import annotations

import argparse
import sys

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from pyspark_jobqueue.errors import BadOption
from pyspark_jobqueue.pipelines.parts import command_line, comparison, history, inputs, jobs, lives
from pyspark_jobqueue.pipelines.parts.command_line import Report

_SAMPLES = 5
_LATE_MS = 1000


def parser() -> argparse.ArgumentParser:
    """All flags of reconcile."""
    made = command_line.parser("reconcile", __doc__ or "")
    inputs.add_flags(made)
    jobs.add_flags(made, due=False)
    group = made.add_argument_group("comparison")
    group.add_argument(
        "--tolerance", type=int, metavar="MS", help="how far a due time may be off [0]; how late is late [1000]"
    )
    group.add_argument("--out", metavar="FOLDER", help="a new folder for all rows that are not ok, as JSON by kind")
    group = jobs.add_write_flags(made)
    group.add_argument("--repair", action="store_true", help="add what is missing, and nothing else")
    history.add_flags(made, "7d", "compare with it instead of the queue")
    return made


def reconcile(arguments: argparse.Namespace) -> Report:
    """Run once. The report counts the rows of each kind. The run fails if any are missing (unless all were added now),
    unexpected, wrong or dead; or, with a history, if any were never added, never delivered, late, delivered twice or
    after a cancel, or are dead."""
    _check(arguments)
    return _with_history(arguments) if history.is_given(arguments) else _with_queue(arguments)


def _with_queue(arguments: argparse.Namespace) -> Report:
    report = Report("reconcile")
    spark = command_line.begin(arguments)
    rows = inputs.read(spark, arguments)
    identity = jobs.id_of(rows, arguments)
    due_at = jobs.due_at(rows, arguments) if arguments.due_at else None
    planned = jobs.frame_of(rows, arguments)  # reports its errors before any data is read
    walk = spark.read.format("jobqueue").options(**command_line.connection(arguments), topic=arguments.topic).load()
    wanted = comparison.expected(rows, identity, due_at)
    found = comparison.compared(
        wanted, walk, arguments.topic, arguments.tolerance or 0, command_line.connection(arguments)
    ).persist()
    try:
        _note(found, rows.filter(identity.isNull()), report)
        if arguments.out:
            found.filter("kind <> 'ok'").write.partitionBy("kind").json(arguments.out)
        if arguments.repair and report.figures["missing"]:
            _repair(found, planned, arguments, report)
    finally:
        found.unpersist()
    faults = sum(report.figures[kind] for kind in comparison.FAULTS)
    report.well = faults == report.figures.get("repaired", 0)
    return report


def _with_history(arguments: argparse.Namespace) -> Report:
    report = Report("reconcile")
    spark = command_line.begin(arguments)
    rows = inputs.read(spark, arguments)
    identity = jobs.id_of(rows, arguments)
    wanted = comparison.expected(rows, identity, jobs.due_at(rows, arguments) if arguments.due_at else None)
    events = history.read(spark, arguments, arguments.topic)
    tolerance = _LATE_MS if arguments.tolerance is None else arguments.tolerance
    found = lives.compared(wanted, events, tolerance, history.span(arguments)[1]).persist()
    try:
        counts = {kind: F.count_if(F.array_contains("kinds", kind)).alias(kind) for kind in lives.KINDS}
        (counted,) = found.agg(
            F.count("*").alias("expected"), *counts.values(), F.count_if(F.col("times") > 1).alias("duplicates")
        ).collect()
        each = found.select(F.explode("kinds").alias("kind"), "*").drop("kinds")
        without_id = rows.filter(identity.isNull()).count()
        report.note(**counted.asDict(), without_id=without_id, samples=_samples(each, "ok", "waiting"))
        if arguments.out:
            each.filter("kind <> 'ok'").write.partitionBy("kind").json(arguments.out)
    finally:
        found.unpersist()
    report.well = not any(report.figures[kind] for kind in lives.FAULTS)
    return report


def _check(arguments: argparse.Namespace) -> None:
    inputs.check(arguments)
    jobs.check(arguments)
    history.span(arguments)
    if arguments.repair and history.is_given(arguments):
        raise BadOption("--repair and --history exclude each other: what is missing in the queue can be added")
    if arguments.tolerance is not None and arguments.tolerance < 0:
        raise BadOption("--tolerance must be 0 or more milliseconds")
    if arguments.repair and not (arguments.due_at or arguments.delay):
        raise BadOption("--repair needs --due-at or --delay, to know when the jobs that it adds are due")


def _note(found: DataFrame, without_id: DataFrame, report: Report) -> None:
    counts = {kind: F.count_if(F.col("kind") == kind).alias(kind) for kind in comparison.KINDS}
    past = F.count_if((F.col("kind") == "missing") & (F.array_max("expected") < F.current_timestamp()))
    counted = found.agg(
        F.count_if(F.col("times").isNotNull()).alias("expected"),
        *counts.values(),
        past.alias("missing_past_due"),
        F.count_if(F.col("times") > 1).alias("duplicates"),
    ).first()
    assert counted is not None  # an aggregate over all rows has one row
    report.note(**counted.asDict(), without_id=without_id.count(), samples=_samples(found, "ok", "finished"))


def _samples(found: DataFrame, *fine: str) -> list[dict[str, str]]:
    """A few ids of each kind, except the kinds in `fine`."""
    first = Window.partitionBy("kind").orderBy("id")
    rows = found.filter(~F.col("kind").isin(*fine)).withColumn("number", F.row_number().over(first))
    return [
        {"kind": row["kind"], "id": row["id"], "state": row["state"] or ""}
        for row in rows.filter(F.col("number") <= _SAMPLES).orderBy("kind", "id").collect()
    ]


def _repair(found: DataFrame, planned: DataFrame, arguments: argparse.Namespace, report: Report) -> None:
    """Add the missing jobs through the writer. A job that another client has added meanwhile counts as
    repaired; a job that was added and deleted meanwhile, as cancelled; a job that was added and has died, as dead."""
    if report.figures["missing_past_due"]:
        print(
            f"warning: {report.figures['missing_past_due']:,} of the missing jobs were due before now. Any that "
            "have ended and are no longer remembered will run again",
            file=sys.stderr,
        )
    missing = found.filter("kind = 'missing'").select("id")
    options = {
        **command_line.connection(arguments),
        **jobs.options(arguments),
        **jobs.write_options(arguments),
        "onError": "skip",
    }
    figures = jobs.write(planned.join(missing, "id", "left_semi").dropDuplicates(["id"]), options)
    report.note(
        repaired=figures.get("accepted", 0) + figures.get("existing", 0),
        dead=report.figures["dead"] + figures.get("dead", 0),
        **{name: figures.get(name, 0) for name in ("cancelled", "refused")},
    )


if __name__ == "__main__":
    command_line.run(reconcile, parser().parse_args())
