"""How the run of a pipeline ends. Needs no Spark."""

from __future__ import annotations

import subprocess
import sys
from argparse import Namespace
from pathlib import Path

import pytest
from pyspark_jobqueue.errors import BadOption
from pyspark_jobqueue.pipelines.parts import flags
from pyspark_jobqueue.pipelines.parts.report import Report

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
        flags.run(fail, Namespace())
    assert (ended.value.code, capsys.readouterr().err) == (code, f"error: {words}\n")


def test_a_report_that_cannot_be_written_is_printed_all_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for file, code in ((tmp_path / "report", 0), (tmp_path / "none" / "report", 1)):
        with pytest.raises(SystemExit) as ended:
            flags.run(lambda _: Report("emit"), Namespace(report=str(file), json=True))
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
