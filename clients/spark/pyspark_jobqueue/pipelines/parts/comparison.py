"""Compares expected jobs with those of a queue, by id, and classifies each.

A walk over a topic is not a snapshot. So whatever differs from what is expected is looked up again by `get`. That
answer counts, and it also covers what a walk cannot see: jobs that have ended and are still remembered.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pyspark_jobqueue.pipelines.parts import lookup

FAULTS = ("missing", "unexpected", "wrong_due", "wrong_topic", "dead")
KINDS = ("ok", "finished", "deleted", *FAULTS)
_ENDED = ("finished", "deleted")


def expected(rows: DataFrame, identity: Column, due_at: Column | None) -> DataFrame:
    """One row per id: how often it occurs (`times`), and when it is due (`due`, a list of unix milliseconds: rows with
    the same id may disagree)."""
    due = F.lit(None).cast("bigint") if due_at is None else _ms_rounded_up(due_at)
    given = rows.select(identity.alias("id"), due.alias("due")).filter("id IS NOT NULL")
    return given.groupBy("id").agg(F.count("*").alias("times"), F.collect_set("due").alias("due"))


def compared(
    wanted: DataFrame, walked: DataFrame, topic: str, tolerance_ms: int, connection: Mapping[str, str]
) -> DataFrame:
    """One row per id on either side: `id`, `kind`, `state`, `expected` and `found` (due times), `times`.

    An id that only the queue had, and that has ended since, has no row: that is as expected.
    """
    met = walked.groupBy("id").agg(
        F.first("state").alias("state"),
        F.first(F.unix_millis("due_at")).alias("found"),
        F.first(F.unix_millis("created_at")).alias("created"),
        F.count("*").alias("met"),  # 2 if it moved during the walk
    )
    both = wanted.join(met, "id", "full_outer")
    fits = _fits(F.col("found"), F.col("created"), tolerance_ms)
    sure = F.col("times").isNotNull() & (F.col("met") == 1) & (F.col("state") != "dead") & fits
    asked = lookup.look_up(both.withColumn("asked", ~F.coalesce(sure, F.lit(False))), connection)
    judged = asked.withColumn("kind", F.when(F.col("asked"), _kind(topic, tolerance_ms)).otherwise("ok"))
    return judged.filter("kind IS NOT NULL").select(
        "id",
        "kind",
        F.when(F.col("asked"), F.col("found_state")).otherwise(F.col("state")).alias("state"),
        F.transform("due", F.timestamp_millis).alias("expected"),
        F.timestamp_millis(F.when(F.col("asked"), F.col("found_due")).otherwise(F.col("found"))).alias("found"),
        "times",
    )


def _kind(topic: str, tolerance_ms: int) -> Column:
    """The kind according to `get`. Null for an id that is neither expected nor there."""
    state, wanted = F.col("found_state"), F.col("times").isNotNull()
    there = state.isNotNull() & ~state.isin(*_ENDED) & (F.col("found_topic") == topic)
    return (
        F.when(~wanted, F.when(there, "unexpected"))
        .when(state.isNull(), "missing")
        .when(F.col("found_topic") != topic, "wrong_topic")
        .when(state.isin(*_ENDED) | (state == "dead"), state)
        .when(_fits(F.col("found_due"), F.col("found_created"), tolerance_ms), "ok")
        .otherwise("wrong_due")
    )


def _fits(found: Column, created: Column, tolerance_ms: int) -> Column:
    """Whether a due time is among the expected ones. A time already past when the job was added counts as that
    moment."""

    def near(due: Column) -> Column:
        return F.abs(F.greatest(due, F.when(found == created, created)) - found) <= tolerance_ms

    return (F.size("due") == 0) | F.exists("due", near)


def _ms_rounded_up(moment: Column) -> Column:
    """Unix milliseconds, rounded up like the writer does."""
    return F.unix_millis(moment) + F.when(F.unix_micros(moment) % 1000 == 0, 0).otherwise(1)
