"""buckets.timers.members: which changes of Redis's clock count as jumps."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from buckets.timers.members import ClockJumps
from tests.buckets.test_meter import Notes

START = 1_800_000_000.0


@pytest.fixture
def notes() -> Notes:
    return Notes()


def reported(notes: Notes) -> list[float]:
    return [round(each, 3) for each in notes.jumps]


@pytest.mark.parametrize("jump", [1.5, -1.5, 3600, -3600])
def test_a_jump_is_reported_with_its_direction_and_once(
    notes: Notes, jump: float, caplog: pytest.LogCaptureFixture
) -> None:
    clock_jumps = ClockJumps(notes, 1.0)
    assert clock_jumps.compare(10.0, 10.01, START + 10) == 0
    assert clock_jumps.compare(10.2, 10.21, START + 10.2 + jump) == pytest.approx(jump, abs=0.02)
    assert clock_jumps.compare(10.4, 10.41, START + 10.4 + jump) == 0
    assert len(notes.jumps) == 1
    assert [round(record.__dict__["ahead_s"]) for record in caplog.records] == [round(notes.jumps[0])]


@pytest.mark.parametrize("jump", [0.9, -0.9])
def test_a_jump_within_the_limit_is_not_reported_and_does_not_add_up(notes: Notes, jump: float) -> None:
    clock_jumps = ClockJumps(notes, 1.0)
    for number in range(20):
        assert clock_jumps.compare(number, number + 0.01, START + number * (1 + jump)) == 0
    assert notes.jumps == []


def test_a_process_that_stood_still_is_no_jump(notes: Notes) -> None:
    clock_jumps = ClockJumps(notes, 1.0)
    clock_jumps.compare(10.0, 10.01, START + 10)
    for answered_at in (12.0, 30.0):  # Redis answered at either end of the pause
        clock_jumps.compare(12.0, 30.0, START + answered_at)
    clock_jumps.compare(100.0, 100.01, START + 100)
    assert notes.jumps == []


def test_a_jump_is_seen_after_a_pause_too(notes: Notes) -> None:
    clock_jumps = ClockJumps(notes, 1.0)
    clock_jumps.compare(10.0, 10.01, START + 10)
    clock_jumps.compare(12.0, 30.0, START + 100)
    assert reported(notes) == [pytest.approx(70, abs=0.1)]


@given(st.lists(st.tuples(st.floats(0, 50), st.floats(0, 5), st.floats(0, 1)), max_size=30))
def test_a_clock_that_goes_as_ours_never_jumps_whatever_the_delays(steps: list[tuple[float, float, float]]) -> None:
    notes, now = Notes(), 0.0
    clock_jumps = ClockJumps(notes, 0.01)
    for pause, trip, part in steps:
        asked = now + pause
        now = asked + trip
        clock_jumps.compare(asked, now, START + asked + trip * part)
    assert notes.jumps == []


def test_how_far_it_is_ahead_of_this_host_is_reported_when_the_answer_came_quickly(notes: Notes) -> None:
    clock_jumps = ClockJumps(notes, 1.0)
    clock_jumps.compare(10.0, 10.001, time.time() + 60)
    clock_jumps.compare(20.0, 22.0, time.time() + 60)
    assert [round(each) for each in notes.ahead] == [60]
