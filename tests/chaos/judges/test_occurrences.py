"""The checker finds what is wrong with the occurrences of schedules, and nothing in an honest history."""

from __future__ import annotations

from typing import Any

import pytest

from tests.chaos.judges.checker import check
from tests.chaos.judges.findings import Finding
from tests.chaos.judges.made_up_history import Fable

NAME = "s"
EVERY_S = 10.0
LAST = 5


def ran(*left_out: int, turns: int = LAST, **rules: Any) -> Fable:
    """A schedule of which some turns were not made."""
    fable = Fable()
    fable.schedule(NAME, EVERY_S, **rules)
    for turn in range(1, turns + 1):
        if turn not in left_out:
            fable.run(NAME, turn)
    return fable


def occurrence(fable: Fable, turn: int) -> str:
    start, every, _ = fable.schedules[NAME]
    return f"{NAME}@{round((start + turn * every) * 1000)}"


def found(fable: Fable, *gone: str, until: int = LAST + 1) -> list[Finding]:
    fable.read_schedules(NAME, turn=until)
    return check(fable.look(*gone)).found


def invariants(findings: list[Finding]) -> list[str]:
    return sorted({finding.invariant for finding in findings if not finding.excused})


def test_an_honest_schedule_is_clean_and_its_occurrences_are_no_adds() -> None:
    fable = ran()
    fable.read_schedules(NAME, turn=LAST + 1)
    report = check(fable.look())
    assert (report.found, report.figures.adds, report.figures.occurrences) == ([], 0, LAST)
    assert 0 <= (report.figures.late_made["max"] or 0) < 5


@pytest.mark.parametrize("turn", [1, 3, LAST])
def test_a_time_without_an_occurrence_is_found(turn: int) -> None:
    fable = ran(turn)
    missing = occurrence(fable, turn)
    (finding,) = found(fable, missing)
    assert (finding.invariant, finding.id, finding.excused) == ("skipped", missing, False)


def test_no_fault_excuses_a_time_without_an_occurrence() -> None:
    fable = ran(3, LAST, turns=LAST)
    fable.fault("local", "replicated", forgets_s=100)
    gone = [occurrence(fable, turn) for turn in (3, LAST)]
    assert invariants(found(fable, *gone)) == ["skipped"]


def test_a_schedule_that_is_gone_is_found_unless_a_fault_may_have_forgotten_it() -> None:
    fable = ran()
    assert invariants(check(fable.look()).found) == ["skipped"]
    fable = Fable()
    fable.schedule(NAME, EVERY_S)
    fable.fault("local", forgets_s=1)
    assert invariants(check(fable.look()).found) == []


def test_a_schedule_that_stands_still_is_found() -> None:
    fable = ran(turns=2)
    fable.pass_s(60)
    fable.fault()
    assert invariants(found(fable, until=3)) == ["stuck"]


def test_an_occurrence_before_its_time_is_found() -> None:
    fable = ran()
    fable.pass_s(EVERY_S - 1)
    early = fable.occur(NAME, LAST + 1)
    fable.finish(early, fable.pop(early))
    assert invariants(found(fable, until=LAST + 2)) == ["early"]


def test_an_occurrence_that_was_made_before_its_time_and_delivered_at_it_is_found() -> None:
    fable = ran()
    fable.pass_s(EVERY_S - 1)
    early = fable.occur(NAME, LAST + 1)
    fable.pass_s(1)
    fable.finish(early, fable.pop(early))
    assert invariants(found(fable, until=LAST + 2)) == ["early"]


def test_an_occurrence_at_another_time_is_found() -> None:
    fable = ran()
    start, every, body = fable.schedules[NAME]
    fable.schedules["odd"] = (start + 0.001, every, body)
    job = fable.occur("odd", LAST)
    fable.jobs[job.replace("odd", NAME)] = fable.jobs.pop(job)
    job = job.replace("odd", NAME)
    fable.finish(job, fable.pop(job))
    assert "unknown" in invariants(found(fable))


def test_an_occurrence_with_another_body_is_found() -> None:
    fable = ran()
    fable.pass_s(EVERY_S)
    job = fable.occur(NAME, LAST + 1)
    fable.finish(job, fable.pop(job, body=8))
    assert invariants(found(fable, until=LAST + 2)) == ["unknown"]


def test_an_occurrence_that_is_made_again_is_found_by_its_delivery_and_by_the_counts() -> None:
    fable = ran()
    again = fable.occur(NAME, LAST)
    fable.finish(again, fable.pop(again))
    assert {"revived", "count"} <= set(invariants(found(fable)))


def test_after_a_failover_that_forgot_it_an_occurrence_may_come_again() -> None:
    fable = ran()
    job = occurrence(fable, LAST)
    fable.fault("local", forgets_s=5)
    fable.lose(job)
    fable.totals["finished"] -= 1
    assert fable.occur(NAME, LAST) == job
    fable.finish(job, fable.pop(job))
    findings = found(fable)
    assert findings and invariants(findings) == []


def test_an_occurrence_that_was_delivered_and_is_gone_is_lost() -> None:
    fable = ran()
    gone = occurrence(fable, LAST)
    fable.lose(gone)
    fable.totals["finished"] -= 1
    assert invariants(found(fable, gone)) == ["count", "lost"]


def test_an_occurrence_that_nobody_gets_is_stuck() -> None:
    fable = ran()
    fable.pass_s(EVERY_S)
    fable.occur(NAME, LAST + 1)
    assert invariants(found(fable, until=LAST + 2)) == ["stuck"]


def test_the_same_definition_again_is_existing() -> None:
    fable = ran()
    for result in ("existing", "replaced"):
        op = fable.write("invoke", "schedule", id=NAME, every=EVERY_S)
        fable.write("ok", "schedule", op, id=NAME, due=0.0, result=result)
    (finding,) = found(fable)
    assert (finding.invariant, finding.says) == ("created", "the same definition again was replaced")


@pytest.mark.parametrize("rule", ["last", "none"])
def test_what_a_fault_made_late_may_be_left_out_where_the_rule_says_so(rule: str) -> None:
    def broken(catch_up: str, is_fault: bool) -> list[str]:
        fable = ran(turns=2, catch_up=catch_up)
        fault = fable.begin_fault() if is_fault else 0
        fable.pass_s(2 * EVERY_S)
        if is_fault:
            fable.end_fault(fault)
        fable.run(NAME, 4)
        return invariants(found(fable, occurrence(fable, 3), until=5))

    assert broken(rule, is_fault=True) == []
    assert broken("all", is_fault=True) == ["skipped"]
    assert broken(rule, is_fault=False) == ["skipped"]


def test_where_another_occurrence_was_as_late_a_time_may_be_left_out() -> None:
    fable = Fable()
    fable.schedule(NAME, EVERY_S, catch_up="last")
    fable.schedule("other", EVERY_S)
    fable.pass_s(2 * EVERY_S)
    for name, turn in (("other", 1), ("other", 2), (NAME, 2)):
        fable.run(name, turn)
    fable.read_schedules("other", turn=3)
    assert invariants(found(fable, occurrence(fable, 1), until=3)) == []


def test_only_catch_up_all_makes_two_at_once() -> None:
    def broken(rule: str) -> list[str]:
        fable = ran(turns=2, catch_up=rule)
        fable.pass_s(2 * EVERY_S)
        jobs = [fable.occur(NAME, turn) for turn in (3, 4)]
        for job in jobs:
            fable.finish(job, fable.pop(job))
        return invariants(found(fable, until=5))

    assert broken("all") == []
    assert broken("last") == ["caught up"]


def test_catch_up_none_makes_none_that_is_a_minute_late() -> None:
    def broken(rule: str) -> list[str]:
        fable = ran(turns=2, catch_up=rule)
        fable.pass_s(EVERY_S + 62)
        fable.run(NAME, 3)
        return invariants(found(fable, until=4))

    assert broken("last") == []
    assert broken("none") == ["caught up"]


def test_with_overlap_skip_a_time_is_left_out_while_the_last_occurrence_is_not_done() -> None:
    def broken(overlap: str, is_done: bool) -> list[str]:
        fable = ran(turns=2, overlap=overlap)
        fable.pass_s(EVERY_S)
        held = fable.occur(NAME, 3)
        lease = fable.pop(held)
        if is_done:
            fable.finish(held, lease)
        fable.pass_s(EVERY_S)  # the time of the fourth
        if not is_done:
            fable.finish(held, fable.pop(held))
        fable.run(NAME, 5)
        return invariants(found(fable, occurrence(fable, 4)))

    assert broken("skip", is_done=False) == []
    assert broken("skip", is_done=True) == ["skipped"]
    assert broken("allow", is_done=False) == ["skipped"]


def test_with_overlap_skip_two_that_overlap_are_found() -> None:
    def broken(overlap: str) -> list[str]:
        fable = ran(turns=2, overlap=overlap)
        fable.pass_s(EVERY_S)
        held = fable.occur(NAME, 3)
        fable.pop(held)
        fable.run(NAME, 4)
        fable.finish(held, fable.pop(held))
        return invariants(found(fable, until=5))

    assert broken("skip") == ["overlapping"]
    assert broken("allow") == []
