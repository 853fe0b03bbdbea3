"""The history that a pipeline reads: events of a journal, or of the files of `jobqueue journal export`."""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
from datetime import UTC, datetime

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from pyspark_jobqueue.connector import journal
from pyspark_jobqueue.connector.times import moment
from pyspark_jobqueue.errors import BadOption
from pyspark_jobqueue.pipelines.parts import expressions

_DAY_S = 86_400


def add_flags(parser: argparse.ArgumentParser, since: str, about: str | None = None) -> None:
    """--history, --history-file, --since and --until. `since`: the default. `about`: what it is for, where it may be
    left out."""
    group = parser.add_argument_group("history", about)
    default = "" if about else f" [{journal.VARIABLE}]"
    either = group.add_mutually_exclusive_group()
    either.add_argument("--history", metavar="URL|FOLDER", help=f"a journal, or the folder of its export{default}")
    either.add_argument("--history-file", metavar="FILE", help="file with the URL of a journal")
    group.add_argument(
        "--since", default=since, metavar="WHEN", help="from when: 2026-11-21T10:00Z, or 90m, 24h, 7d ago [%(default)s]"
    )
    group.add_argument("--until", metavar="WHEN", help="until when [now]")


def is_given(arguments: argparse.Namespace) -> bool:
    return bool(arguments.history or arguments.history_file)


def span(arguments: argparse.Namespace) -> tuple[float, float]:
    """From when to when, in unix seconds. Raises BadOption."""
    now = time.time()
    since = moment(arguments.since, now, "--since")
    until = moment(arguments.until, now, "--until") if arguments.until else now
    if since >= until:
        raise BadOption("--since must be before --until")
    return since, until


def read(spark: SparkSession, arguments: argparse.Namespace, topics: str = "*") -> DataFrame:
    """The events in that span, but for those that a failover took back. `topics`: names or patterns, separated by
    commas. Raises BadOption, Unreachable."""
    since, until = span(arguments)
    where = arguments.history
    if where and not journal.is_url(where):
        events = _files(spark, where, since, until).filter(_is_of(F.col("topic"), topics))
    else:
        if where and journal.Journal(where).shown != where:
            print("warning: everybody on this machine can see the password in --history", file=sys.stderr)
        file = arguments.history_file
        named = {"journal": where or (None if file else os.environ.get(journal.VARIABLE)), "journalFile": file}
        options = {"topic": topics, "since": _shown(since), "until": _shown(until), **named}
        given = {name: text for name, text in options.items() if text}
        events = spark.read.format("jobqueue").options(what="history", **given).load()
    at = F.unix_micros("time")  # so that the session's time zone does not matter
    return events.filter((at >= round(since * 1e6)) & (at < round(until * 1e6)) & ~F.col("forgotten"))


def _files(spark: SparkSession, folder: str, since: float, until: float) -> DataFrame:
    try:
        events = spark.read.parquet(f"{folder.rstrip('/')}/events")
    except PySparkException as error:
        cure = "; `jobqueue journal export --out FOLDER` writes one" if "PATH_NOT_FOUND" in str(error) else ""
        raise BadOption(f"--history: {expressions.first_line(error)}{cure}") from None
    # A day's folder is by the ids of its entries, which are later than their events where Redis's clock went back.
    first, last = (datetime.fromtimestamp(each, UTC).date() for each in (since, until + _DAY_S))
    return events.filter((F.col("date") >= F.lit(first)) & (F.col("date") <= F.lit(last)))


def _is_of(topic: Column, topics: str) -> Column:
    """Whether a topic is one of some names and patterns."""
    if topics == "*":
        return F.lit(True)
    parts = [re.escape(each.strip()).replace(r"\*", ".*").replace(r"\?", ".") for each in topics.split(",")]
    return topic.rlike(f"^(?:{'|'.join(parts)})$")


def _shown(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()
