"""The checker finds jobs of a key that run together or before their turn, and does not blame an honest queue."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.chaos.judges.checker import check
from tests.chaos.judges.findings import Finding
from tests.chaos.judges.made_up_history import TTR_S, Fable


class Keyed(Fable):
    """An honest queue whose jobs all have the same key."""

    def put(self, job: str, **how: Any) -> None:
        """Add a job that is ready at once."""
        self.add(job, key="k", **{"state": "ready"} | how)

    def next(self) -> str | None:
        """The job that may run next, if any."""
        alive = [job for job, tale in self.jobs.items() if tale.state in ("delayed", "reserved")]
        held = [job for job in alive if self.jobs[job].until > self.redis]
        due = [job for job in alive if self.jobs[job].due <= self.redis]
        return None if held else min(due, key=lambda job: self.jobs[job].due, default=None)

    def take(self, **how: Any) -> tuple[str, int] | None:
        """Pop the next job. Returns its id and lease."""
        job = self.next()
        return (job, self.pop(job, **how)) if job else None

    def end_all(self) -> None:
        self.pass_s(60)
        while taken := self.take():
            self.finish(*taken)


@pytest.fixture
def queue() -> Keyed:
    queue = Keyed()
    for job in "ab":
        queue.put(job)
    return queue


def found(queue: Fable) -> list[tuple[str, str | None, bool]]:
    told: list[Finding] = check(queue.look()).found
    return [(each.invariant, each.id, each.excused) for each in told if each.invariant in ("together", "turn")]


def test_a_job_that_runs_while_another_of_its_key_is_reserved_is_found_with_its_lines(queue: Keyed) -> None:
    lease = queue.pop("a")
    queue.touch("a", lease)
    queue.pass_s(TTR_S - 0.5)
    queue.finish("b", queue.pop("b"))
    queue.finish("a", lease)
    events = queue.look()
    (finding,) = check(events).findings
    assert (finding.invariant, finding.id) == ("together", "b") and "while a was reserved" in finding.says
    told = [(event.command, event.id) for event in (events[line - 1] for line in finding.lines) if event.id]
    assert told == [("pop", "a"), ("touch", "a"), ("touch", "a"), ("pop", "b")]


@pytest.mark.parametrize("word", ["finish", "release", "delete"])
@pytest.mark.parametrize("done", [True, False])
def test_a_word_that_nobody_knows_about_may_have_freed_the_key(queue: Keyed, word: str, done: bool) -> None:
    lease = queue.pop("a")
    match word:
        case "finish":
            queue.finish("a", lease, heard=False, done=done)
        case "release":
            queue.release("a", lease, 0, heard=False)
            queue.delete("a", heard=False)
        case "delete":
            queue.delete("a", heard=False, done=done)
    queue.finish("b", queue.pop("b"))
    assert found(queue) == []


def test_jobs_of_other_keys_and_without_one_hinder_nobody(queue: Keyed) -> None:
    queue.add("other", key="l")
    queue.add("none")
    lease = queue.pop("a")
    for job in ("other", "none"):
        queue.finish(job, queue.pop(job))
    queue.finish("a", lease)
    queue.end_all()
    assert found(queue) == []


def test_a_job_that_was_seen_ready_runs_before_one_that_came_later() -> None:
    for seen, turns in (("ready", [("turn", "new", False)]), ("delayed", [])):
        queue = Keyed()
        queue.put("old", delay=0.02, state="delayed")
        queue.pass_s(0.03)
        queue.write("ok", "get", queue.write("invoke", "get", id="old"), id="old", state=seen)
        queue.put("new")
        queue.finish("new", queue.pop("new"))
        queue.end_all()
        assert found(queue) == turns


def test_a_job_that_may_have_been_deleted_or_may_have_died_lets_others_run(queue: Keyed) -> None:
    queue.delete("a", heard=False)
    queue.finish("b", queue.pop("b"))
    queue.put("mortal", tries=1)
    queue.put("c")
    queue.pop("mortal")
    queue.pass_s(TTR_S)
    queue.finish("c", queue.pop("c"))
    assert found(queue) == []


def test_a_job_whose_lease_ended_is_next_unless_one_is_due_earlier(queue: Keyed) -> None:
    queue.pop("b")  # before its turn, which is found, too
    queue.pass_s(TTR_S)
    queue.finish("a", queue.pop("a"))
    queue.pop("b")
    queue.pass_s(TTR_S)
    queue.put("c")
    queue.finish("c", queue.pop("c"))
    queue.end_all()
    assert found(queue) == [("turn", "c", False), ("turn", "b", False)]


def test_a_job_whose_lease_ended_is_next_only_if_none_is_due_earlier() -> None:
    """As where the timer of the earlier one was late."""
    for early, late, turns in ((0.01, 0.02, [("turn", "taken", False)]), (0.02, 0.01, [])):
        queue = Keyed()
        queue.put("waits", delay=early, state="delayed")
        queue.put("taken", delay=late, state="delayed")
        queue.pass_s(0.05)
        queue.pop("taken")
        op = queue.write("invoke", "get", id="waits")
        queue.write("ok", "get", op, id="waits", state="ready", due=queue.jobs["waits"].due)
        queue.pass_s(TTR_S)
        queue.finish("taken", queue.pop("taken"))
        queue.end_all()
        assert found(queue) == turns


def test_a_job_keeps_its_key_through_a_back_off(queue: Keyed) -> None:
    queue.finish("a", queue.pop("a"))
    queue.put("late")
    queue.release("late", queue.pop("late"), 0.5)
    queue.pass_s(0.1)
    queue.finish("b", queue.pop("b"))  # though it is due earlier
    queue.end_all()
    assert found(queue) == [("turn", "b", False), ("turn", "late", False)]


def test_what_a_fault_may_have_forgotten_is_excused(queue: Keyed) -> None:
    lease = queue.pop("a")
    queue.fault("local", forgets_s=2, for_s=0.1)
    queue.finish("b", queue.pop("b"))
    queue.finish("a", lease)
    queue.put("c")
    queue.fault("local", forgets_s=2, for_s=0.1)
    queue.put("d")
    queue.finish("d", queue.pop("d"))
    queue.end_all()
    assert found(queue) == [("together", "b", True), ("turn", "d", True)]


_KINDS = ("put", "put", "later", "take", "take", "back", "delete", "lapse", "fault")
_STEPS = st.lists(st.tuples(st.sampled_from(_KINDS), st.booleans()), max_size=50)


def told(queue: Keyed, steps: list[tuple[str, bool]]) -> None:
    """Do these steps on an honest queue."""
    for number, (step, sure) in enumerate(steps):
        match step:
            case "put":
                queue.put(f"j{number}", heard=sure)
            case "later":
                queue.put(f"j{number}", delay=0.1, state="delayed", heard=sure)
            case "delete" if job := queue.next():
                queue.delete(job, heard=sure)
            case "fault":
                queue.fault(for_s=0.5)
            case "lapse":
                queue.take(heard=sure)
                queue.pass_s(TTR_S)
            case _ if taken := queue.take():
                if step == "take":
                    queue.finish(*taken, heard=sure)
                else:
                    queue.release(*taken, delay=0.0 if sure else 0.3, heard=sure)


@given(_STEPS)
def test_any_honest_key_is_clean(steps: list[tuple[str, bool]]) -> None:
    queue = Keyed()
    told(queue, steps)
    queue.end_all()
    assert check(queue.look()).findings == []


@given(_STEPS)
def test_a_job_that_runs_before_its_turn_is_found_in_whatever_history(steps: list[tuple[str, bool]]) -> None:
    queue = Keyed()
    told(queue, steps)
    queue.end_all()
    for job in ("last", "very last"):
        queue.put(job)
    queue.finish("very last", queue.pop("very last"))
    queue.end_all()
    assert ("turn", "very last", False) in found(queue)
