"""How the run of a pipeline ends. Needs no Spark."""

from __future__ import annotations

import subprocess
import sys
from argparse import Namespace
from pathlib import Path

import pytest
from pyspark_jobqueue.errors import BadOption
from pyspark_jobqueue.pipelines import emit
from pyspark_jobqueue.pipelines.parts import command_line
from pyspark_jobqueue.pipelines.parts.command_line import Report

OF_JDBC = """An error occurred while calling o59.load.
: java.sql.SQLException: No suitable driver
\tat java.sql/java.sql.DriverManager.getDriver(DriverManager.java:299)
"""


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (BadOption("--from is missing"), 2, "--from is missing"),
        (RuntimeError("in the plan: BadOption: option batchSize is empty"), 2, "option batchSize is empty"),
        (RuntimeError(OF_JDBC), 1, "No suitable driver"),
        (RuntimeError(f"in a task: Unreachable: gave up\n{OF_JDBC}"), 1, "gave up"),
        (RuntimeError(), 1, "RuntimeError"),
        (KeyboardInterrupt(), 1, "interrupted"),
    ],
)
def test_an_error_is_one_line_and_a_code(
    error: BaseException, code: int, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_: Namespace) -> Report:
        raise error

    with pytest.raises(SystemExit) as ended:
        command_line.run(fail, Namespace())
    assert (ended.value.code, capsys.readouterr().err) == (code, f"error: {words}\n")


def test_a_file_that_is_missing_is_reported_in_one_line_and_before_flags_that_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    def said(*given: str) -> str:
        with pytest.raises(SystemExit) as ended:
            emit.parser().parse_args(given)
        assert ended.value.code == 2
        (line,) = capsys.readouterr().err.splitlines()
        return str(line)

    for missing in ("orders.csv", "data/orders", str(tmp_path / "orders.parquet")):
        assert f"there is no file or folder {missing!r} in {tmp_path}" in said("--from", missing)
    for elsewhere in ("orders", "shop.orders", "s3://shop/orders.csv", "data/*.csv", str(tmp_path)):
        assert "arguments are required: --topic, --id; all flags: " in said("--from", elsewhere)
    monkeypatch.setenv("HADOOP_CONF_DIR", "/etc/hadoop")  # then a path may be one of HDFS
    assert "arguments are required" in said("--from", "/data/orders.csv")


def test_a_report_that_cannot_be_written_is_printed_all_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for file, code in ((tmp_path / "report", 0), (tmp_path / "none" / "report", 1)):
        with pytest.raises(SystemExit) as ended:
            command_line.run(lambda _: Report("emit"), Namespace(report=str(file), json=True))
        result = capsys.readouterr()
        assert ended.value.code == code
        assert result.out.startswith('{"pipeline": "emit"')
        assert result.err.startswith("error: ") == bool(code)
    assert (tmp_path / "report").read_text().startswith('{"pipeline": "emit"')


def test_the_file_of_a_pipeline_is_printed_for_spark_submit() -> None:
    def printed(*names: str) -> subprocess.CompletedProcess[str]:
        command = (sys.executable, "-m", "pyspark_jobqueue.pipelines", *names)
        return subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)

    assert Path(printed("emit").stdout.strip()).read_text().startswith('"""emit: ')
    every = [Path(line).stem for line in printed().stdout.splitlines()]
    assert every == ["dead", "emit", "forecast", "reconcile", "sla", "stream"]
    assert (printed("emmit").returncode, printed("emmit").stdout) == (1, "")
