"""The log of refused requests."""

from __future__ import annotations

import structlog

from jobqueue.access.refusal_log import RefusalLog


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_an_address_has_one_line_a_second_which_counts_those_before_it() -> None:
    clock = Clock()
    refusals = RefusalLog(clock)
    with structlog.testing.capture_logs() as logs:
        for _ in range(5):
            refusals.note("browser", "192.0.2.1", origin="null")
        refusals.note("unknown", "192.0.2.2")
        clock.now += 1
        refusals.note("browser", "192.0.2.1")
    lines = [(each["event"], each["verdict"], each["address"], each.get("more")) for each in logs]
    assert lines == [
        ("access.refused", "browser", "192.0.2.1", None),
        ("access.refused", "unknown", "192.0.2.2", None),
        ("access.refused", "browser", "192.0.2.1", 4),
    ]
    assert logs[0]["origin"] == "null"


def test_a_flood_from_many_addresses_has_a_thousand_lines_a_second_and_is_forgotten() -> None:
    clock = Clock()
    refusals = RefusalLog(clock)
    for second in range(3):
        with structlog.testing.capture_logs() as logs:
            for number in range(5000):
                refusals.note("browser", f"2001:db8::{second}:{number:x}")
        assert len(logs) == 1000
        assert len(refusals._lines) == 1000
        clock.now += 1
