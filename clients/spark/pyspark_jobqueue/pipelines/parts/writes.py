"""Writes through `format("jobqueue")`, and their totals."""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark_jobqueue.connector.write_totals import COUNTS
from pyspark_jobqueue.errors import BadOption

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def add_flags(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """--batch-size and --in-flight. Returns their group, so that more can be added."""
    group = parser.add_argument_group("writing")
    group.add_argument("--batch-size", metavar="N", help="jobs per request [1000]")
    group.add_argument("--in-flight", metavar="N", help="concurrent requests per task [4]")
    return group


def options(arguments: argparse.Namespace) -> dict[str, str]:
    """The writer's options that these flags set."""
    given = {"batchSize": arguments.batch_size, "inFlight": arguments.in_flight}
    return {name: text for name, text in given.items() if text is not None}


def check_rate(rate: int | None) -> None:
    """Raises BadOption for an invalid --rate."""
    if rate is not None and rate < 1:
        raise BadOption(f"--rate must be at least 1, not {rate}")


def write(frame: DataFrame, options: Mapping[str, str], rate: int | None = None) -> dict[str, int]:
    """Write; return the `COUNTS` and `rows_per_second`, or nothing if the driver is remote (Spark Connect).

    `rate` limits the rows per second of the whole write. A single task sends then: only one can keep the rate exactly.
    """
    if rate is not None:
        frame, options = frame.repartition(1), {**options, "rowsPerSecondPerTask": str(rate)}
    with tempfile.TemporaryDirectory(prefix="jobqueue-") as folder:
        frame.write.format("jobqueue").options(**options).option("reportPath", folder).mode("append").save()
        totals = [json.loads(path.read_text()) for path in Path(folder).glob("*.json")]
    return {name: totals[0][name] for name in (*COUNTS, "rows_per_second")} if totals else {}
