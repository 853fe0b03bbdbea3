"""reconcile: compares the jobs that rows call for with those in the queue, and finds missing, wrong, dead or unexpected
ones."""

from __future__ import annotations

import argparse
import sys

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from pyspark_jobqueue.errors import BadOption
from pyspark_jobqueue.pipelines.parts import comparison, flags, inputs, jobs, writes
from pyspark_jobqueue.pipelines.parts.report import Report

_SAMPLES = 5


def parser() -> argparse.ArgumentParser:
    """All flags of reconcile."""
    made = flags.parser("reconcile", __doc__ or "")
    inputs.add_flags(made)
    jobs.add_flags(made, due=False)
    group = made.add_argument_group("comparison")
    group.add_argument(
        "--tolerance", type=int, default=0, metavar="MS", help="how far a due time may be off [%(default)s]"
    )
    group.add_argument("--out", metavar="FOLDER", help="a new folder for all rows that are not ok, as JSON by kind")
    group = writes.add_flags(made)
    group.add_argument("--repair", action="store_true", help="add what is missing, and nothing else")
    return made


def reconcile(arguments: argparse.Namespace) -> Report:
    """Run once. The report counts the rows of each kind. The run fails if any are missing (unless all were added now),
    unexpected, wrong or dead."""
    _check(arguments)
    report = Report("reconcile")
    spark = flags.begin(arguments)
    rows = inputs.read(spark, arguments)
    identity = jobs.id_of(rows, arguments)
    due_at = jobs.due_at(rows, arguments) if arguments.due_at else None
    planned = jobs.frame_of(rows, arguments)  # reports its errors before any data is read
    walk = spark.read.format("jobqueue").options(**flags.connection(arguments), topic=arguments.topic).load()
    wanted = comparison.expected(rows, identity, due_at)
    found = comparison.compared(
        wanted, walk, arguments.topic, arguments.tolerance, flags.connection(arguments)
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


def _check(arguments: argparse.Namespace) -> None:
    inputs.check(arguments)
    jobs.check(arguments)
    if arguments.tolerance < 0:
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
    report.note(**counted.asDict(), without_id=without_id.count(), samples=_samples(found))


def _samples(found: DataFrame) -> list[dict[str, str]]:
    """A few ids of each kind that deserves a look."""
    first = Window.partitionBy("kind").orderBy("id")
    rows = found.filter(~F.col("kind").isin("ok", "finished")).withColumn("number", F.row_number().over(first))
    return [
        {"kind": row["kind"], "id": row["id"], "state": row["state"] or ""}
        for row in rows.filter(F.col("number") <= _SAMPLES).orderBy("kind", "id").collect()
    ]


def _repair(found: DataFrame, planned: DataFrame, arguments: argparse.Namespace, report: Report) -> None:
    """Add the missing jobs through the writer. One that somebody else has added meanwhile counts as repaired,
    one that somebody else has added and deleted meanwhile as cancelled."""
    if report.figures["missing_past_due"]:
        print(
            f"warning: {report.figures['missing_past_due']:,} of the missing jobs were due before now. Any that "
            "have ended and are no longer remembered will run again",
            file=sys.stderr,
        )
    missing = found.filter("kind = 'missing'").select("id")
    options = {
        **flags.connection(arguments),
        **jobs.options(arguments),
        **writes.options(arguments),
        "onError": "skip",
    }
    figures = writes.write(planned.join(missing, "id", "left_semi").dropDuplicates(["id"]), options)
    report.note(
        repaired=figures.get("accepted", 0) + figures.get("existing", 0),
        **{name: figures.get(name, 0) for name in ("cancelled", "refused")},
    )


if __name__ == "__main__":
    flags.run(reconcile, parser().parse_args())
