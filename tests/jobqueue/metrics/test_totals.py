"""Totals in Redis may fall; those that are shown never do, whichever process is asked."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

from jobqueue.metrics.scrape import Totals


def told(totals: Totals, **numbers: int) -> dict[str, int]:
    return totals.raised({"t": numbers}, time.monotonic())["t"]


def test_totals_that_fall_in_redis_do_not_fall_here() -> None:
    totals = Totals()
    assert told(totals, created=5, delivered=3) == {"created": 5, "delivered": 3}
    assert told(totals, created=5, delivered=2) == {"created": 5, "delivered": 3}  # one was undone
    assert told(totals, created=6, delivered=3) == {"created": 6, "delivered": 3}  # and made again
    assert told(totals, created=1) == {"created": 6, "delivered": 3}  # Redis was emptied, or a topic forgotten
    assert told(totals, created=2, delivered=1) == {"created": 7, "delivered": 4}
    assert told(totals, created=0) == {"created": 7, "delivered": 4}
    assert told(totals, created=1, delivered=1, finished=1) == {"created": 8, "delivered": 5, "finished": 1}


def test_processes_that_share_a_folder_tell_the_same_whichever_is_asked(tmp_path: Path) -> None:
    one, two = Totals("jq", tmp_path), Totals("jq", tmp_path)
    assert told(one, created=9, delivered=4) == {"created": 9, "delivered": 4}
    assert told(two, created=9, delivered=3) == {"created": 9, "delivered": 4}  # one was undone
    assert told(two, created=1) == {"created": 9, "delivered": 4}  # Redis was emptied
    assert told(one, created=2) == {"created": 10, "delivered": 4}
    assert told(Totals("jq", tmp_path), created=3) == {"created": 11, "delivered": 4}
    assert told(Totals("other", tmp_path), created=1) == {"created": 1}  # another namespace, another Redis


def test_of_two_readings_at_the_same_time_the_older_is_no_emptied_redis(tmp_path: Path) -> None:
    one, two = Totals("jq", tmp_path), Totals("jq", tmp_path)
    begun = time.monotonic()
    assert told(two, created=7) == {"created": 7}
    assert one.raised({"t": {"created": 5}}, begun) == {"t": {"created": 7}}
    assert told(one, created=8) == {"created": 8}


def test_what_is_left_of_a_file_or_a_folder_stops_nobody(tmp_path: Path) -> None:
    folder = tmp_path / "shared"
    folder.mkdir()
    totals = Totals("jq", folder)
    told(totals, created=5)
    (folder / "totals-jq.json").write_text('{"topics":')
    assert told(totals, created=6) == {"created": 6}
    shutil.rmtree(folder)
    assert told(totals, created=2) == {"created": 6}
