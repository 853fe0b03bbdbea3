"""What is new in an input since the last run: the rows above a high-water mark.

The upper bound is looked up first, and rows, mark and the ids at the mark are all taken below it: what arrives while
the run goes on is for the next one. Where a value comes into the input later than a higher one it is not seen: the
column must not run backwards.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pyspark_jobqueue.errors import BadOption
from pyspark_jobqueue.pipelines.parts.watermark_file import Watermark

MOST_IDS = 5_000
"""So many ids are kept at the mark."""
_TYPES = ("timestamp", "timestamp_ntz", "date", "byte", "short", "integer", "long", "decimal")


@dataclass(frozen=True)
class Increment:
    """`mark` is what to keep when the rows were sent; None where there were never any."""

    rows: DataFrame
    mark: Watermark | None
    without_mark: int
    """Rows whose column is null: they are in no run."""
    too_many_ids: bool = False


def kind_of(frame: DataFrame, column: str) -> str:
    """The type of a watermark column. Raises BadOption for one that cannot be."""
    found = [field for field in frame.schema.fields if field.name.lower() == column.lower()]
    if len(found) != 1:
        raise BadOption(f"--watermark: there is no column {column!r}; there are: {', '.join(frame.columns)}")
    kind = found[0].dataType
    if kind.typeName() not in _TYPES:
        # Strings would be compared as such: 10 below 9, and rows lost without a word.
        raise BadOption(
            f"--watermark must be a timestamp, a date, an integer or a decimal, and {column} is {kind.simpleString()}: "
            "cast it in --sql"
        )
    return kind.simpleString()


def since(frame: DataFrame, identity: Column, topic: str, column: str, before: Watermark | None) -> Increment:
    """The rows that the last run's mark leaves, with `identity` as their id. Raises BadOption."""
    kind = kind_of(frame, column)
    if before is not None and before.type != kind:
        raise BadOption(f"--watermark: {column} was {before.type} when --state was written, and is {kind} now")
    value = frame[f"`{column}`"]
    low = None if before is None else F.lit(before.value).cast(kind)
    seen = frame if low is None else frame.filter((value >= low) | value.isNull())
    told = seen.agg(_text(F.max(value), kind).alias("highest"), F.count_if(value.isNull()).alias("nulls")).first()
    assert told is not None  # an aggregate of all has a row
    if told["highest"] is None:
        return Increment(frame.filter(F.lit(False)), before, told["nulls"])
    highest = _shown(told["highest"], kind)
    high = F.lit(highest).cast(kind)
    ids = [row["id"] for row in _ids_at(frame.filter(value == high), identity).limit(MOST_IDS + 1).collect()]
    too_many = len(ids) > MOST_IDS
    mark = Watermark(topic, column, kind, highest, () if too_many else tuple(sorted(ids)))
    rows = frame.filter(value <= high)
    return Increment(_above(rows, value, identity, before), mark, told["nulls"], too_many)


def _ids_at(rows: DataFrame, identity: Column) -> DataFrame:
    """A null id is none that could be known again: such a row is sent, and refused, each time."""
    return rows.select(identity.alias("id")).filter("id IS NOT NULL").distinct()


def _above(rows: DataFrame, value: Column, identity: Column, before: Watermark | None) -> DataFrame:
    if before is None:
        return rows.filter(value.isNotNull())
    low = F.lit(before.value).cast(before.type)
    known = F.coalesce(identity.isin(list(before.ids)), F.lit(False)) if before.ids else F.lit(False)
    return rows.filter((value > low) | ((value == low) & ~known))


def _text(value: Column, kind: str) -> Column:
    """Of a timestamp microseconds since 1970, which are the same in every time zone."""
    return (F.unix_micros(value) if kind == "timestamp" else value).cast("string")


def _shown(text: str, kind: str) -> str:
    """As it stands in the file: for people, and for a cast."""
    if kind != "timestamp":
        return text
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=int(text))).isoformat()
