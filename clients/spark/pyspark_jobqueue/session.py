"""A Spark session for the pipelines."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark_jobqueue import java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def begin(name: str, master: str | None = None, conf: Mapping[str, str] | None = None) -> SparkSession:
    """The active session if there is one. Otherwise a new one: on `master`, or where spark-submit or SPARK_REMOTE
    point, or on all cores of this machine. `conf` holds Spark's own settings. Raises NoJava."""
    from pyspark.sql import SparkSession  # noqa: PLC0415 - half a second

    # Otherwise the workers run the python3 on PATH, which may lack the packages installed here.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(name)
    for setting, text in (conf or {}).items():
        builder = builder.config(setting, text)
    if master or not (is_submitted() or "SPARK_REMOTE" in os.environ):
        java.provide()
        builder = builder.master(master or "local[*]")
        if "spark.log.level" not in (conf or {}):  # as a warning it prints the whole stack where a path is missing
            builder = builder.config("spark.log.level", "ERROR")
        builder = builder.config("spark.ui.showConsoleProgress", str(sys.stderr.isatty()).lower())
    return builder.getOrCreate()


def is_submitted() -> bool:
    """Return True if spark-submit started this program: it decides where Spark runs."""
    return "PYSPARK_GATEWAY_PORT" in os.environ
