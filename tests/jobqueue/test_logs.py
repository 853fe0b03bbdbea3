"""jobqueue.logs: what happens very often has few lines."""

from __future__ import annotations

import structlog

from jobqueue.logs import Sparing


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_key_has_one_line_a_second_which_counts_those_before_it() -> None:
    clock = Clock()
    refusals = Sparing("access.refused", clock)
    with structlog.testing.capture_logs() as logs:
        for _ in range(5):
            refusals.note("192.0.2.1", verdict="browser", origin="null")
        refusals.note("192.0.2.2", verdict="unknown")
        clock.now += 1
        refusals.note("192.0.2.1", verdict="browser")
    lines = [(each["event"], each["verdict"], each.get("more")) for each in logs]
    assert lines == [
        ("access.refused", "browser", None),
        ("access.refused", "unknown", None),
        ("access.refused", "browser", 4),
    ]
    assert logs[0]["origin"] == "null"


def test_a_flood_of_keys_has_a_thousand_lines_a_second_and_is_forgotten() -> None:
    clock = Clock()
    refusals = Sparing("access.refused", clock)
    for second in range(3):
        with structlog.testing.capture_logs() as logs:
            for number in range(5000):
                refusals.note(f"2001:db8::{second}:{number:x}")
        assert len(logs) == 1000
        assert len(refusals._lines) == 1000
        clock.now += 1
