"""Programs that begin Spark on their own, as users start them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.service import ROOT
from tests.spark.serving import Serving


def ran(*command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    whole = {name: value for name, value in os.environ.items() if name != "PYSPARK_PYTHON"} | environment
    return subprocess.run(
        [sys.executable, *command], check=False, capture_output=True, text=True, timeout=230, cwd=ROOT, env=whole
    )


@pytest.mark.slow
def test_the_worked_example_calls_each_order_as_often_as_it_should_and_none_early() -> None:
    """A short run, so that it does not rot."""
    example = ran("-m", "tests.spark.demo", "300", "5", "10")
    assert example.returncode == 0, example.stdout + example.stderr[-3000:]
    assert (
        "every order as often as it should be, none early" in example.stdout
        and "reconcile after     {'finished': 300}" in example.stdout
    )


PROGRAM = """
import pyspark_jobqueue
from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
rows = spark.createDataFrame([("a:1", 60)], "id string, delay int")
rows.write.format("jobqueue").options(url="{url}", topic="t").mode("append").save()
"""


def test_a_program_of_an_environment_that_is_not_activated_finds_the_format(serving: Serving, tmp_path: Path) -> None:
    """The python3 on PATH is another one, which has neither PySpark nor the connector."""
    python = tmp_path / "bin" / "python3"
    python.parent.mkdir()
    python.symlink_to(Path(sys.base_prefix) / "bin" / "python3")
    (tmp_path / "job.py").write_text(PROGRAM.format(url=serving.url))
    rest = os.pathsep.join(folder for folder in os.environ["PATH"].split(os.pathsep) if sys.prefix not in folder)
    done = ran(str(tmp_path / "job.py"), PATH=f"{python.parent}{os.pathsep}{rest}")
    assert done.returncode == 0, done.stderr[-3000:]
    assert [*serving.jobs("t")] == ["a:1"]


def test_a_history_that_is_missing_is_one_line_and_no_stack_trace(tmp_path: Path) -> None:
    done = ran("-m", "pyspark_jobqueue.pipelines.sla", "--history", str(tmp_path))
    assert done.returncode == 2
    assert "\tat " not in done.stderr and len(done.stderr.splitlines()) < 20
    last = done.stderr.splitlines()[-1]
    assert last.startswith("error: --history: ") and f"{tmp_path}/events" in last and "journal export --out" in last
