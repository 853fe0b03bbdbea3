"""The files of refused rows: complete, from the last attempt only, and absent when no row was refused."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
from pyspark_jobqueue.connector.columns import Columns
from pyspark_jobqueue.connector.commands import Refusal
from pyspark_jobqueue.connector.refused_rows import RefusedRows
from pyspark_jobqueue.connector.row_batches import ArrowBatch

COLUMNS = Columns(("pay_until",), {"due_at": 0}, (), text_body=False)


def refusal(number: int) -> Refusal:
    batch = ArrowBatch(pa.record_batch([pa.array([0, 1_500_000], pa.timestamp("us", "UTC"))], names=["pay_until"]))
    answer = {"success": False, "error": "too far", "code": "BAD_FIELD", "field": "at"}
    return Refusal(answer, "add", f"{number}", "t", batch, number)


def test_a_later_attempt_takes_the_place_of_an_earlier_one_and_a_failed_one_leaves_nothing(folder: Path) -> None:
    def attempt(*numbers: int) -> RefusedRows:
        refusals = RefusedRows(f"{folder}/bad", COLUMNS, "run", 3)
        for number in numbers:
            refusals.take(refusal(number))
        return refusals

    def found() -> dict[str, list[str]]:
        files = (folder / "bad").rglob("*.*")
        return {file.name: [json.loads(line)["id"] for line in file.read_text().splitlines()] for file in files}

    attempt(0, 1).keep()
    assert found() == {"part-00003.jsonl": ["0", "1"]}
    attempt(1).keep()
    assert found() == {"part-00003.jsonl": ["1"]}
    attempt(0).drop()
    assert found() == {"part-00003.jsonl": ["1"]}
    attempt().keep()
    assert found() == {}


def test_a_line_names_the_column_to_blame_and_has_the_row(folder: Path) -> None:
    refusals = RefusedRows(folder.as_uri(), COLUMNS, "run", 0)
    refusals.take(refusal(1))
    refusals.keep()
    assert json.loads((folder / "run" / "part-00000.jsonl").read_text()) == {
        "id": "1",
        "topic": "t",
        "action": "add",
        "code": "BAD_FIELD",
        "error": "too far",
        "field": "pay_until",
        "row": {"pay_until": "1970-01-01T00:00:01.500000Z"},
    }
