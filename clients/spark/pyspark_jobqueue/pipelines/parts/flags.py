"""The flags that all pipelines share, and how a run begins and ends."""

from __future__ import annotations

import argparse
import math
import os
import re
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn

from pyspark.logger import PySparkLogger

from pyspark_jobqueue import session
from pyspark_jobqueue.errors import BadOption, JobQueueError
from pyspark_jobqueue.pipelines.parts import expressions
from pyspark_jobqueue.pipelines.parts.report import Report

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEFAULT_URL = "http://127.0.0.1:8000"
# Our own errors inside the text of Spark's: they follow the name of their class.
_OURS = re.compile(r"(?:BadOption|Refused|Unreachable|JobQueueError|NoJava): (.+)")


class _Parser(argparse.ArgumentParser):
    """Says in one line what is wrong, instead of listing all flags first."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"error: {message}; all flags: {self.prog} --help\n")


def parser(name: str, about: str) -> argparse.ArgumentParser:
    """A parser with the common flags. There is none for the token, which the connector takes from JOBQUEUE_TOKEN: other
    users can see the flags of a process."""
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
    # It would print the whole Java stack trace before that line, as JSON.
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
        code = 2 if "BadOption: " in str(error) else 1  # about the connector's options, wrapped by Spark
    sys.exit(code)


def sentence(error: Exception) -> str:
    """What went wrong, in one line; our own message if the error contains one."""
    if isinstance(error, JobQueueError):
        return str(error)
    ours = _OURS.search(str(error))
    return ours[1].strip() if ours else expressions.first_line(error)
