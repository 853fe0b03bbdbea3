"""The input of a pipeline: a path, a table, or an SQL query over either."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from pyspark_jobqueue import session
from pyspark_jobqueue.errors import BadOption
from pyspark_jobqueue.pipelines.parts import command_line

# CSV as most programs write it: names in the first line, a quote within quotes doubled.
_CSV = {"header": "true", "escape": '"'}
VIEW = "input"
"""The name of the view through which --sql sees the rows of --from."""
_BY_ENDING = {".parquet": "parquet", ".csv": "csv", ".json": "json", ".jsonl": "json", ".orc": "orc"}


def add_flags(parser: argparse.ArgumentParser) -> None:
    """--from, --format, --option, --sql and --sql-file."""
    group = parser.add_argument_group("input")
    about = "a path, or a table that Spark knows"
    group.add_argument("--from", dest="source", type=source, metavar="PATH|TABLE", help=about)
    add_format(group, None, "parquet, csv, json, jdbc or any other that Spark knows [by the path's ending]")
    either = group.add_mutually_exclusive_group()
    either.add_argument("--sql", metavar="TEXT", help=f"a query; the rows of --from are the view `{VIEW}`")
    either.add_argument("--sql-file", metavar="FILE", help="a file that holds the query")


def source(text: str) -> str:
    """Check the value of --from, for argparse, which reports an error here before it reports missing flags. Raises
    ArgumentTypeError for a path that Spark would look for on this machine, and that does not exist."""
    is_path = "/" in text or Path(text).suffix.lower() in _BY_ENDING
    is_elsewhere = ":" in text or "HADOOP_CONF_DIR" in os.environ or session.is_submitted()
    if is_path and not is_elsewhere and not set("*?[{") & set(text) and not Path(text).exists():
        raise argparse.ArgumentTypeError(f"there is no file or folder {text!r} in {Path.cwd()}")
    return text


def add_format(group: argparse._ArgumentGroup, default: str | None, about: str) -> None:
    """--format and --option, which `stream` has too."""
    group.add_argument("--format", default=default, help=about)
    group.add_argument(
        "--option", action="append", default=[], metavar="NAME=VALUE", help="an option of the format; repeatable"
    )


def options(arguments: argparse.Namespace) -> dict[str, str]:
    """The options given by --option. Raises BadOption."""
    found = {}
    for pair in arguments.option:
        name, equals, text = pair.partition("=")
        if not (name and equals):
            # Without the value, which may be a password.
            raise BadOption(f"--option must be NAME=VALUE; {name!r} has no =" if name else "--option has no name")
        found[name] = text
    return found


def check(arguments: argparse.Namespace) -> None:
    """Raises BadOption for flags that exclude each other, before a session is started."""
    if not (arguments.source or arguments.format or arguments.sql or arguments.sql_file):
        raise BadOption("--from is missing: give a path or a table, or use --sql over tables that Spark knows")
    if arguments.option and not _format(arguments):
        raise BadOption("--option requires --format: a table has its own options")
    options(arguments)
    _query(arguments)


def read(spark: SparkSession, arguments: argparse.Namespace) -> DataFrame:
    """The rows that the flags specify; nothing is read yet. Raises BadOption."""
    query = _query(arguments)
    flag = "--from"
    try:
        frame = _loaded(spark, arguments)
        if query is None:
            assert frame is not None  # ensured by `check`
            return frame
        flag = "--sql" if arguments.sql else "--sql-file"
        if frame is not None:
            frame.createOrReplaceTempView(VIEW)
        return spark.sql(query)
    except PySparkException as error:
        raise BadOption(f"{flag}: {command_line.first_line(error)}") from None


def _loaded(spark: SparkSession, arguments: argparse.Namespace) -> DataFrame | None:
    source, kind = arguments.source, _format(arguments)
    if kind is None:
        return spark.table(source) if source else None
    defaults = _CSV if kind.lower() == "csv" else {}
    reader = spark.read.format(kind).options(**{**defaults, **options(arguments)})
    if kind.lower() == "jdbc":
        return (reader.option("dbtable", source) if source else reader).load()
    return reader.load(source) if source else reader.load()


def _format(arguments: argparse.Namespace) -> str | None:
    """The format of a path; None for a table."""
    if arguments.format or not arguments.source:
        return str(arguments.format) if arguments.format else None
    known = _BY_ENDING.get(Path(arguments.source.rstrip("/")).suffix.lower())
    if known is None and "/" in arguments.source:
        raise BadOption(f"--format is missing: it cannot be inferred from the ending of {arguments.source!r}")
    return known


def _query(arguments: argparse.Namespace) -> str | None:
    if arguments.sql_file is None:
        return str(arguments.sql) if arguments.sql else None
    try:
        return Path(arguments.sql_file).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise BadOption(f"--sql-file cannot be read: {error}") from None
