"""A write by `format("jobqueue")`, and the figures that it leaves."""

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
    """--batch-size and --in-flight; returns their group, for more."""
    group = parser.add_argument_group("writing")
    group.add_argument("--batch-size", metavar="N", help="jobs a request [1000]")
    group.add_argument("--in-flight", metavar="N", help="requests at a time of a task [4]")
    return group


def options(arguments: argparse.Namespace) -> dict[str, str]:
    """The options of the writer that these flags stand for."""
    given = {"batchSize": arguments.batch_size, "inFlight": arguments.in_flight}
    return {name: text for name, text in given.items() if text is not None}


def check_rate(rate: int | None) -> None:
    """Raises BadOption for a --rate that cannot be."""
    if rate is not None and rate < 1:
        raise BadOption(f"--rate must be an integer from 1, not {rate}")


def write(frame: DataFrame, options: Mapping[str, str], rate: int | None = None) -> dict[str, int]:
    """Write; returns the `COUNTS` and `rows_per_second`: nothing where the driver is another machine, by Spark Connect.

    `rate` bounds the rows a second of the whole write: one task sends then, as only one can keep to it exactly.
    """
    if rate is not None:
        frame, options = frame.repartition(1), {**options, "rowsPerSecondPerTask": str(rate)}
    with tempfile.TemporaryDirectory(prefix="jobqueue-") as folder:
        frame.write.format("jobqueue").options(**options).option("reportPath", folder).mode("append").save()
        told = [json.loads(path.read_text()) for path in Path(folder).glob("*.json")]
    return {name: told[0][name] for name in (*COUNTS, "rows_per_second")} if told else {}
