"""Rows as jobs: the flags that say by SQL expressions what becomes of a row, and the columns that they make for the
writer."""

from __future__ import annotations

import argparse
import re

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pyspark_jobqueue.errors import BadOption
from pyspark_jobqueue.pipelines import expressions

LADDER = "15,15,30,180,600,1200,1800,3600"
"""The back-off of callbacks: a receiver that is down for a while must not use up all tries at once."""
RETENTION_S = 86_400
"""A day: a run that is repeated within it finds also the jobs that ended, and makes none of them a second time."""
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_METHOD = re.compile(r"[A-Z]{1,20}")


def add_flags(parser: argparse.ArgumentParser, *, due: bool = True) -> None:
    """All that make a job of a row; with `due` one of --due-at and --delay must be there."""
    group = parser.add_argument_group("jobs", "EXPR is an expression of Spark's SQL over the columns of the input.")
    group.add_argument("--topic", required=True, help="the topic of the jobs")
    group.add_argument("--id", required=True, metavar="EXPR", help="like \"concat('order-close:', order_id)\"")
    either = group.add_mutually_exclusive_group(required=due)
    either.add_argument("--due-at", metavar="EXPR", help="a timestamp")
    either.add_argument("--delay", metavar="EXPR", help="seconds from when the service takes the job")
    group.add_argument("--body", metavar="EXPR", help="of any type; becomes JSON [null]")
    group.add_argument("--body-format", choices=["string", "json"], help="what a body of type string is [string]")
    _add_callback(parser)
    _add_values(parser)


def _add_callback(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("scheduled callbacks", "In place of --body; `jobqueue callbacks` does them.")
    group.add_argument("--callback-url", metavar="EXPR", help="where to")
    group.add_argument("--method", default="POST", help="[%(default)s]")
    group.add_argument("--header", action="append", default=[], metavar="'NAME: VALUE'", help="may be repeated")
    group.add_argument("--payload", metavar="EXPR", help="of any type; becomes JSON [no payload]")


def _add_values(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("options of the jobs", "As in the service's command add.")
    group.add_argument("--ttr", type=float, metavar="SECONDS")
    group.add_argument("--priority", type=int, metavar="0..9")
    group.add_argument("--tries", type=int)
    group.add_argument("--backoff", metavar="SECONDS,…", help=f"[of callbacks {LADDER}]")
    group.add_argument("--ttl", type=float, metavar="SECONDS")
    group.add_argument(
        "--retention",
        type=float,
        default=RETENTION_S,
        metavar="SECONDS",
        help="how long an ended job is remembered, so that a repetition does not make it anew [%(default)s, a day]",
    )


def check(arguments: argparse.Namespace) -> None:
    """Raises BadOption for what is wrong without a look at the input."""
    if arguments.callback_url is None:
        for flag in ("header", "payload"):
            if getattr(arguments, flag):
                raise BadOption(f"--{flag} goes with --callback-url")
    elif arguments.body or arguments.body_format:
        raise BadOption("either --body or --callback-url, not both")
    if not _METHOD.fullmatch(arguments.method):
        raise BadOption(f"--method must be like POST, not {arguments.method!r}")
    _headers(arguments.header)
    _delays(arguments.backoff or LADDER)


def options(arguments: argparse.Namespace) -> dict[str, str]:
    """What the writer must know beside the columns."""
    return {"topic": arguments.topic, **({"bodyFormat": arguments.body_format} if arguments.body_format else {})}


def id_of(frame: DataFrame, arguments: argparse.Namespace) -> Column:
    """The id, as a string whatever it was: a number is as good as an id. Raises BadOption."""
    return expressions.column(frame, "--id", arguments.id).cast("string").alias("id")


def due_at(frame: DataFrame, arguments: argparse.Namespace) -> Column:
    """The due time of --due-at. Raises BadOption for anything but a timestamp."""
    made, kind = expressions.typed(frame, "--due-at", arguments.due_at)
    if kind.typeName() != "timestamp":
        # A date or a time without a zone becomes a moment only by a decision on the zone, which is the user's.
        text = f"CAST({arguments.due_at} AS TIMESTAMP)"
        raise BadOption(
            f"--due-at must be a timestamp, not {kind.simpleString()}; {text} takes the session's time zone"
        )
    return made.alias("due_at")


def timing(frame: DataFrame, arguments: argparse.Namespace) -> list[Column]:
    """`due_at` or `delay`, whichever was given."""
    if arguments.due_at is not None:
        return [due_at(frame, arguments)]
    if arguments.delay is not None:
        return [expressions.column(frame, "--delay", arguments.delay).alias("delay")]
    return []


def body(frame: DataFrame, arguments: argparse.Namespace) -> Column | None:
    """The body; of a callback null where its URL is null. None where no flag asks for a body. Raises BadOption."""
    if arguments.body is not None:
        return expressions.column(frame, "--body", arguments.body).alias("body")
    return _callback(frame, arguments) if arguments.callback_url is not None else None


def values(arguments: argparse.Namespace) -> list[Column]:
    """The columns that are the same for all jobs."""
    ladder = LADDER if arguments.callback_url is not None else None
    made = [
        F.lit(given).alias(name)
        for name in ("ttr", "priority", "tries", "ttl", "retention")
        if (given := getattr(arguments, name)) is not None
    ]
    if backoff := arguments.backoff or ladder:
        made.append(F.array(*map(F.lit, _delays(backoff))).alias("backoff"))
    return made


def frame_of(frame: DataFrame, arguments: argparse.Namespace) -> DataFrame:
    """The input as the writer takes it: an add a row. A callback without a URL fails the run. Raises BadOption."""
    identity, told = id_of(frame, arguments), body(frame, arguments)
    columns = [identity, *timing(frame, arguments)]
    if told is not None:
        columns.append(_demanded(told, identity) if arguments.callback_url is not None else told)
    return frame.select(*columns, *values(arguments))


def _callback(frame: DataFrame, arguments: argparse.Namespace) -> Column:
    url, kind = expressions.typed(frame, "--callback-url", arguments.callback_url)
    if kind.typeName() != "string":
        raise BadOption(f"--callback-url must be a string, not {kind.simpleString()}")
    headers = [F.lit(text) for pair in _headers(arguments.header).items() for text in pair]
    fields = [
        url.alias("url"),
        F.lit(arguments.method).alias("method"),
        F.create_map(*headers).cast("map<string,string>").alias("headers"),
    ]
    if arguments.payload is not None:
        fields.append(expressions.column(frame, "--payload", arguments.payload).alias("payload"))
    return F.when(url.isNotNull(), F.struct(*fields)).alias("body")


def _demanded(told: Column, identity: Column) -> Column:
    """A job without a URL would only be found to be useless when it is due."""
    error = F.concat(F.lit("--callback-url is null for the id "), F.coalesce(identity, F.lit("null")))
    return F.coalesce(told, F.raise_error(error)).alias("body")


def _headers(given: list[str]) -> dict[str, str]:
    """Name to value. Raises BadOption, without the value: it may be a secret."""
    found: dict[str, str] = {}
    for pair in given:
        name, colon, value = pair.partition(":")
        if not (colon and _NAME.fullmatch(name)):
            raise BadOption(f"--header must be like 'Name: value'; {name!r} is no name with a colon behind it")
        if not value.strip().isprintable():
            raise BadOption(f"--header {name}: its value may have printable characters only")
        if name.lower() in map(str.lower, found):
            raise BadOption(f"--header {name} is given twice")
        found[name] = value.strip()
    return found


def _delays(text: str) -> list[float]:
    try:
        found = [float(part) for part in text.split(",")]
    except ValueError:
        found = []
    if not found or not all(0 <= each <= 315_360_000 for each in found):
        raise BadOption(f"--backoff must be seconds with commas between them, like {LADDER}; not {text!r}")
    return found
