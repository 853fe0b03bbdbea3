"""Scheduled callbacks: job bodies that `jobqueue callbacks` carries out.

What it would refuse once a job is due is refused here already, as far as that can be known beforehand.
"""

from __future__ import annotations

import argparse
import re

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pyspark_jobqueue.errors import BadOption
from pyspark_jobqueue.pipelines.parts import expressions

LADDER = "15,15,30,180,600,1200,1800,3600"
"""The backoff of callbacks: a receiver that is down for a while must not use up all tries at once."""
_WITHOUT_PAYLOAD = ("GET", "HEAD")
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"[\t\x20-\x7e]*")
# Headers that belong to the connection, and those that only the worker sets.
_RESERVED = re.compile(
    r"host|content-length|transfer-encoding|connection|keep-alive|te|trailer|upgrade|expect|(webhook|jobqueue|proxy)-.*",
    re.IGNORECASE,
)


def add_flags(parser: argparse.ArgumentParser) -> None:
    """--callback-url, --method, --header and --payload."""
    group = parser.add_argument_group("scheduled callbacks", "Instead of --body; `jobqueue callbacks` makes the calls.")
    group.add_argument("--callback-url", metavar="EXPR", help="the URL to call")
    methods = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
    group.add_argument("--method", choices=methods, help="[POST]")
    group.add_argument("--header", action="append", default=[], metavar="'NAME: VALUE'", help="repeatable")
    group.add_argument("--payload", metavar="EXPR", help="a value of any type, sent as JSON [no payload]")


def check(arguments: argparse.Namespace) -> None:
    """Raises BadOption for mistakes that show without the input."""
    for flag in ("method", "header", "payload"):
        if getattr(arguments, flag) and arguments.callback_url is None:
            raise BadOption(f"--{flag} requires --callback-url")
    if arguments.payload is not None and arguments.method in _WITHOUT_PAYLOAD:
        raise BadOption(f"--payload: a {arguments.method} request has none")
    _headers(arguments.header)


def column(frame: DataFrame, arguments: argparse.Namespace) -> Column:
    """The body; null where the URL is null. Raises BadOption."""
    url, kind = expressions.typed(frame, "--callback-url", arguments.callback_url)
    if kind.typeName() != "string":
        raise BadOption(f"--callback-url must be a string, not {kind.simpleString()}")
    headers = [F.lit(text) for pair in _headers(arguments.header).items() for text in pair]
    fields = [
        url.alias("url"),
        F.lit(arguments.method or "POST").alias("method"),
        F.create_map(*headers).cast("map<string,string>").alias("headers"),
    ]
    if arguments.payload is not None:
        fields.append(expressions.column(frame, "--payload", arguments.payload).alias("payload"))
    return F.when(url.isNotNull(), F.struct(*fields)).alias("body")


def _headers(given: list[str]) -> dict[str, str]:
    """Values by name. Raises BadOption, whose message omits the value: it may be a secret."""
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
