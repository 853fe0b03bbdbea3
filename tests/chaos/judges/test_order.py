"""The checker finds a job that overtook another, and does not blame an honest queue."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.chaos.judges.checker import check
from tests.chaos.judges.findings import Finding
from tests.chaos.judges.made_up_history import TTR_S, Fable
from tests.chaos.judges.order import _REACH_S
from tests.chaos.load.in_order import IN_ORDER


class Line(Fable):
    """An honest queue with one producer and one consumer."""

    def __init__(self) -> None:
        super().__init__(IN_ORDER[0])
        self.ready: dict[int, list[str]] = {4: [], 6: []}
        self.priorities: dict[str, int] = {}

    def put(self, job: str, priority: int = 4, **how: Any) -> None:
        """Add a job that is ready at once."""
        self.add(job, priority=priority, state="ready", **how)
        self.enter(job, priority)

    def enter(self, job: str, priority: int = 4) -> None:
        self.priorities[job] = priority
        self.ready[priority].append(job)

    def put_together(self, *jobs: str) -> None:
        """Add jobs in one array."""
        for job in jobs:
            self.put(job)
        asked = [event for event in self._events if event.kind == "invoke" and event.id in jobs]
        told = [event for event in self._events if event.kind == "ok" and event.id in jobs]
        for place, event in enumerate((*asked, *told)):
            event.at = asked[0].at + place * 1e-6

    def head(self) -> str | None:
        return next((self.ready[priority].pop(0) for priority in (6, 4) if self.ready[priority]), None)

    def take(self, **how: Any) -> tuple[str, int] | None:
        """Pop the next job. Returns its id and lease."""
        job = self.head()
        return (job, self.pop(job, **how)) if job else None

    def take_all(self) -> None:
        while taken := self.take():
            self.finish(*taken)

    def lose_pop(self) -> str | None:
        """Pop without anyone hearing the answer; the job goes back to the front later. Returns its id."""
        job = self.head()
        op = self.write("invoke", "pop", topic=self.topic)
        self.write("info", "pop", op, code="NOT_ANSWERED")
        return job


def order(line: Fable) -> list[Finding]:
    return [finding for finding in check(line.look()).found if finding.invariant == "order"]


@pytest.fixture
def line() -> Line:
    return Line()


def swap(line: Line, priority: int = 4) -> None:
    """Put the last job of the list first."""
    line.ready[priority].insert(0, line.ready[priority].pop())


def test_a_job_that_overtook_one_that_was_added_before_is_found_with_its_lines(line: Line) -> None:
    line.put("a")
    line.put("b")
    swap(line)
    line.take_all()
    events = line.look()
    (finding,) = check(events).findings
    assert (finding.invariant, finding.id) == ("order", "a") and "after b, which was ready later" in finding.says
    assert [(events[each - 1].command, events[each - 1].id) for each in finding.lines if events[each - 1].id] == [
        ("add", "a"),
        ("add", "b"),
        ("pop", "b"),
        ("pop", "a"),
    ]


def test_a_job_that_overtook_one_of_the_same_array_is_found(line: Line) -> None:
    line.put_together("a", "b", "c")
    line.take_all()
    assert order(line) == []
    line.put_together("d", "e", "f")
    swap(line)
    line.take_all()
    assert [finding.id for finding in order(line)] == ["d", "e"]


def test_a_job_that_overtook_a_delayed_one_that_was_seen_ready_is_found(line: Line) -> None:
    for number, seen in enumerate(("delayed", "ready")):
        late, new = f"late{number}", f"new{number}"
        line.add(late, delay=0.02, state="delayed")
        line.pass_s(0.03)
        line.write("ok", "get", line.write("invoke", "get", id=late), id=late, state=seen)
        line.enter(late)
        line.put(new)
        swap(line)
        line.take_all()
    assert [finding.id for finding in order(line)] == ["late1"]


def test_a_job_that_was_given_back_stands_at_the_end(line: Line) -> None:
    for number, fair in enumerate((True, False)):
        for name in ("a", "b"):
            line.put(f"{name}{number}")
        taken = line.take()
        assert taken
        line.release(*taken, delay=0)
        line.enter(taken[0])
        if not fair:
            swap(line)
        line.take_all()
    assert [finding.id for finding in order(line)] == ["b1"]


def test_a_job_that_was_given_back_is_not_overtaken_by_one_that_came_later(line: Line) -> None:
    line.put("a")
    taken = line.take()
    assert taken
    line.release(*taken, delay=0)
    line.enter("a")
    line.put("b")
    swap(line)
    line.take_all()
    assert [finding.id for finding in order(line)] == ["a"]


def test_a_lower_priority_that_comes_first_is_found(line: Line) -> None:
    line.put("low")
    line.put("high", priority=6)
    line.take_all()
    assert order(line) == []
    line.put("other", priority=6)
    line.put("lower")
    line.finish("lower", line.pop("lower"))
    line.finish("other", line.pop("other"))
    (finding,) = order(line)
    assert finding.id == "other" and "lower priority" in finding.says


def test_a_job_whose_lease_ran_out_unheard_comes_later_and_overtakes_nobody(line: Line) -> None:
    line.put("a")
    line.put("b")
    line.take(heard=False)
    line.take_all()
    line.pass_s(TTR_S)
    line.finish("a", line.pop("a"))
    assert order(line) == []


def test_an_unheard_pop_explains_one_overtaking_and_no_second(line: Line) -> None:
    for name in "abcd":
        line.put(name)
    assert line.lose_pop() == "a"
    line.finish("b", line.pop("b"))  # meanwhile a is released, to the front
    line.finish("a", line.pop("a"))
    line.finish("d", line.pop("d"))
    line.finish("c", line.pop("c"))
    line.ready[4].clear()
    assert [(finding.id, finding.excused) for finding in order(line)] == [("a", True), ("c", False)]


@pytest.mark.parametrize("faulty", [True, False])
def test_an_empty_pop_explains_an_overtaking_only_during_a_fault(line: Line, faulty: bool) -> None:
    """It gave up a server that was away; what that gave it later was put back at the front."""
    for name in "ab":
        line.put(name)
    op = line.write("invoke", "pop", topic=line.topic)
    if faulty:
        line.fault()
    line.write("ok", "pop", op, topic=line.topic)
    line.finish("b", line.pop("b"))
    line.finish("a", line.pop("a"))
    line.ready[4].clear()
    assert [(finding.id, finding.excused) for finding in order(line)] == [("a", faulty)]


def test_an_unheard_pop_of_long_ago_explains_nothing(line: Line) -> None:
    assert line.lose_pop() is None
    line.pass_s(_REACH_S)
    line.put("a")
    line.put("b")
    swap(line)
    line.take_all()
    assert [finding.excused for finding in order(line)] == [False]


def test_a_fault_excuses_no_other_order_but_of_what_it_forgot_that_it_was_ready(line: Line) -> None:
    line.add("late", delay=0.02, state="delayed")
    line.put("a")
    line.put("b")
    line.pass_s(0.03)
    line.write("ok", "get", line.write("invoke", "get", id="late"), id="late", state="ready")
    line.fault("local", forgets_s=2)
    swap(line)
    line.put("c")
    line.take_all()
    line.finish("late", line.pop("late"))
    assert [(finding.id, finding.excused) for finding in order(line)] == [("a", False), ("late", True)]


_KINDS = ("put", "put", "together", "high", "take", "take", "back", "lose", "fault")
_STEPS = st.lists(st.tuples(st.sampled_from(_KINDS), st.booleans()), max_size=50)


def told(line: Line, steps: list[tuple[str, bool]]) -> None:
    """Do these steps on an honest queue."""
    away: str | None = None
    for number, (step, sure) in enumerate(steps):
        if away:  # what an unheard pop took returns to the front
            line.ready[line.priorities[away]].insert(0, away)
            away = None
        match step:
            case "put" | "high":
                line.put(f"j{number}", 4 if step == "put" else 6, heard=sure)
            case "together":
                line.put_together(*(f"j{number}.{part}" for part in range(3)))
            case "lose":
                away = line.lose_pop()
                if taken := line.take():
                    line.finish(*taken)
            case "fault":
                line.fault(for_s=0.5)
            case _ if taken := line.take():
                if step == "take":
                    line.finish(*taken, heard=sure)
                else:
                    line.release(*taken, delay=0, counts=sure)
                    line.enter(taken[0], line.priorities[taken[0]])
    if away:
        line.ready[line.priorities[away]].insert(0, away)


@given(_STEPS)
def test_any_honest_line_is_clean(steps: list[tuple[str, bool]]) -> None:
    line = Line()
    told(line, steps)
    line.take_all()
    assert check(line.look()).findings == []


@given(_STEPS)
def test_a_job_that_overtakes_is_found_in_whatever_line(steps: list[tuple[str, bool]]) -> None:
    line = Line()
    told(line, steps)
    line.pass_s(_REACH_S)
    line.put("last")
    line.put("very last")
    swap(line)
    line.take_all()
    assert "last" in [finding.id for finding in check(line.look()).findings if finding.invariant == "order"]
