"""Events in Kafka's schema: how they are parsed, and which action each asks for."""

from __future__ import annotations

import argparse

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StringType, StructType

from pyspark_jobqueue.errors import BadOption
from pyspark_jobqueue.pipelines.parts import expressions, jobs

ACTIONS = ("add", "delete", "update", "ignore")
PLACE = ("topic", "partition", "offset", "timestamp")
"""The columns that determine the order of events."""
_BROKEN = "_does_not_fit"


def add_flags(parser: argparse.ArgumentParser) -> None:
    """The flags that say what an event is, and what it means."""
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
    """Adds `id`, `action`, the fields of the job, and `problem`: why a row is bad, else null. Keeps the event's place.

    Raises BadOption.
    """
    identity = jobs.id_of(frame, arguments)
    event = expressions.column(frame, "--event", arguments.event).cast("string")
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
        raise BadOption(f"--value-schema: {expressions.first_line(error)}") from None
    if not isinstance(made, StructType):
        raise BadOption(f"--value-schema must name columns, like 'order_id BIGINT, event STRING', not {text!r}")
    return StructType([*made.fields]).add(_BROKEN, StringType())  # from_json puts there what it could not parse


def _action(event: Column, known: dict[str, str]) -> Column:
    others = known.get("*")
    found = [F.when(event == name, action) for name, action in known.items() if name != "*"]
    return F.coalesce(*found, F.lit(others).cast("string"))
