"""Events in Kafka's schema: how they are parsed, which action each requests, and how a micro-batch of them is folded.

The events for an id become one change. The job ends up as if the events had been sent one after another, but changes
that a later event undoes are skipped. So it does not matter where one micro-batch ends and the next begins.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StringType, StructType

from pyspark_jobqueue.errors import BadOption
from pyspark_jobqueue.pipelines.parts import command_line, jobs

ACTIONS = ("add", "delete", "update", "ignore")
PLACE = ("topic", "partition", "offset", "timestamp")
"""The columns that determine the order of events."""
_BROKEN = "_does_not_fit"


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags that define what an event contains, and which action it requests."""
    group = parser.add_argument_group("events")
    group.add_argument(
        "--value-schema",
        required=True,
        metavar="DDL",
        help='schema of the JSON in value, like "order_id BIGINT, event STRING, pay_until TIMESTAMP"; `v` in EXPR',
    )
    group.add_argument("--event", required=True, metavar="EXPR", help='what happened, like "v.event"')
    group.add_argument(
        "--on",
        action="append",
        required=True,
        metavar="EVENT=ACTION",
        help=f"what to do for an event: {', '.join(ACTIONS)}; repeatable. '*=ignore' covers all others [bad rows]",
    )


def rules(given: list[str]) -> dict[str, str]:
    """Actions by event. Raises BadOption."""
    found: dict[str, str] = {}
    for pair in given:
        event, equals, action = pair.rpartition("=")
        if not (equals and event and action in ACTIONS):
            raise BadOption(f"--on must be EVENT=ACTION with one of {', '.join(ACTIONS)}, not {pair!r}")
        if found.setdefault(event, action) != action:
            raise BadOption(f"--on {event} is given twice, with different actions")
    return found


def parsed(stream: DataFrame, value_schema: str) -> DataFrame:
    """Kafka's columns, with key and value as strings, and the parsed value as `v`. Raises BadOption."""
    missing = [name for name in ("key", "value", *PLACE) if name not in stream.columns]
    if missing:
        raise BadOption(f"--format: the rows lack {', '.join(missing)}, which Kafka's have")
    value = F.col("value").cast("string")
    made = F.from_json(value, _schema(value_schema), {"columnNameOfCorruptRecord": _BROKEN})
    return stream.select(F.col("key").cast("string").alias("key"), value.alias("value"), *PLACE, made.alias("v"))


def judged(frame: DataFrame, arguments: argparse.Namespace) -> DataFrame:
    """Adds `id`, `action`, the fields of the job, and `problem`: why a row is bad, or null for a good row. Keeps the
    event's place.

    Raises BadOption.
    """
    identity = jobs.id_of(frame, arguments)
    event = command_line.column(frame, "--event", arguments.event).cast("string")
    action, body = _action(event, rules(arguments.on)), jobs.body(frame, arguments)
    v = F.col("v")
    problem = F.coalesce(
        F.when(v.isNull() | v[_BROKEN].isNotNull(), "the value is not JSON of --value-schema"),
        F.when(event.isNull(), "--event is null"),
        F.when(action.isNull(), F.concat(F.lit("no --on for event "), event)),
        F.when(identity.isNull() & (action != "ignore"), "--id is null"),
    )
    if arguments.callback_url is not None and body is not None:
        problem = F.coalesce(problem, F.when((action == "add") & body.isNull(), "--callback-url is null"))
    fields = [*jobs.timing(frame, arguments), *([body] if body is not None else [])]
    return frame.select(identity, action.alias("action"), problem.alias("problem"), *fields, "key", "value", *PLACE)


def _schema(text: str) -> StructType:
    try:
        made = DataType.fromDDL(text)
    except PySparkException as error:
        raise BadOption(f"--value-schema: {command_line.first_line(error)}") from None
    if not isinstance(made, StructType):
        raise BadOption(f"--value-schema must name columns, like 'order_id BIGINT, event STRING', not {text!r}")
    return StructType([*made.fields]).add(_BROKEN, StringType())  # from_json puts values that it cannot parse there


def _action(event: Column, known: dict[str, str]) -> Column:
    others = known.get("*")
    found = [F.when(event == name, action) for name, action in known.items() if name != "*"]
    return F.coalesce(*found, F.lit(others).cast("string"))


def folded(events: DataFrame, fields: Sequence[str]) -> DataFrame:
    """One row per id, from events with `id`, `action` (add, delete, update), their place, and the fields of jobs:

    - `before`: the first action: delete, update (with the fields in `old`), or null for none;
    - `added`: true if an add follows, with the fields in `new`, which include the fields of later updates;
    - `updated`: true if updates follow the add; `later` has only their fields, for a job that turns out to exist.

    An update after a delete would find no job, and is dropped. A repeated add changes nothing.
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
    """Compare by offset, which is Kafka's order, or by timestamp across partitions, which have no common order."""

    def place(event: Column) -> Column:
        time = F.when(scattered, event["timestamp"])
        return F.struct(time, event["topic"], event["partition"], event["offset"])

    return F.when(place(left) < place(right), -1).when(place(left) > place(right), 1).otherwise(0)


class _Folded:
    """The result so far, as columns. At the start, only `before` may be set."""

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
        """The event's fields, or the older field where the event's field is null."""
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
