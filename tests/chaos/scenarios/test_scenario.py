"""Pass marks: a broken promise is found, and a run without load or trouble does not pass."""

from __future__ import annotations

import pytest

from tests.chaos.judges.findings import Figures, Report
from tests.chaos.scenarios.catalog import SCENARIOS
from tests.chaos.scenarios.scenario import Promise, judge


def measured(**figures: object) -> Report:
    """A report of 60 s with enough load."""
    late = {"p50": 1.0, "p99": 20.0, "max": 90.0}
    all_of_them = {"adds": 5000, "late_all": late, "late_inside": late, "late_outside": late} | figures
    return Report(figures=Figures(**all_of_them))  # type: ignore[arg-type]


def said(promise: Promise, report: Report, strikes: int = 1, short: bool = False) -> list[str]:
    return [str(finding) for finding in judge(promise, report, 60.0, strikes, short)]


def test_a_run_without_load_or_without_a_fault_is_no_run() -> None:
    assert said(Promise(), measured()) == []
    assert said(Promise(), measured(adds=599)) == ["load: 599 adds in 60 s: that was no load"]
    assert said(Promise(), measured(), strikes=0) == ["load: nothing was broken"]


@pytest.mark.parametrize(
    ("promise", "figures"),
    [
        (Promise(late_p99_ms=500), {"late_all": {"p99": 501.0}}),
        (Promise(late_outside_p99_ms=30), {"late_outside": {"p99": 30.5}}),
        (Promise(late_ratio=2), {"late_outside": {"p99": 20.0}, "late_inside": {"p99": 40.5}}),
        (Promise(late_ratio=2), {"late_outside": {"p99": 2.0}, "late_inside": {"p99": 7.5}}),
        (Promise(outage_s=4), {"outage_s": 4.5, "outage_of": "kill-redis"}),
        (Promise(errors=0), {"errors": 1}),
    ],
)
def test_a_mark_that_is_missed_is_found(promise: Promise, figures: dict[str, object]) -> None:
    (finding,) = said(promise, measured(**figures))
    assert finding.startswith("late: ") and "promised at most" in finding
    assert said(Promise(), measured(**figures)) == []


def test_a_promise_of_which_nothing_was_measured_is_not_kept() -> None:
    (finding,) = said(Promise(late_elsewhere_p99_ms=200), measured(late_elsewhere={"p99": None}))
    assert finding == "load: p99 of lateness on other nodes during faults, ms: there was nothing to measure"
    assert len(said(Promise(late_ratio=2), measured(late_inside={}))) == 1
    assert len(said(Promise(late_ratio=2), measured(late_inside={}), short=True)) == 0


def test_a_job_that_is_later_than_faults_explain_is_found_in_the_short_form_too() -> None:
    (finding,) = said(Promise(), measured(late_beyond_s=9.1, latest="p1:7"), short=True)
    assert finding == "late: seconds late beyond what faults explain (p1:7): 9.1, promised at most 9"
    assert said(Promise(), measured(late_beyond_s=8.9), short=True) == []
    assert len(said(Promise(), measured(late_beyond_s=5.1))) == 1


def test_lateness_within_its_marks_is_right() -> None:
    marks = Promise(late_p99_ms=20, late_outside_p99_ms=20, late_ratio=2, outage_s=4, errors=0)
    assert said(marks, measured()) == []
    assert said(marks, measured(late_outside={"p99": 2.0}, late_inside={"p99": 7.0})) == []  # 5 ms is no difference


def test_the_short_form_has_no_marks_of_lateness() -> None:
    missed = measured(late_all={"p99": 501.0}, outage_s=12.5)
    assert len(said(Promise(late_p99_ms=500, outage_s=4), missed)) == 2
    assert len(said(Promise(late_p99_ms=500, outage_s=4), missed, short=True)) == 1


def test_an_outage_may_last_three_times_as_long_in_the_short_form() -> None:
    assert said(Promise(outage_s=4), measured(outage_s=11.5), short=True) == []


def test_scenarios_have_names_of_their_own_and_times_that_fit_33_and_five_minutes() -> None:
    assert len({scenario.name for scenario in SCENARIOS}) == len(SCENARIOS)
    around_s = 8  # start, drain and final reads
    programs_s = 600
    long_s = sum((scenario.seconds + around_s) / (1 if scenario.alone else 2) for scenario in SCENARIOS)
    assert long_s + programs_s < 33 * 60
    assert sum(scenario.short_s + around_s for scenario in SCENARIOS) / 2 < 300


def test_options_of_the_short_form_stand_over_those_of_the_long_one() -> None:
    paused = next(scenario for scenario in SCENARIOS if scenario.name == "holder-paused")
    assert paused.options("pause-holder", short=False) == {"every_s": 3, "for_s": 8}
    assert paused.options("pause-holder", short=True) == {"every_s": 0.5, "for_s": 7}
