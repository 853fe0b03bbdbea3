"""Events of Kafka's schema as changes of jobs: what each asks for, and what those of a micro-batch come to together.

All events of one id are folded as if they had been sent one after another, but that what would be undone at once is not
done at all. So it does not matter where one micro-batch ends and the next begins.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StringType, StructType

from pyspark_jobqueue.errors import BadOption
from pyspark_jobqueue.pipelines import expressions, jobs

ACTIONS = ("add", "delete", "update", "ignore")
_PLACE = ("topic", "partition", "offset", "timestamp")
_BROKEN = "_does_not_fit"


def add_flags(parser: argparse.ArgumentParser) -> None:
    """What an event is, and what it means."""
    group = parser.add_argument_group("events")
    group.add_argument(
        "--value-schema",
        required=True,
        metavar="DDL",
        help='of the JSON in value, like "order_id BIGINT, event STRING, pay_until TIMESTAMP"; it is `v` in EXPR',
    )
    group.add_argument("--event", required=True, metavar="EXPR", help='what happened, like "v.event"')
    group.add_argument(
        "--on",
        action="append",
        required=True,
        metavar="EVENT=ACTION",
        help=f"what to do then: {', '.join(ACTIONS)}; may be repeated. '*=ignore' is for all others [a bad row]",
    )


def rules(given: list[str]) -> dict[str, str]:
    """Action by event. Raises BadOption."""
    found: dict[str, str] = {}
    for pair in given:
        event, equals, action = pair.rpartition("=")
        if not (equals and event and action in ACTIONS):
            raise BadOption(f"--on must be EVENT=ACTION with one of {', '.join(ACTIONS)}, not {pair!r}")
        if found.setdefault(event, action) != action:
            raise BadOption(f"--on {event} is given twice, with different actions")
    return found


def parsed(stream: DataFrame, value_schema: str) -> DataFrame:
    """`v` beside Kafka's columns; key and value as strings. Raises BadOption."""
    missing = [name for name in ("key", "value", *_PLACE) if name not in stream.columns]
    if missing:
        raise BadOption(f"--format: its rows have no {', '.join(missing)}, which Kafka's have")
    value = F.col("value").cast("string")
    made = F.from_json(value, _schema(value_schema), {"columnNameOfCorruptRecord": _BROKEN})
    return stream.select(F.col("key").cast("string").alias("key"), value.alias("value"), *_PLACE, made.alias("v"))


def judged(frame: DataFrame, arguments: argparse.Namespace) -> DataFrame:
    """`id`, `action`, the fields of the job and the event's place; and in `problem` why a row is a bad one, else null.

    Raises BadOption.
    """
    identity = jobs.id_of(frame, arguments)
    event = expressions.column(frame, "--event", arguments.event).cast("string")
    action, body = _action(event, rules(arguments.on)), jobs.body(frame, arguments)
    v = F.col("v")
    problem = F.coalesce(
        F.when(v.isNull() | v[_BROKEN].isNotNull(), "the value is no JSON of --value-schema"),
        F.when(event.isNull(), "--event is null"),
        F.when(action.isNull(), F.concat(F.lit("no --on for the event "), event)),
        F.when(identity.isNull() & (action != "ignore"), "--id is null"),
    )
    if arguments.callback_url is not None and body is not None:
        problem = F.coalesce(problem, F.when((action == "add") & body.isNull(), "--callback-url is null"))
    fields = [*jobs.timing(frame, arguments), *([body] if body is not None else [])]
    return frame.select(identity, action.alias("action"), problem.alias("problem"), *fields, "key", "value", *_PLACE)


def folded(events: DataFrame, fields: Sequence[str]) -> DataFrame:
    """A row an id: what to do first (`before`: delete, update or null, with the fields in `old`), and whether to add
    then (`added`, with the fields in `new`).

    An update of an id that the same events add becomes a part of that add; one of an id that they delete finds nothing,
    and is dropped. A repeated add changes nothing.
    """
    event, partition = F.struct(*_PLACE, "action", *fields), F.struct("topic", "partition")
    together = events.groupBy("id").agg(
        F.collect_list(event).alias("events"), (F.min(partition) != F.max(partition)).alias("scattered")
    )
    ordered = F.array_sort("events", lambda left, right: _compared(left, right, F.col("scattered")))
    return together.select("id", F.aggregate(ordered, _nothing(events, fields), _step(fields)).alias("sum")).select(
        "id", "sum.*"
    )


def _schema(text: str) -> StructType:
    try:
        made = DataType.fromDDL(text)
    except PySparkException as error:
        raise BadOption(f"--value-schema: {expressions.first_line(error)}") from None
    if not isinstance(made, StructType):
        raise BadOption(f"--value-schema must name columns, like 'order_id BIGINT, event STRING', not {text!r}")
    return StructType([*made.fields]).add(_BROKEN, StringType())  # where from_json tells what it could not read


def _action(event: Column, known: dict[str, str]) -> Column:
    others = known.get("*")
    found = [F.when(event == name, action) for name, action in known.items() if name != "*"]
    return F.coalesce(*found, F.lit(others).cast("string"))


def _compared(left: Column, right: Column, scattered: Column) -> Column:
    """By offset, which is Kafka's order; across partitions, where there is none, by time."""

    def place(event: Column) -> Column:
        time = F.when(scattered, event["timestamp"])
        return F.struct(time, event["topic"], event["partition"], event["offset"])

    return F.when(place(left) < place(right), -1).when(place(left) > place(right), 1).otherwise(0)


def _nothing(events: DataFrame, fields: Sequence[str]) -> Column:
    blank = F.struct(*(F.lit(None).cast(events.schema[name].dataType).alias(name) for name in fields))
    return _sum(F.lit(None).cast("string"), F.lit(False), blank, blank)


def _sum(before: Column, added: Column, old: Column, new: Column) -> Column:
    return F.struct(before.alias("before"), added.alias("added"), old.alias("old"), new.alias("new"))


def _step(fields: Sequence[str]) -> Callable[[Column, Column], Column]:
    """What one more event makes of the sum so far."""

    def over(event: Column, older: Column) -> Column:
        return F.struct(*(F.coalesce(event[name], older[name]).alias(name) for name in fields))

    def step(done: Column, event: Column) -> Column:
        before, added, old, new = (done[name] for name in ("before", "added", "old", "new"))
        fresh = F.struct(*(event[name].alias(name) for name in fields))
        none = F.struct(*(F.when(F.lit(False), event[name]).alias(name) for name in fields))
        of_update = (
            F.when(added, _sum(before, added, old, over(event, new)))
            .when(before == "delete", done)
            .otherwise(_sum(F.lit("update"), added, over(event, old), new))
        )
        of_add = F.when(added, done).otherwise(_sum(before, F.lit(True), old, fresh))
        return (
            F.when(event["action"] == "delete", _sum(F.lit("delete"), F.lit(False), none, none))
            .when(event["action"] == "update", of_update)
            .otherwise(of_add)
        )

    return step
