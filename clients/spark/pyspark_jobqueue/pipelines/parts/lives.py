"""Compares expected jobs with their lives in a history, by id, and classifies each job."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

FAULTS = ("never_added", "undelivered", "late", "twice", "after_cancel", "dead")
KINDS = ("ok", "waiting", "cancelled", "restored", *FAULTS)
_DELIVERED, _GIVEN_BACK = ("delivered", "taken"), ("released", "buried")


def compared(wanted: DataFrame, events: DataFrame, tolerance_ms: int, end: float) -> DataFrame:
    """One row per expected id: `id`, `kinds` (several faults may apply), `state`, `expected` (due times), `delivered`
    (its first delivery), `deliveries`, `lives`, `times`. `end`: the end of the history, in unix seconds."""
    joined = wanted.join(_jobs(events), "id", "left")
    return joined.select(
        "id",
        _kinds(tolerance_ms, round(end * 1000)).alias("kinds"),
        "state",
        F.transform("due", F.timestamp_millis).alias("expected"),
        F.timestamp_micros("delivered").alias("delivered"),
        "deliveries",
        "lives",
        "times",
    )


def _lives(events: DataFrame) -> DataFrame:
    """A row for each life of a job: times in us (`job_due` in ms), and counts."""

    def number(*what: str) -> Column:
        return F.count_if(F.col("what").isin(*what))

    at = F.unix_micros("time")
    is_delivery = F.col("what").isin(*_DELIVERED)
    place = F.struct("ms", "branch", "seq", "n")  # a branch comes after the events that it replaces
    return (
        events.filter("id > '' AND id < '~'")  # not the events of topics (no id) and schedules (~name)
        .groupBy("id", "life")
        .agg(
            F.max_by("state_after", place).alias("state"),
            F.max_by(F.unix_millis("due"), place).alias("job_due"),
            F.min(F.when(is_delivery, at)).alias("delivered"),
            F.max(F.when(is_delivery, at)).alias("last_delivered"),
            F.min(F.when(F.col("state_after") == "deleted", at)).alias("cancelled"),
            (number(*_DELIVERED) - number("delivery undone")).alias("deliveries"),
            number(*_GIVEN_BACK).alias("given_back"),
            number("restored").alias("restored"),
        )
    )


def _jobs(events: DataFrame) -> DataFrame:
    """A row for each id, aggregated over its lives."""
    return (
        _lives(events)
        .groupBy("id")
        .agg(
            F.max_by("state", "life").alias("state"),
            F.max_by("job_due", "life").alias("job_due"),
            F.unix_millis(F.max("life")).alias("added"),
            F.min("delivered").alias("delivered"),
            F.sum("deliveries").alias("deliveries"),
            F.sum("given_back").alias("given_back"),
            F.sum("restored").alias("restored"),
            F.count("*").alias("lives"),
            F.max(F.coalesce(F.col("last_delivered") > F.col("cancelled"), F.lit(False))).alias("after_cancel"),
        )
    )


def _kinds(tolerance_ms: int, end_ms: int) -> Column:
    """Every kind that applies to a job."""
    latest = F.greatest(F.coalesce(F.array_max("due"), F.col("job_due")), F.col("added")) + tolerance_ms
    was_delivered = F.col("delivered").isNotNull()
    is_over = F.col("state").isin("deleted", "finished", "dead")
    said = [
        ("never_added", F.col("lives").isNull()),
        ("undelivered", ~was_delivered & ~is_over & (latest < end_ms)),
        ("late", was_delivered & (F.col("delivered") > latest * 1000)),
        # Deliveries that the worker returned do not count. Those whose lease ended do: the work may have been done.
        ("twice", F.col("deliveries") - F.col("given_back") > 1),
        ("after_cancel", F.col("after_cancel")),
        ("dead", F.col("state") == "dead"),
        ("restored", F.col("restored") > 0),
    ]
    found = F.array_compact(F.array(*(F.when(condition, kind) for kind, condition in said)))
    else_ = (
        F.when(was_delivered, "ok").when(F.col("state").isin("deleted", "finished"), "cancelled").otherwise("waiting")
    )
    return F.when(F.size(found) > 0, found).otherwise(F.array(else_))
