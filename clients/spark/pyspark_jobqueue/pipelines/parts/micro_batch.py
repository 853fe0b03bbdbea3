"""Processing of one micro-batch of events. All of it is repeatable: Spark runs a micro-batch again, with the same rows,
unless Spark has recorded that the micro-batch finished."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pyspark_jobqueue.connector.write_task import COUNTS
from pyspark_jobqueue.errors import JobQueueError
from pyspark_jobqueue.pipelines.parts import command_line, comparison, events, jobs


def send(rows: DataFrame, name: str, arguments: argparse.Namespace) -> Counter[str]:
    """Send the changes that the events (`rows`, from `events.parsed`) amount to; return the counts.

    `name` is the name of the folder for bad rows. Each micro-batch has its own name, and keeps it when repeated. Raises
    JobQueueError for a bad row without --bad-rows.
    """
    judged = events.judged(rows, arguments).persist()
    try:
        figures = _counted(judged)
        if figures["unreadable"]:
            _set_aside(judged.filter("problem IS NOT NULL"), name, arguments, figures["unreadable"])
        return figures + _sent(judged.filter("problem IS NULL AND action <> 'ignore'"), arguments)
    finally:
        judged.unpersist()


def _counted(judged: DataFrame) -> Counter[str]:
    counts = judged.selectExpr(
        "count(*) AS events",
        "count_if(problem IS NOT NULL) AS unreadable",
        "count_if(problem IS NULL AND action = 'ignore') AS ignored",
    ).first()
    assert counts is not None  # an aggregate over all rows has one row
    return Counter(counts.asDict())


def _set_aside(bad: DataFrame, name: str, arguments: argparse.Namespace, number: int) -> None:
    bad = bad.select("problem", "topic", "partition", "offset", "timestamp", "key", "value")
    if arguments.bad_rows is None:
        row = bad.first()
        assert row is not None  # there is at least one
        raise JobQueueError(
            f"{number:,} bad rows, one at offset {row['offset']} in partition {row['partition']} of {row['topic']} "
            f"({row['problem']}); --bad-rows sets such rows aside"
        )
    bad.write.mode("overwrite").json(f"{arguments.bad_rows.rstrip('/')}/unreadable/{name}")


def _sent(changes: DataFrame, arguments: argparse.Namespace) -> Counter[str]:
    fields = [name for name in ("due_at", "delay", "body") if name in changes.columns]
    folded = events.folded(changes.select("id", "action", *events.PLACE, *fields), fields)
    folded = folded.persist()
    try:
        counts = folded.selectExpr("count(before) AS changes", "count_if(added) AS adds").first()
        assert counts is not None  # an aggregate over all rows has one row
        figures: Counter[str] = Counter()
        if counts["changes"]:
            figures += _changed(folded.filter("before IS NOT NULL").select("id", "before", "old.*"), arguments)
        if counts["adds"]:
            figures += _added(folded.filter("added"), fields, arguments)
        return figures
    finally:
        folded.unpersist()


def _changed(rows: DataFrame, arguments: argparse.Namespace) -> Counter[str]:
    """Send deletes and updates. They are sent before the adds, which may have the same ids."""
    written = _written(rows.withColumnRenamed("before", "action"), "changes", arguments)
    written["changed"] = written.pop("accepted", 0)
    return written


def _added(rows: DataFrame, fields: Sequence[str], arguments: argparse.Namespace) -> Counter[str]:
    """Send adds. An add keeps an existing job, since the add may be a repeat. So existing jobs are looked up first:

    - An add that finds a deleted job came after the delete, and must take effect: it replaces the tombstone.
    - If an add finds a delayed job, the updates that followed the add are sent as updates.
    """
    looked = comparison.look_up(rows.selectExpr("*", "true AS asked"), command_line.connection(arguments)).persist()
    try:
        state = F.coalesce("found_state", F.lit("none"))
        late = F.col("updated") & (state == "delayed")
        chosen = [F.when(late, F.col(f"later.{name}")).otherwise(F.col(f"new.{name}")).alias(name) for name in fields]
        sent = looked.select(
            "id", F.when(late, "update").otherwise("add").alias("action"), *chosen, state.alias("state")
        )
        recreated = sent.filter("state = 'deleted'").drop("state")
        written = _written(sent.filter("state <> 'deleted'").drop("state"), "adds", arguments)
        if recreated.first():
            written += _written(recreated, "adds-anew", arguments, ifExists="replace")
        written["added"] = written.pop("accepted", 0)
        return written
    finally:
        looked.unpersist()


def _written(rows: DataFrame, part: str, arguments: argparse.Namespace, **more: str) -> Counter[str]:
    """Write a part of the micro-batch. Each part has its own folder for refused rows, because the paths inside depend
    only on the micro-batch and the partition."""
    options = {
        **command_line.connection(arguments),
        **jobs.options(arguments),
        **jobs.write_options(arguments),
        "onError": f"{arguments.bad_rows.rstrip('/')}/refused/{part}" if arguments.bad_rows else "fail",
        **more,
    }
    counts = jobs.write(rows.select("*", *jobs.values(arguments)), options)
    return Counter({name: counts.get(name, 0) for name in COUNTS if name != "rows"})
