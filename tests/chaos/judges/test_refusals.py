"""The checker finds a refusal without a reason, and accepts one with a reason."""

from __future__ import annotations

import pytest

from tests.chaos.judges.checker import check
from tests.chaos.judges.findings import Finding
from tests.chaos.judges.made_up_history import TTR_S, Fable


def held() -> Fable:
    """One job, held by a worker."""
    fable = Fable()
    fable.add("a")
    fable.pop("a")
    return fable


@pytest.fixture
def fable() -> Fable:
    return held()


def refuse(fable: Fable, command: str, code: str, lease: int | None = None) -> None:
    """Somebody asks that of the job, and is refused with that code."""
    op = fable.write("invoke", command, id="a", lease=lease)
    fable.write("fail", command, op, id="a", code=code)


def refusals(fable: Fable) -> list[Finding]:
    fable.drain()
    return [finding for finding in check(fable.look()).found if finding.invariant == "refusal"]


def test_a_worker_whose_lease_nobody_took_is_refused_for_no_reason() -> None:
    commands = ("finish", "touch", "release", "bury")
    codes = ("STALE_LEASE", "NOT_RESERVED", "NOT_FOUND", "WRONG_STATE")
    for command, code in zip(commands, codes, strict=True):
        fable = held()
        fable.pass_s(TTR_S - 0.1)
        refuse(fable, command, code, fable.jobs["a"].lease)
        (finding,) = refusals(fable)
        assert finding.id == "a" and f"{command} was answered {code}" in finding.says and len(finding.lines) == 2


def test_a_worker_whose_lease_is_over_may_be_refused(fable: Fable) -> None:
    fable.pass_s(TTR_S)
    refuse(fable, "finish", "STALE_LEASE", fable.jobs["a"].lease)
    assert refusals(fable) == []


def test_a_lease_that_was_touched_is_over_later(fable: Fable) -> None:
    lease = fable.jobs["a"].lease
    fable.pass_s(1)
    fable.touch("a", lease)
    fable.pass_s(TTR_S - 0.1)
    refuse(fable, "release", "NOT_RESERVED", lease)
    assert len(refusals(fable)) == 1


@pytest.mark.parametrize("heard", [True, False])
def test_who_comes_after_another_may_be_refused(fable: Fable, heard: bool) -> None:
    lease = fable.jobs["a"].lease
    fable.delete("a", heard)
    refuse(fable, "finish", "NOT_FOUND", lease)
    refuse(fable, "touch", "NOT_FOUND", lease)
    assert refusals(fable) == []


def test_a_repeated_word_that_was_perhaps_heard_the_first_time_may_be_refused(fable: Fable) -> None:
    lease = fable.jobs["a"].lease
    fable.release("a", lease, delay=1, heard=False)
    refuse(fable, "release", "NOT_RESERVED", lease)
    assert refusals(fable) == []


def test_a_delete_of_a_job_that_is_there_is_refused_for_no_reason(fable: Fable) -> None:
    refuse(fable, "delete", "NOT_FOUND")
    assert len(refusals(fable)) == 1


def test_what_a_fault_forgot_may_be_refused(fable: Fable) -> None:
    fable.fault("local", forgets_s=2)
    refuse(fable, "finish", "NOT_FOUND", fable.jobs["a"].lease)
    assert refusals(fable) == []
