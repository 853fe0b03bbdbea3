"""Turns rows into jobs: the flags with SQL expressions for the fields, and the columns that they give the writer."""

from __future__ import annotations

import argparse
import re

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pyspark_jobqueue.errors import BadOption
from pyspark_jobqueue.pipelines.parts import callback, expressions

RETENTION_S = 86_400
"""A day: a run repeated within it recognises jobs that have ended, and creates none of them again."""

_TOPIC = re.compile(r"[A-Za-z0-9._\-:/@#+=%]{1,255}")


def add_flags(parser: argparse.ArgumentParser, *, due: bool = True) -> None:
    """The flags that turn a row into a job. `due`: whether one of --due-at and --delay is required."""
    group = parser.add_argument_group("jobs", "EXPR is a Spark SQL expression over the columns of the input.")
    group.add_argument("--topic", required=True, help="the topic of the jobs")
    group.add_argument("--id", required=True, metavar="EXPR", help="like \"concat('example-close-order:', order_id)\"")
    either = group.add_mutually_exclusive_group(required=due)
    either.add_argument("--due-at", metavar="EXPR", help="a timestamp")
    either.add_argument("--delay", metavar="EXPR", help="seconds from the moment the service accepts the job")
    group.add_argument("--body", metavar="EXPR", help="a value of any type, sent as JSON [null]")
    group.add_argument("--body-format", choices=["string", "json"], help="what a body of type string holds [string]")
    callback.add_flags(parser)
    _add_values(parser)


def _add_values(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("options of the jobs", "See the service's command add.")
    group.add_argument("--ttr", type=float, metavar="SECONDS")
    group.add_argument("--priority", type=int, metavar="0..9")
    group.add_argument("--tries", type=int)
    group.add_argument("--backoff", metavar="SECONDS,…", help=f"[for callbacks: {callback.LADDER}]")
    group.add_argument("--ttl", type=float, metavar="SECONDS")
    group.add_argument(
        "--retention",
        type=float,
        default=RETENTION_S,
        metavar="SECONDS",
        help="how long an ended job is remembered, so that a repeat does not create it again [%(default)s, a day]",
    )


def check(arguments: argparse.Namespace) -> None:
    """Raises BadOption for mistakes that show without the input."""
    if not _TOPIC.fullmatch(arguments.topic):  # a read would take `*` and `,` to mean several topics
        raise BadOption(
            f"--topic must be 1 to 255 characters from A-Z a-z 0-9 . _ - : / @ # + = %XX, not {arguments.topic!r}"
        )
    if arguments.callback_url is not None and (arguments.body or arguments.body_format):
        raise BadOption("--body and --callback-url exclude each other")
    if arguments.body_format and arguments.body is None:
        raise BadOption("--body-format requires --body")
    callback.check(arguments)
    if arguments.backoff is not None:
        _delays(arguments.backoff)


def options(arguments: argparse.Namespace) -> dict[str, str]:
    """The writer's options that belong to jobs."""
    return {"topic": arguments.topic, **({"bodyFormat": arguments.body_format} if arguments.body_format else {})}


def id_of(frame: DataFrame, arguments: argparse.Namespace) -> Column:
    """The id, cast to a string, since a number is a fine id too. Raises BadOption."""
    return expressions.column(frame, "--id", arguments.id).cast("string").alias("id")


def due_at(frame: DataFrame, arguments: argparse.Namespace) -> Column:
    """The due time of --due-at. Raises BadOption for anything but a timestamp."""
    made, kind = expressions.typed(frame, "--due-at", arguments.due_at)
    if kind.typeName() != "timestamp":
        # A date or a time without a zone needs a zone to become an instant, and that choice is the user's.
        text = f"CAST({arguments.due_at} AS TIMESTAMP)"
        raise BadOption(f"--due-at must be a timestamp, not {kind.simpleString()}; {text} uses the session's time zone")
    return made.alias("due_at")


def timing(frame: DataFrame, arguments: argparse.Namespace) -> list[Column]:
    """The column `due_at` or `delay`, whichever was given."""
    if arguments.due_at is not None:
        return [due_at(frame, arguments)]
    if arguments.delay is not None:
        return [expressions.column(frame, "--delay", arguments.delay).alias("delay")]
    return []


def body(frame: DataFrame, arguments: argparse.Namespace) -> Column | None:
    """The body; for a callback, null where its URL is null. None if no flag asks for a body. Raises BadOption."""
    if arguments.body is not None:
        return expressions.column(frame, "--body", arguments.body).alias("body")
    return callback.column(frame, arguments) if arguments.callback_url is not None else None


def values(arguments: argparse.Namespace) -> list[Column]:
    """The columns whose value is the same for all jobs."""
    ladder = callback.LADDER if arguments.callback_url is not None else None
    made = [
        F.lit(given).alias(name)
        for name in ("ttr", "priority", "tries", "ttl", "retention")
        if (given := getattr(arguments, name)) is not None
    ]
    if backoff := arguments.backoff or ladder:
        made.append(F.array(*map(F.lit, _delays(backoff))).alias("backoff"))
    return made


def frame_of(frame: DataFrame, arguments: argparse.Namespace) -> DataFrame:
    """The frame for the writer: one add per row. A callback without a URL fails the run. Raises BadOption."""
    identity, content = id_of(frame, arguments), body(frame, arguments)
    columns = [identity, *timing(frame, arguments)]
    if content is not None:
        columns.append(_required(content, identity) if arguments.callback_url is not None else content)
    return frame.select(*columns, *values(arguments))


def _required(content: Column, identity: Column) -> Column:
    """The body, or an error: nobody would notice that a job lacks its URL until it is due."""
    error = F.concat(F.lit("--callback-url is null for id "), F.coalesce(identity, F.lit("null")))
    return F.coalesce(content, F.raise_error(error)).alias("body")


def _delays(text: str) -> list[float]:
    try:
        found = [float(part) for part in text.split(",")]
    except ValueError:
        found = []
    if not found or not all(0 <= each <= 315_360_000 for each in found):
        raise BadOption(f"--backoff must be seconds separated by commas, like {callback.LADDER}; not {text!r}")
    return found
