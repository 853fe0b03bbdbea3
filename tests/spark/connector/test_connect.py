"""The connector through Spark Connect: no class is registered, nothing needs a SparkContext."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.kit.service import ROOT
from tests.spark.serving import Serving


def test_jobs_are_written_and_read_through_spark_connect(serving: Serving, topic: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "tests.spark.connector.connect_program", serving.url, topic],
        check=False,
        capture_output=True,
        text=True,
        timeout=200,
        cwd=ROOT,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
    )
    assert ran.returncode == 0, ran.stderr
    session, read = ran.stdout.split()
    assert session == "pyspark.sql.connect.session" and read == "1000"
    job = serving.ask("get", id=f"{topic}:7")
    assert job["value"] == {"id": 7} and job["topic"] == topic
