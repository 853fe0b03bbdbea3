"""Turns rows into jobs, and writes them: flags with SQL expressions for the fields, scheduled callbacks, the write's
totals.

`jobqueue callbacks` makes the calls. A callback that it would refuse once the job is due is already refused here, as
far as this can be checked in advance.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pyspark_jobqueue.connector.write_options import is_traceparent
from pyspark_jobqueue.connector.write_task import COUNTS
from pyspark_jobqueue.errors import BadOption
from pyspark_jobqueue.pipelines.parts import command_line

LADDER = "15,15,30,180,600,1200,1800,3600"
"""The backoff of callbacks: a receiver that is down for a while must not use up all tries at once."""
_WITHOUT_PAYLOAD = ("GET", "HEAD")
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"[\t\x20-\x7e]*")
# Headers that belong to the connection, and headers that only the worker sets.
_RESERVED = re.compile(
    r"host|content-length|transfer-encoding|connection|keep-alive|te|trailer|upgrade|expect|(webhook|jobqueue|proxy)-.*",
    re.IGNORECASE,
)


def add_callback_flags(parser: argparse.ArgumentParser) -> None:
    """--callback-url, --method, --header and --payload."""
    group = parser.add_argument_group("scheduled callbacks", "Instead of --body; `jobqueue callbacks` makes the calls.")
    group.add_argument("--callback-url", metavar="EXPR", help="the URL to call")
    methods = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
    group.add_argument("--method", choices=methods, help="[POST]")
    group.add_argument("--header", action="append", default=[], metavar="'NAME: VALUE'", help="repeatable")
    group.add_argument("--payload", metavar="EXPR", help="a value of any type, sent as JSON [no payload]")


def check_callback(arguments: argparse.Namespace) -> None:
    """Raises BadOption for mistakes that can be found without reading the input."""
    for flag in ("method", "header", "payload"):
        if getattr(arguments, flag) and arguments.callback_url is None:
            raise BadOption(f"--{flag} requires --callback-url")
    if arguments.payload is not None and arguments.method in _WITHOUT_PAYLOAD:
        raise BadOption(f"--payload: a {arguments.method} request has none")
    _headers(arguments.header)


def callback_body(frame: DataFrame, arguments: argparse.Namespace) -> Column:
    """The body of a callback; null where the URL is null. Raises BadOption."""
    url, kind = command_line.typed_column(frame, "--callback-url", arguments.callback_url)
    if kind.typeName() != "string":
        raise BadOption(f"--callback-url must be a string, not {kind.simpleString()}")
    headers = [F.lit(text) for pair in _headers(arguments.header).items() for text in pair]
    fields = [
        url.alias("url"),
        F.lit(arguments.method or "POST").alias("method"),
        F.create_map(*headers).cast("map<string,string>").alias("headers"),
    ]
    if arguments.payload is not None:
        fields.append(command_line.column(frame, "--payload", arguments.payload).alias("payload"))
    return F.when(url.isNotNull(), F.struct(*fields)).alias("body")


def _headers(given: list[str]) -> dict[str, str]:
    """Values by name. Raises BadOption, whose message omits the value, which may be a secret."""
    found: dict[str, str] = {}
    for pair in given:
        name, colon, value = pair.partition(":")
        if not (colon and _NAME.fullmatch(name)):
            raise BadOption(f"--header must be like 'Name: value'; {name!r} is not a name followed by a colon")
        if _RESERVED.fullmatch(name):
            raise BadOption(f"--header {name}: a job may not set this header")
        if not _VALUE.fullmatch(value):
            raise BadOption(f"--header {name}: the value must be printable ASCII")
        if name.lower() in map(str.lower, found):
            raise BadOption(f"--header {name} is given twice")
        found[name] = value.strip()
    return found


RETENTION_S = 86_400
"""A day. A run that is repeated within a day recognises jobs that have ended, and does not create them again."""

_TOPIC = re.compile(r"[A-Za-z0-9._\-:/@#+=%]{1,255}")


def add_flags(parser: argparse.ArgumentParser, *, due: bool = True) -> None:
    """The flags that turn a row into a job. `due`: True if one of --due-at and --delay is required."""
    group = parser.add_argument_group("jobs", "EXPR is a Spark SQL expression over the columns of the input.")
    group.add_argument("--topic", required=True, help="the topic of the jobs")
    group.add_argument("--id", required=True, metavar="EXPR", help="like \"concat('example-close-order:', order_id)\"")
    either = group.add_mutually_exclusive_group(required=due)
    either.add_argument("--due-at", metavar="EXPR", help="a timestamp")
    either.add_argument("--delay", metavar="EXPR", help="seconds from the moment the service accepts the job")
    group.add_argument("--body", metavar="EXPR", help="a value of any type, sent as JSON [null]")
    group.add_argument("--body-format", choices=["string", "json"], help="what a body of type string holds [string]")
    add_callback_flags(parser)
    _add_values(parser)


def _add_values(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("options of the jobs", "See the service's command add.")
    group.add_argument("--ttr", type=float, metavar="SECONDS")
    group.add_argument("--priority", type=int, metavar="0..9")
    group.add_argument("--tries", type=int)
    group.add_argument("--backoff", metavar="SECONDS,…", help=f"[for callbacks: {LADDER}]")
    group.add_argument("--ttl", type=float, metavar="SECONDS")
    group.add_argument(
        "--retention",
        type=float,
        default=RETENTION_S,
        metavar="SECONDS",
        help="how long an ended job is remembered, so that a repeat does not create it again [%(default)s, a day]",
    )


def check(arguments: argparse.Namespace) -> None:
    """Raises BadOption for mistakes that can be found without reading the input."""
    if not _TOPIC.fullmatch(arguments.topic):  # in a read, `*` and `,` would mean several topics
        raise BadOption(
            f"--topic must be 1 to 255 characters from A-Z a-z 0-9 . _ - : / @ # + = %XX, not {arguments.topic!r}"
        )
    if arguments.callback_url is not None and (arguments.body or arguments.body_format):
        raise BadOption("--body and --callback-url exclude each other")
    if arguments.body_format and arguments.body is None:
        raise BadOption("--body-format requires --body")
    check_callback(arguments)
    if arguments.backoff is not None:
        _delays(arguments.backoff)


def options(arguments: argparse.Namespace) -> dict[str, str]:
    """The writer's options that belong to jobs."""
    return {"topic": arguments.topic, **({"bodyFormat": arguments.body_format} if arguments.body_format else {})}


def id_of(frame: DataFrame, arguments: argparse.Namespace) -> Column:
    """The id, cast to a string, since a number is a valid id too. Raises BadOption."""
    return command_line.column(frame, "--id", arguments.id).cast("string").alias("id")


def due_at(frame: DataFrame, arguments: argparse.Namespace) -> Column:
    """The due time of --due-at. Raises BadOption for anything but a timestamp."""
    made, kind = command_line.typed_column(frame, "--due-at", arguments.due_at)
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
        return [command_line.column(frame, "--delay", arguments.delay).alias("delay")]
    return []


def body(frame: DataFrame, arguments: argparse.Namespace) -> Column | None:
    """The body; for a callback, null where its URL is null. None if no flag asks for a body. Raises BadOption."""
    if arguments.body is not None:
        return command_line.column(frame, "--body", arguments.body).alias("body")
    return callback_body(frame, arguments) if arguments.callback_url is not None else None


def values(arguments: argparse.Namespace) -> list[Column]:
    """The columns whose value is the same for all jobs."""
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
    """The frame for the writer: one add per row. A callback without a URL fails the run. Raises BadOption."""
    identity, content = id_of(frame, arguments), body(frame, arguments)
    columns = [identity, *timing(frame, arguments)]
    if content is not None:
        columns.append(_required(content, identity) if arguments.callback_url is not None else content)
    return frame.select(*columns, *values(arguments))


def _required(content: Column, identity: Column) -> Column:
    """The body, or an error if it is null: nobody would notice that a job lacks its URL until the job is due."""
    error = F.concat(F.lit("--callback-url is null for id "), F.coalesce(identity, F.lit("null")))
    return F.coalesce(content, F.raise_error(error)).alias("body")


def _delays(text: str) -> list[float]:
    try:
        found = [float(part) for part in text.split(",")]
    except ValueError:
        found = []
    if not found or not all(0 <= each <= 315_360_000 for each in found):
        raise BadOption(f"--backoff must be seconds separated by commas, like {LADDER}; not {text!r}")
    return found


def add_write_flags(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """--batch-size and --in-flight. Returns their group, so that more can be added."""
    group = parser.add_argument_group("writing")
    group.add_argument("--batch-size", metavar="N", help="jobs per request [1000]")
    group.add_argument("--in-flight", metavar="N", help="concurrent requests per task [4]")
    return group


def write_options(arguments: argparse.Namespace) -> dict[str, str]:
    """The writer's options that these flags set, and the trace that the environment names, as OpenTelemetry does."""
    given = {"batchSize": arguments.batch_size, "inFlight": arguments.in_flight}
    trace = {name: os.environ.get(name.upper()) for name in ("traceparent", "tracestate")}
    if is_traceparent(trace["traceparent"] or ""):  # otherwise nobody has asked for one: the standard says to ignore it
        given |= {name: text or None for name, text in trace.items()}
    return {name: text for name, text in given.items() if text is not None}


def check_rate(rate: int | None) -> None:
    """Raises BadOption for an invalid --rate."""
    if rate is not None and rate < 1:
        raise BadOption(f"--rate must be at least 1, not {rate}")


def write(frame: DataFrame, options: Mapping[str, str], rate: int | None = None) -> dict[str, int]:
    """Write; return the `COUNTS` and `rows_per_second`, or an empty dict if the driver is remote (Spark Connect).

    `rate` limits the rows per second of the whole write. A single task then sends all rows, since several tasks could
    not keep the rate exactly.
    """
    if rate is not None:
        frame, options = frame.repartition(1), {**options, "rowsPerSecondPerTask": str(rate)}
    with tempfile.TemporaryDirectory(prefix="jobqueue-") as folder:
        frame.write.format("jobqueue").options(**options).option("reportPath", folder).mode("append").save()
        totals = [json.loads(path.read_text()) for path in Path(folder).glob("*.json")]
    return {name: totals[0][name] for name in (*COUNTS, "rows_per_second")} if totals else {}
