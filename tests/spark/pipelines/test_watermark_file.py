"""The watermark file of incremental runs. Needs no Spark."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark_jobqueue.errors import BadOption, JobQueueError
from pyspark_jobqueue.pipelines.parts.increment import Watermark, load_watermark, lock, save_watermark

MARK = Watermark("orders", "updated_at", "timestamp", "2026-11-21T10:00:00+00:00", ("a", "b"))


def test_a_saved_mark_is_loaded_as_it_was_and_nothing_else_stays_in_the_folder(tmp_path: Path) -> None:
    file = tmp_path / "state"
    assert load_watermark(str(file), "orders", "updated_at") is None
    save_watermark(str(file), Watermark("orders", "updated_at", "timestamp", "2026-11-21T09:00:00+00:00"))
    save_watermark(str(file), MARK)
    assert load_watermark(str(file), "orders", "updated_at") == MARK
    assert [path.name for path in tmp_path.iterdir()] == ["state"]


def test_a_file_that_is_not_of_this_run_is_refused_in_words(tmp_path: Path) -> None:
    file = tmp_path / "state"
    save_watermark(str(file), MARK)
    whole = json.loads(file.read_text())
    with pytest.raises(BadOption, match="belongs to --topic orders, not others"):
        load_watermark(str(file), "others", "updated_at")
    with pytest.raises(BadOption, match="belongs to --watermark updated_at, not created_at"):
        load_watermark(str(file), "orders", "created_at")
    for changed, words in (
        ({**whole, "pipeline": "stream"}, "is not a state file of emit"),
        ({**whole, "version": 2}, "has version 2; this emit supports 1"),
        ({**whole, "ids": None}, "is damaged"),
        ([], "is not a state file of emit"),
    ):
        file.write_text(json.dumps(changed))
        with pytest.raises(BadOption, match=words):
            load_watermark(str(file), "orders", "updated_at")
    file.write_text("{")
    with pytest.raises(BadOption, match="cannot be read"):
        load_watermark(str(file), "orders", "updated_at")


def test_a_second_run_on_the_same_file_is_refused_until_the_first_ended(tmp_path: Path) -> None:
    file = str(tmp_path / "state")
    with lock(file), pytest.raises(JobQueueError, match="another run is using --state"), lock(file):
        raise AssertionError
    with lock(file):
        pass
    with pytest.raises(BadOption, match="cannot be opened: No such file or directory"), lock("/no/such/folder/state"):
        raise AssertionError
