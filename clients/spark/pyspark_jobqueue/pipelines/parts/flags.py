"""The flags that all pipelines have, and how a run begins and ends."""

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
# Our own errors, as they stand in the texts of Spark's: behind the name of their class.
_OURS = re.compile(r"(?:BadOption|Refused|Unreachable|JobQueueError|NoJava): (.+)")


def parser(name: str, about: str) -> argparse.ArgumentParser:
    """A parser with the flags of all pipelines. The token of a service comes by JOBQUEUE_TOKEN: flags can be seen."""
    made = argparse.ArgumentParser(prog=f"python -m pyspark_jobqueue.pipelines.{name}", description=about)
    made.add_argument(
        "--url",
        default=os.environ.get("JOBQUEUE_URL", DEFAULT_URL),
        help="where the service listens; several with commas [JOBQUEUE_URL, or %(default)s]",
    )
    made.add_argument("--report", metavar="FILE", help="write the run's report there, as JSON")
    made.add_argument("--json", action="store_true", help="print the report as JSON, on a terminal too")
    made.add_argument("--master", help="Spark's master [spark-submit's, SPARK_REMOTE, or local[*]]")
    made.add_argument(
        "--conf", action="append", default=[], metavar="NAME=VALUE", help="a setting of Spark; may be repeated"
    )
    return made


def connection(arguments: argparse.Namespace) -> dict[str, str]:
    """The connector's options for reaching the service."""
    token = os.environ.get("JOBQUEUE_TOKEN")
    return {"url": arguments.url, **({"token": token} if token else {})}


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
    """A flag's number above 0, for argparse."""
    number = float(text)
    if not 0 < number < math.inf:
        raise ValueError
    return number


def run(pipeline: Callable[[argparse.Namespace], Report], arguments: argparse.Namespace) -> NoReturn:
    """Run a pipeline and exit: 0 when it did all, 1 when it failed or its report says that something is wrong, 2 for a
    wrong flag. An error is one line."""
    # It would put the whole trace of Java in front of that line, as JSON.
    PySparkLogger.getLogger("SQLQueryContextLogger").disabled = True
    try:
        report = pipeline(arguments)
        report.tell(arguments.report, as_json=arguments.json)
        code = 0 if report.well else 1
    except BadOption as error:
        print(f"error: {error}", file=sys.stderr)
        code = 2
    except KeyboardInterrupt:
        print("error: interrupted", file=sys.stderr)
        code = 1
    except Exception as error:  # whatever Spark raises: its trace of Java says nothing to who ran this
        print(f"error: {sentence(error)}", file=sys.stderr)
        code = 2 if "BadOption: " in str(error) else 1  # of the connector's options, by way of Spark
    sys.exit(code)


def sentence(error: Exception) -> str:
    """What went wrong, in a line: our own words where the error has them."""
    if isinstance(error, JobQueueError):
        return str(error)
    ours = _OURS.search(str(error))
    return ours[1].strip() if ours else expressions.first_line(error)
