"""Expected jobs beside those of a queue, by id, and what is to be said of each.

A walk over a topic is no snapshot. So whatever is not as expected in the walk is asked for once more by `get`: that
answer counts, and tells also what a walk does not see, the jobs that ended and are remembered.
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
    """A row an id: how often it is there (`times`), and when it is due (`due`, a list of unix milliseconds: rows with
    the same id may disagree)."""
    due = F.lit(None).cast("bigint") if due_at is None else _ms_rounded_up(due_at)
    given = rows.select(identity.alias("id"), due.alias("due")).filter("id IS NOT NULL")
    return given.groupBy("id").agg(F.count("*").alias("times"), F.collect_set("due").alias("due"))


def compared(
    wanted: DataFrame, walked: DataFrame, topic: str, tolerance_ms: int, connection: Mapping[str, str]
) -> DataFrame:
    """`id`, `kind`, `state`, `expected` and `found` (times when it is due), `times`; a row each id on either side.

    An id that only the queue has, and that ended since, is in none of them: it is as expected.
    """
    met = walked.groupBy("id").agg(
        F.first("state").alias("state"),
        F.first(F.unix_millis("due_at")).alias("found"),
        F.first(F.unix_millis("created_at")).alias("created"),
        F.count("*").alias("met"),  # twice where it moved during the walk
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
    """By what `get` said. Null for an id that is not expected, and not there."""
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
    """Whether a due time is one of the expected. What was past when the job was added is due from then on."""

    def near(due: Column) -> Column:
        return F.abs(F.greatest(due, F.when(found == created, created)) - found) <= tolerance_ms

    return (F.size("due") == 0) | F.exists("due", near)


def _ms_rounded_up(moment: Column) -> Column:
    """As the writer does."""
    return F.unix_millis(moment) + F.when(F.unix_micros(moment) % 1000 == 0, 0).otherwise(1)
