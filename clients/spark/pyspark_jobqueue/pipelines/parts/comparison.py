"""Compares expected jobs with those of a queue, by id, and classifies each.

A walk over a topic is not a snapshot: it may miss a job that moves meanwhile. So the tasks check every mismatch again
with `get`, in batches. The answer of `get` decides; it also covers jobs that have ended and are still remembered.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructType

from pyspark_jobqueue.connector.options import Given, Target
from pyspark_jobqueue.connector.service import Answer, Service

if TYPE_CHECKING:
    from pyarrow import RecordBatch


_BATCH = 1000
_FOUND = {"found_state": StringType, "found_topic": StringType, "found_due": LongType, "found_created": LongType}


def look_up(frame: DataFrame, connection: Mapping[str, str]) -> DataFrame:
    """The frame with more columns, which describe the job of each row whose column `asked` is true: `found_state` (null
    for an unknown id), `found_topic`, and `found_due` and `found_created` in unix milliseconds."""
    schema = StructType([*frame.schema.fields])
    for name, kind in _FOUND.items():
        schema = schema.add(name, kind())
    return frame.mapInArrow(functools.partial(_with_answers, Target.of(Given(connection))), schema)


def _with_answers(target: Target, batches: Iterable[RecordBatch]) -> Iterator[RecordBatch]:
    import pyarrow as pa  # noqa: PLC0415 - on the executors

    service = Service(target)
    for batch in batches:
        ids = batch.column("id").to_pylist()
        asked = batch.column("asked").to_pylist()
        known = answers(service, [each for each, wanted in zip(ids, asked, strict=True) if wanted and each is not None])
        found = [known.get(each, {}) if wanted else {} for each, wanted in zip(ids, asked, strict=True)]
        yield pa.RecordBatch.from_arrays(
            [
                *batch.columns,
                pa.array([answer.get("state") for answer in found], pa.string()),
                pa.array([answer.get("topic") for answer in found], pa.string()),
                pa.array([_ms(answer.get("due")) for answer in found], pa.int64()),
                pa.array([_ms(answer.get("created")) for answer in found], pa.int64()),
            ],
            [*batch.schema.names, *_FOUND],
        )
    service.close()


def answers(service: Service, ids: Iterable[str]) -> dict[str, Answer]:
    """The answer of `get` for each known id. Raises like `Service.batch`."""
    import orjson  # noqa: PLC0415 - on the executors

    left, found = list(dict.fromkeys(ids)), {}
    while left:
        asked, later = left[:_BATCH], left[_BATCH:]
        got = service.batch([orjson.dumps({"command": "get", "id": each}) for each in asked])
        # The total size of the bodies in one response is limited: ids beyond the limit are requested again.
        again = [each for each, answer in zip(asked, got, strict=True) if answer.get("code") == "TOO_LARGE"]
        left = again + later
        found.update({each: answer for each, answer in zip(asked, got, strict=True) if answer["success"]})
    return found


def _ms(seconds: Any) -> int | None:
    return None if seconds is None else round(seconds * 1000)


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

    An id that was only in the queue, and whose job has ended since, has no row: this is no fault.
    """
    met = walked.groupBy("id").agg(
        F.first("state").alias("state"),
        F.first(F.unix_millis("due_at")).alias("found"),
        F.first(F.unix_millis("created_at")).alias("created"),
        F.count("*").alias("met"),  # 2 if the job moved during the walk
    )
    both = wanted.join(met, "id", "full_outer")
    fits = _fits(F.col("found"), F.col("created"), tolerance_ms)
    sure = F.col("times").isNotNull() & (F.col("met") == 1) & (F.col("state") != "dead") & fits
    asked = look_up(both.withColumn("asked", ~F.coalesce(sure, F.lit(False))), connection)
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
    """The kind according to `get`. Null for an id that is neither expected nor in the queue."""
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
    """True if a due time is among the expected ones, or none is expected. An expected time that was already past when
    the job was added counts as the time of the add."""

    def near(due: Column) -> Column:
        return F.abs(F.greatest(due, F.when(found == created, created)) - found) <= tolerance_ms

    return (F.size("due") == 0) | F.exists("due", near)


def _ms_rounded_up(moment: Column) -> Column:
    """Unix milliseconds, rounded up as the writer does."""
    return F.unix_millis(moment) + F.when(F.unix_micros(moment) % 1000 == 0, 0).otherwise(1)
