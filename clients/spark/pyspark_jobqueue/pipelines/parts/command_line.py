"""The command line of a pipeline: its flags, the SQL expressions in them, and how a run begins, ends and reports.

Expressions are checked against their input before anything runs. The report is a table for people, or JSON for
programs.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType

from pyspark_jobqueue import session
from pyspark_jobqueue.errors import BadOption, JobQueueError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# The text before the message of a JDBC driver or a file system: how Python called Java, and the class of the error.
_PY4J_PREFIX = re.compile(r"An error occurred while calling \S+\n: (?:[\w.$]+: )?")


def column(frame: DataFrame, flag: str, text: str) -> Column:
    """The column that a flag's expression defines over the frame. Raises BadOption, which names the flag."""
    return typed_column(frame, flag, text)[0]


def typed_column(frame: DataFrame, flag: str, text: str) -> tuple[Column, DataType]:
    """The column and its type. Raises BadOption."""
    try:
        made = F.expr(text)
        fields = frame.select("*", made).schema.fields[len(frame.columns) :]  # next to "*", so that aggregates fail
    except PySparkException as error:
        raise BadOption(f"{flag}: {first_line(error)}") from None
    if len(fields) != 1:
        raise BadOption(f"{flag} must be one column, not {len(fields)}: {text}")
    return made, fields[0].dataType


def first_line(error: Exception) -> str:
    """The first line of an error, without Spark's plans and stack traces."""
    return (_PY4J_PREFIX.sub("", str(error).strip()).splitlines() or [type(error).__name__])[0]


def instant(seconds: float) -> str:
    """Unix seconds as a time in UTC."""
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Report:
    """Figures in the order in which they were noted. `well`: True if the run found nothing wrong."""

    def __init__(self, pipeline: str) -> None:
        self._began = time.monotonic()
        self.well = True
        self.figures: dict[str, Any] = {"pipeline": pipeline}
        self._only_json: set[str] = set()

    def note(self, **figures: Any) -> None:
        """Add figures. A list of dicts becomes a table of its own."""
        self.figures.update(figures)

    def keep(self, **figures: Any) -> None:
        """Add figures that are too long for a table, for the JSON only."""
        self.figures.update(figures)
        self._only_json.update(figures)

    def publish(self, file: str | None = None, *, as_json: bool = False) -> None:
        """Print the report, as a table on a terminal and as one line of JSON otherwise. Write the JSON to `file`
        too."""
        self.note(seconds=round(time.monotonic() - self._began, 3))
        line = json.dumps(self.figures, default=str)
        print(line if as_json or not sys.stdout.isatty() else self.table(), flush=True)
        if file:
            Path(file).write_text(line + "\n")

    def table(self) -> str:
        """The figures, one per line, followed by the tables."""
        shown = {name: value for name, value in self.figures.items() if name not in self._only_json}
        plain = {name: value for name, value in shown.items() if not _is_table(value)}
        width = max(map(len, plain))
        lines = [f"{name.replace('_', ' '):{width}}  {_shown(value)}" for name, value in plain.items()]
        for name, rows in shown.items():
            if _is_table(rows):
                lines += ["", name.replace("_", " "), *_columns(rows)]
        return "\n".join(lines)


def _is_table(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], dict)


def _columns(rows: list[dict[str, Any]]) -> list[str]:
    cells = [list(rows[0]), *([_shown(value) for value in row.values()] for row in rows)]
    widths = [max(len(row[place]) for row in cells) for place in range(len(cells[0]))]
    return ["  " + "  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)) for row in cells]


def _shown(value: Any) -> str:
    text = f"{value:,}" if isinstance(value, int | float) and not isinstance(value, bool) else str(value)
    # Ids and reasons come from users: keep control characters off the terminal.
    return "".join(each if each.isprintable() else f"\\u{ord(each):04x}" for each in text)


DEFAULT_URL = "http://127.0.0.1:8000"
# This package's errors inside the text of Spark's errors: they follow the name of their class.
_OURS = re.compile(r"(?:BadOption|Refused|Unreachable|JobQueueError|NoJava): (.+)")


class _Parser(argparse.ArgumentParser):
    """Reports an error in one line, instead of listing all flags first."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"error: {message}; all flags: {self.prog} --help\n")


def parser(name: str, about: str) -> argparse.ArgumentParser:
    """A parser with the common flags. No flag contains the token, since other users can see the flags of a process: the
    connector reads it from JOBQUEUE_TOKEN."""
    made = _Parser(prog=f"python -m pyspark_jobqueue.pipelines.{name}", description=about)
    made.add_argument(
        "--url",
        default=os.environ.get("JOBQUEUE_URL", DEFAULT_URL),
        help="URL of the service; several with commas [JOBQUEUE_URL, or %(default)s]",
    )
    made.add_argument("--token-file", metavar="FILE", help="file with the token to show, instead of JOBQUEUE_TOKEN")
    made.add_argument("--report", metavar="FILE", help="also write the report to this file, as JSON")
    made.add_argument("--json", action="store_true", help="print the report as JSON even on a terminal")
    made.add_argument("--master", help="Spark's master [spark-submit's, SPARK_REMOTE, or local[*]]")
    made.add_argument("--conf", action="append", default=[], metavar="NAME=VALUE", help="a Spark setting; repeatable")
    return made


def connection(arguments: argparse.Namespace) -> dict[str, str]:
    """The connector's options for reaching the service."""
    return {"url": arguments.url, **({"tokenFile": arguments.token_file} if arguments.token_file else {})}


def begin(arguments: argparse.Namespace) -> SparkSession:
    """The session that the flags ask for. Raises BadOption and NoJava."""
    conf = {}
    for pair in arguments.conf:
        name, equals, text = pair.partition("=")
        if not (name and equals):
            raise BadOption(f"--conf must be NAME=VALUE, not {pair!r}")
        conf[name] = text
    return session.begin("jobqueue", arguments.master, conf)


def positive(text: str) -> float:
    """Parse a finite number above 0, for argparse."""
    number = float(text)
    if not 0 < number < math.inf:
        raise ValueError
    return number


def run(pipeline: Callable[[argparse.Namespace], Report], arguments: argparse.Namespace) -> NoReturn:
    """Run a pipeline and exit: 0 if all went well, 1 if it failed or its report says that something is wrong, 2 for a
    wrong flag. An error is printed as one line."""
    # This logger would print the whole Java stack trace before that line, as JSON.
    PySparkLogger.getLogger("SQLQueryContextLogger").disabled = True
    try:
        report = pipeline(arguments)
        report.publish(arguments.report, as_json=arguments.json)
        code = 0 if report.well else 1
    except BadOption as error:
        print(f"error: {error}", file=sys.stderr)
        code = 2
    except KeyboardInterrupt:
        print("error: interrupted", file=sys.stderr)
        code = 1
    except Exception as error:  # whatever Spark raises: its Java stack trace would not help the user
        print(f"error: {sentence(error)}", file=sys.stderr)
        code = 2 if "BadOption: " in str(error) else 1  # the connector's BadOption, wrapped by Spark
    sys.exit(code)


def sentence(error: Exception) -> str:
    """The error in one line: the message of one of this package's errors, if the error contains one."""
    if isinstance(error, JobQueueError):
        return str(error)
    ours = _OURS.search(str(error))
    return ours[1].strip() if ours else first_line(error)


def add_plot_flag(parser: argparse._ActionsContainer) -> None:
    parser.add_argument("--plot", metavar="FILE", help="draw a chart: .png or .svg (needs matplotlib)")


def charts(file: str | None) -> Any:
    """Return the module `parts.charts`, or None without a `file` to draw. Raises BadOption, before anything is read."""
    if file is None:
        return None
    if not file.endswith((".png", ".svg")):
        raise BadOption(f"--plot must name a .png or .svg file, not {file!r}")
    if not Path(file).resolve().parent.is_dir():
        raise BadOption(f"--plot: no such folder: {str(Path(file).resolve().parent)!r}")
    try:
        return import_module("pyspark_jobqueue.pipelines.parts.charts")
    except ModuleNotFoundError as error:  # matplotlib is an extra
        raise BadOption(f"--plot needs matplotlib ({error}): pip install 'matplotlib>=3.10,<4'") from None
