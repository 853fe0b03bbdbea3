"""buckets.timers.sleep: commands that leave early enough to arrive in time."""

from __future__ import annotations

import random
from statistics import mean

import pytest

from buckets.timers.sleep import LeadTime

LONG_S = 1.0


def shots(lead_time: LeadTime, ways_s: list[float]) -> tuple[int, float]:
    """How many commands arrive too early when their ways take these times, and the mean lead (s)."""
    early, leads_s = 0, []
    for way_s in ways_s:
        lead_s = LONG_S - lead_time.shorten(LONG_S)
        lead_time.learn(early=way_s < lead_s)
        early += way_s < lead_s
        leads_s.append(lead_s)
    return early, mean(leads_s)


@pytest.mark.parametrize("way_us", [60, 150, 400])
def test_it_learns_how_long_the_way_is_and_about_one_in_ten_is_too_early(way_us: int) -> None:
    chance, lead_time = random.Random(1), LeadTime()
    ways_s = [chance.uniform(0.8, 1.2) * way_us / 1e6 for _ in range(3000)]
    shots(lead_time, ways_s[:1000])
    early, lead_s = shots(lead_time, ways_s[1000:])
    assert 100 < early < 320
    assert lead_s == pytest.approx(way_us / 1e6, rel=0.4)


def test_it_unlearns_in_a_few_shots_that_the_way_was_long() -> None:
    lead_time = LeadTime()
    shots(lead_time, [400e-6] * 1000)
    assert shots(lead_time, [100e-6] * 30)[0] < 25


def test_what_is_late_because_of_load_is_no_reason_to_leave_much_too_early() -> None:
    lead_time = LeadTime()
    shots(lead_time, [1.0] * 100_000)
    assert LONG_S - lead_time.shorten(LONG_S) == pytest.approx(500e-6)


def test_a_short_wait_is_slept_to_its_end_so_that_who_came_early_does_not_ask_again_and_again() -> None:
    lead_time = LeadTime()
    shots(lead_time, [1.0] * 1000)
    assert lead_time.shorten(0.0008) == 0.0008
    assert 0.001 < lead_time.shorten(0.002) < 0.002


def test_it_never_leaves_late_on_purpose() -> None:
    lead_time = LeadTime()
    for _ in range(100):
        lead_time.learn(early=True)
    assert lead_time.shorten(LONG_S) == LONG_S
