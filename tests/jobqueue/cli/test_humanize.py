"""Values as people read them."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobqueue.cli import humanize


@given(st.text())
def test_clean_text_has_nothing_that_a_terminal_obeys_and_means_the_same_in_json(text: str) -> None:
    line = json.dumps(text, ensure_ascii=False)
    assert json.loads(humanize.clean(line)) == text
    assert not any(ord(each) < 32 or 127 <= ord(each) < 160 for each in humanize.clean(text))


def test_ink_stays_as_it_is() -> None:
    assert humanize.clean("Zürich 東京\u3000😀 [bold]") == "Zürich 東京\u3000😀 [bold]"
    assert humanize.clean("\x7f\u202e\x1b") == "\\u007f\\u202e\\u001b"


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (0, "0 s"),
        (0.1, "0.1 s"),
        (5, "5 s"),
        (59.9, "59.9 s"),
        (60, "1 min"),
        (90, "1 min 30 s"),
        (3600, "1 h"),
        (7500, "2 h 5 min"),
        (86_430, "1 d"),
        (315_360_000, "3650 d"),
    ],
)
def test_a_span_is_told_in_its_two_largest_units(seconds: float, told: str) -> None:
    assert humanize.span(seconds) == told


def test_a_time_is_told_with_its_distance_and_the_day_when_it_is_another() -> None:
    now = time.mktime((2026, 3, 1, 12, 0, 0, 0, 0, -1))
    assert humanize.when(now + 5, now) == "12:00:05 (in 5 s)"
    assert humanize.when(now - 200, now) == "11:56:40 (3 min 20 s ago)"
    assert humanize.when(now + 86_400, now) == "2026-03-02 12:00:00 (in 1 d)"
    assert humanize.when(1e300, now) == "1e+300"


def test_a_long_body_is_cut_off() -> None:
    assert humanize.body({"a": "ü"}) == '{"a": "ü"}'
    assert humanize.body("x" * 500).endswith("x…")
    assert len(humanize.body("x" * 500)) == 200
