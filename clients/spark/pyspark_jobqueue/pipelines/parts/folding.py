"""Folds the events of each id in a micro-batch into one change.

The job ends up as if the events had been sent one after another, but what would be undone right away is skipped. So it
does not matter where one micro-batch ends and the next begins.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pyspark_jobqueue.pipelines.parts.events import PLACE


def folded(events: DataFrame, fields: Sequence[str]) -> DataFrame:
    """One row per id, from events with `id`, `action` (add, delete, update), their place, and the fields of jobs:

    - `before`: what to do first: delete, update (with the fields in `old`), or null;
    - `added`: whether to add afterwards, with the fields in `new`, which include those of later updates;
    - `updated`: whether there were later updates; `later` has only their fields, for a job that turns out to exist.

    An update after a delete would find nothing, and is dropped. A repeated add changes nothing.
    """
    event, partition = F.struct(*PLACE, "action", *fields), F.struct("topic", "partition")
    together = events.groupBy("id").agg(
        F.collect_list(event).alias("events"), (F.min(partition) != F.max(partition)).alias("scattered")
    )
    ordered = F.array_sort("events", lambda left, right: _compared(left, right, F.col("scattered")))
    types = {name: events.schema[name].dataType for name in fields}
    blank = F.struct(*(F.lit(None).cast(kind).alias(name) for name, kind in types.items()))
    folded = F.aggregate(ordered, _Folded(F.lit(None).cast("string"), blank).column(), _step(fields, blank))
    return together.select("id", folded.alias("sum")).select("id", "sum.*")


def _compared(left: Column, right: Column, scattered: Column) -> Column:
    """By offset, which is Kafka's order; by timestamp across partitions, which have no common order."""

    def place(event: Column) -> Column:
        time = F.when(scattered, event["timestamp"])
        return F.struct(time, event["topic"], event["partition"], event["offset"])

    return F.when(place(left) < place(right), -1).when(place(left) > place(right), 1).otherwise(0)


class _Folded:
    """The result so far, as columns; at the start it has nothing but `before`."""

    def __init__(self, before: Column, blank: Column) -> None:
        self._parts = {"before": before, "added": F.lit(False), "updated": F.lit(False)}
        self._parts |= dict.fromkeys(("old", "new", "later"), blank)

    @classmethod
    def of(cls, column: Column) -> _Folded:
        made = cls(column["before"], column)
        made._parts = {name: column[name] for name in made._parts}
        return made

    def with_(self, **parts: Column) -> Column:
        """A struct of the result, with some parts replaced."""
        return F.struct(*(column.alias(name) for name, column in {**self._parts, **parts}.items()))

    def column(self) -> Column:
        return self.with_()


def _step(fields: Sequence[str], blank: Column) -> Callable[[Column, Column], Column]:
    """The function that applies one more event to the result so far."""

    def over(event: Column, older: Column) -> Column:
        """The event's fields, or the older ones where it has none."""
        return F.struct(*(F.coalesce(event[name], older[name]).alias(name) for name in fields))

    def step(done: Column, event: Column) -> Column:
        so_far = _Folded.of(done)
        fresh = F.struct(*(event[name].alias(name) for name in fields))
        of_add = F.when(done["added"], done).otherwise(so_far.with_(added=F.lit(True), new=fresh))
        behind_add = {"new": over(event, done["new"]), "later": over(event, done["later"])}
        of_update = (
            F.when(done["added"], so_far.with_(updated=F.lit(True), **behind_add))
            .when(done["before"] == "delete", done)
            .otherwise(so_far.with_(before=F.lit("update"), old=over(event, done["old"])))
        )
        of_delete = _Folded(F.lit("delete"), blank).column()
        return (
            F.when(event["action"] == "delete", of_delete)
            .when(event["action"] == "update", of_update)
            .otherwise(of_add)
        )

    return step
