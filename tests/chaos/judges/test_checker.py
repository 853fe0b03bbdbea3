"""The checker finds what is planted in a history, and nothing in an honest one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.chaos.history import Event, History, read
from tests.chaos.judges.checker import check
from tests.chaos.judges.findings import INVARIANTS, Finding
from tests.chaos.judges.made_up_history import TOPIC, TTR_S, Fable
from tests.chaos.judges.slots import slot_of_job


def found(fable: Fable, *gone: str, **lies: int) -> list[str]:
    """The broken invariants, each once, without excused ones."""
    return sorted({finding.invariant for finding in check(fable.look(*gone, **lies)).findings})


def excused(events: list[Event]) -> list[Finding]:
    report = check(events)
    assert report.findings == []
    return report.found


@pytest.fixture
def fable() -> Fable:
    """A history with one finished job and one that a worker holds."""
    fable = Fable()
    fable.add("done", delay=1)
    fable.add("held")
    fable.pop("held")
    fable.pass_s(1)
    fable.finish("done", fable.pop("done"))
    return fable


def test_an_honest_history_is_clean(fable: Fable) -> None:
    fable.drain()
    report = check(fable.look())
    assert (report.found, report.figures.adds, report.figures.deliveries) == ([], 2, 3)


def test_a_lost_job_is_found_with_its_lines(fable: Fable) -> None:
    fable.add("a", delay=1)
    fable.lose("a")
    fable.drain()
    events = fable.look("a")
    (finding,) = (finding for finding in check(events).findings if finding.invariant == "lost")
    assert finding.id == "a"
    assert [(events[line - 1].command, events[line - 1].kind) for line in finding.lines] == [
        ("add", "invoke"),
        ("add", "ok"),
        ("get", "invoke"),
        ("get", "fail"),
    ]
    assert str(finding).startswith("lost: a: ") and f"(lines {finding.lines[0]}, " in str(finding)


def test_a_job_that_was_delivered_and_then_lost_is_lost(fable: Fable) -> None:
    fable.lose("held")
    assert "lost" in found(fable, "held")


def test_a_job_whose_end_is_told_but_was_asked_by_nobody_is_lost(fable: Fable) -> None:
    fable.jobs["held"].state = "deleted"
    fable.totals["deleted"] += 1
    assert found(fable) == ["count", "lost"]


def test_a_job_that_nobody_saw_last_is_lost(fable: Fable) -> None:
    fable.drain()
    fable.look()
    fable.add("a")
    assert [finding.id for finding in check(fable.look()[:-4]).findings if finding.invariant == "lost"] == ["a"]


def test_a_job_that_stays_where_it_is_is_stuck(fable: Fable) -> None:
    assert found(fable) == ["stuck"]


def test_a_job_that_stays_though_nobody_knows_whether_it_was_added_is_stuck(fable: Fable) -> None:
    fable.drain()
    fable.add("a", heard=False)
    assert found(fable) == ["stuck"]


def test_an_add_without_an_answer_may_be_lost_or_delivered(fable: Fable) -> None:
    fable.add("a", heard=False)
    fable.add("b", done=False)
    fable.drain()
    assert found(fable, "b") == []


def test_an_add_that_was_refused_must_not_be_delivered(fable: Fable) -> None:
    fable.add("a", code="NO_ROOM")
    fable.drain()
    assert "unknown" in found(fable)


@pytest.mark.parametrize("lie", [{"body": 99}, {"topic": "other"}])
def test_a_job_that_comes_with_another_body_or_topic_is_found(fable: Fable, lie: dict[str, Any]) -> None:
    fable.pass_s(TTR_S)
    fable.finish("held", fable.pop("held", **lie))
    assert found(fable) == ["unknown"]


def test_an_early_job_is_found_even_by_a_millisecond(fable: Fable) -> None:
    fable.add("a", delay=1)
    fable.pass_s(0.996 - 0.001)
    fable.finish("a", fable.pop("a"))
    fable.add("b", delay=1)
    fable.pass_s(1 - 0.001)
    fable.finish("b", fable.pop("b"))
    fable.drain()
    assert [(finding.invariant, finding.id) for finding in check(fable.look()).findings] == [("early", "a")]


def test_a_job_that_is_early_by_its_delay_is_found_though_its_due_time_was_told_wrong(fable: Fable) -> None:
    fable.add("a", delay=1)
    fable.jobs["a"].due -= 1
    fable._events[-1].due = fable.jobs["a"].due
    fable.finish("a", fable.pop("a"))
    fable.drain()
    assert found(fable) == ["early"]


def test_a_job_that_is_early_after_a_release_is_found(fable: Fable) -> None:
    fable.add("a")
    fable.release("a", fable.pop("a"), delay=1)
    fable.finish("a", fable.pop("a"))
    fable.drain()
    assert found(fable) == ["early"]


def test_a_release_that_told_a_wrong_time_is_found_by_its_delay(fable: Fable) -> None:
    fable.add("a")
    fable.release("a", fable.pop("a"), delay=1)
    fable._events[-1].due = fable.redis
    fable.finish("a", fable.pop("a"))
    fable.drain()
    assert found(fable) == ["early"]


def test_a_lease_that_is_over_or_was_given_up_overlaps_with_nothing(fable: Fable) -> None:
    fable.add("a")
    fable.release("a", fable.pop("a"), delay=0)
    fable.release("a", fable.pop("a"), delay=0, heard=False)
    fable.pop("a")
    fable.pass_s(TTR_S)
    fable.finish("a", fable.pop("a"))
    fable.drain()
    assert found(fable) == []


def test_a_touch_moves_the_end_of_a_lease(fable: Fable) -> None:
    fable.add("a")
    lease = fable.pop("a")
    fable.pass_s(1)
    fable.touch("a", lease)
    fable.pass_s(1.5)
    fable.finish("a", fable.pop("a"))
    fable.drain()
    assert found(fable) == ["overlap"]


def test_a_lease_that_is_given_twice_is_found(fable: Fable) -> None:
    lease = fable.jobs["held"].lease
    fable.pass_s(TTR_S)
    fable.jobs["held"].lease = lease
    fable.finish("held", fable.pop("held", lease=lease))
    assert "lease" in found(fable)


def test_a_job_that_comes_after_its_delete_is_found(fable: Fable) -> None:
    fable.delete("held")
    fable.pass_s(TTR_S)
    fable.pop("held")
    fable.drain()
    assert "revived" in found(fable)


def parked(fable: Fable, job: str) -> None:
    """A pop that has been waiting since before the next two commands, and gets a job all the same."""
    op = fable.write("invoke", "pop", process="c")
    fable.delete(job)
    fable.add("another", delay=0)
    fable.pop(job)
    *_, invoke, told = fable._events
    fable._events.remove(invoke)
    told.process, told.op = "c", op


def test_a_pop_that_waited_and_got_a_deleted_job_is_found_by_the_clock_of_redis(fable: Fable) -> None:
    fable.pass_s(TTR_S)
    parked(fable, "held")
    fable.drain()
    assert "revived" in found(fable)


def test_a_pop_that_got_a_job_before_it_was_deleted_is_none(fable: Fable) -> None:
    fable.pass_s(TTR_S)
    op = fable.write("invoke", "delete", id="held")
    fable.pop("held")
    fable.jobs["held"].state = "deleted"
    fable.totals["deleted"] += 1
    fable.write("ok", "delete", op, id="held")
    fable.drain()
    assert found(fable) == []


def test_a_finish_that_is_repeated_by_a_late_worker_is_none(fable: Fable) -> None:
    first = fable.jobs["held"].lease
    fable.pass_s(TTR_S)
    fable.finish("held", fable.pop("held"))
    fable.finish("held", first)
    assert found(fable) == []


def test_a_finish_of_an_old_lease_that_was_taken_is_found(fable: Fable) -> None:
    first = fable.jobs["held"].lease
    fable.pass_s(TTR_S)
    op = fable.write("invoke", "pop")
    fable.finish("held", first)
    fable.write("ok", "pop", op, id="held", lease=first + 3_000_000, ttr=TTR_S, attempt=2, topic="t", body=1)
    fable.totals["delivered"] += 1
    assert found(fable) == ["revived"]


def test_a_finish_of_an_old_lease_that_was_taken_though_another_has_the_job_is_found(fable: Fable) -> None:
    first = fable.jobs["held"].lease
    fable.pass_s(TTR_S)
    fable.pop("held")
    fable.jobs["held"].lease = first
    fable.finish("held", first)
    assert found(fable) == ["stale"]


@pytest.mark.parametrize("command", ["touch", "release", "bury"])
def test_another_word_of_an_old_lease_that_was_taken_is_found(fable: Fable, command: str) -> None:
    first = fable.jobs["held"].lease
    fable.pass_s(TTR_S)
    fable.pop("held")
    fable.write("ok", command, fable.write("invoke", command, id="held", lease=first), id="held")
    fable.drain()
    assert found(fable) == ["stale"]


def test_more_attempts_than_tries_are_found(fable: Fable) -> None:
    fable.add("a", tries=1)
    fable.pop("a")
    fable.pass_s(TTR_S)
    fable.finish("a", fable.pop("a"))
    fable.drain()
    assert found(fable) == ["tries"]


def test_attempts_that_do_not_rise_are_found_but_after_one_that_was_none(fable: Fable) -> None:
    fable.add("a")
    fable.release("a", fable.pop("a"), delay=0, counts=False)
    fable.release("a", fable.pop("a"), delay=0)
    fable.drain()
    assert found(fable) == []
    fable.add("b")
    fable.release("b", fable.pop("b"), delay=0)
    fable.finish("b", fable.pop("b", attempt=1))
    assert found(fable) == ["tries"]


@pytest.mark.parametrize("total", ["created", "finished", "deleted", "delivered"])
def test_a_wrong_count_is_found(fable: Fable, total: str) -> None:
    fable.drain()
    assert found(fable) == []
    assert found(fable, **{total: fable.totals[total] - 1}) == ["count"]
    if total != "delivered":  # some are delivered to nobody
        assert found(fable, **{total: fable.totals[total] + 1}) == ["count"]


def test_an_id_that_is_created_twice_is_found(fable: Fable) -> None:
    fable.add("held", result="created")
    fable.drain()
    assert found(fable) == ["created"]


def test_what_fsck_found_and_odd_answers_are_found(fable: Fable) -> None:
    fable.drain()
    fable.write("ok", "fsck", fable.write("invoke", "fsck"), faults=1, counts={"orphan": 1})
    fable.write("fail", "add", fable.write("invoke", "add", id="x", topic=TOPIC), id="x", code="NO_ROOM")
    assert found(fable) == ["broken"]
    fable.write("fail", "pop", fable.write("invoke", "pop"), code="NO_ROOM")
    fable.write("info", "add", fable.write("invoke", "add", id="x", topic=TOPIC), id="x", code="INTERNAL")
    assert found(fable) == ["broken", "refusal"]


def test_what_was_only_local_may_be_forgotten_by_a_fault_that_says_so(fable: Fable) -> None:
    fable.drain()
    fable.add("a", delay=9)
    fable.pass_s(1)
    fable.fault("local", forgets_s=2)
    fable.lose("a")
    (lost,) = excused(fable.look("a"))
    assert (lost.invariant, lost.id, lost.excused) == ("lost", "a", True)


@pytest.mark.parametrize(
    ("durability", "forgets", "age_s"),
    [("replicated", ("local",), 1.0), ("local", (), 1.0), ("local", ("replicated",), 1.0), ("local", ("local",), 2.1)],
)
def test_what_was_safer_or_older_may_not_be_forgotten(
    fable: Fable, durability: str, forgets: tuple[str, ...], age_s: float
) -> None:
    fable.drain()
    fable.add("a", delay=9, durability=durability)
    fable.pass_s(age_s)
    fable.fault(*forgets, forgets_s=2)
    fable.lose("a")
    assert "lost" in found(fable, "a")


@pytest.mark.parametrize(("nemesis", "excused"), [("freeze-master", True), ("kill-redis", False)])
def test_what_comes_after_a_kill_may_not_be_forgotten(fable: Fable, nemesis: str, excused: bool) -> None:
    fable.drain()
    op = fable.begin_fault("local", nemesis=nemesis, forgets_s=1)
    fable.pass_s(0.6)
    fable.add("a", delay=9)
    fable.lose("a")
    fable.end_fault(op, nemesis)
    assert {finding.excused for finding in check(fable.look("a")).found} == {excused}


def test_a_job_is_not_excused_to_be_gone_because_its_end_may_be_forgotten(fable: Fable) -> None:
    fable.drain()
    fable.add("a", durability="replicated")
    fable.finish("a", fable.pop("a"))
    fable.fault("local", forgets_s=2)
    fable.lose("a")
    assert "lost" in found(fable, "a")


@pytest.mark.parametrize(("off", "excused"), [(0, True), (1, False)])
def test_a_server_that_does_not_have_a_job_cannot_forget_it(fable: Fable, off: int, excused: bool) -> None:
    fable.drain()
    fable.add("a", delay=9)
    slot = slot_of_job("a") + off
    op = fable.begin_fault("local", forgets_s=1, slots=(slot, slot + 100))
    fable.lose("a")
    fable.end_fault(op)
    assert {finding.excused for finding in check(fable.look("a")).found} == {excused}


@pytest.mark.parametrize(
    ("durability", "after_s", "lies"), [("replicated", 2, 1), ("local", 2, 0), ("replicated", 4, 0)]
)
def test_what_says_replicated_while_no_replica_takes_anything_is_a_lie(
    fable: Fable, durability: str, after_s: float, lies: int
) -> None:
    fable.drain()
    op = fable.begin_fault(nemesis="freeze-replicas")
    fable.pass_s(after_s)
    fable.add("a", durability=durability)
    fable.end_fault(op, "freeze-replicas")
    fable.drain()
    assert found(fable) == ["lie"] * lies


def test_a_dead_job_that_nobody_buried_and_whose_tries_have_no_end_is_lost(fable: Fable) -> None:
    fable.drain()
    for job, tries in (("a", 0), ("b", 3)):
        fable.add(job, tries=tries)
        fable.jobs[job].state = "dead"
    assert [(finding.invariant, finding.id) for finding in check(fable.look()).findings] == [("lost", "a")]


def test_a_forgotten_finish_or_pop_is_counted_and_no_failure(fable: Fable) -> None:
    fable.drain()
    fable.add("a")
    lease = fable.pop("a")
    fable.add("b")
    fable.finish("b", fable.pop("b"))
    fable.fault("local", forgets_s=2)
    fable.totals["finished"] -= 1  # b's
    fable.totals["delivered"] -= 1  # a's
    fable.jobs["a"].attempt = 0
    assert lease < fable.pop("a")
    fable.finish("a", fable.jobs["a"].lease)
    fable.finish("b", fable.pop("b"))
    assert sorted(finding.invariant for finding in excused(fable.look())) == ["overlap", "revived", "tries"]


def test_who_goes_on_with_an_older_lease_after_the_newer_was_forgotten_is_excused(fable: Fable) -> None:
    fable.drain()
    fable.add("a")
    first = fable.pop("a")
    fable.pass_s(TTR_S)
    fable.pop("a")
    fable.fault("local", forgets_s=2)
    fable.totals["delivered"] -= 1
    tale = fable.jobs["a"]
    tale.lease, tale.attempt = first, 1
    fable.touch("a", first)
    fable.release("a", first, delay=1)
    fable.pass_s(1)
    fable.finish("a", fable.pop("a"))
    assert {finding.invariant for finding in excused(fable.look())} == {"stale", "tries"}


def test_a_delivery_before_the_job_was_forgotten_and_added_again_is_excused_unless_it_was_early_then(
    fable: Fable,
) -> None:
    fable.drain()
    for job, delay in (("a", 0.0), ("b", 0.5)):
        fable.add(job, delay, heard=False)
        fable.pop(job)
    for job in ("a", "b"):
        fable.lose(job)
    fable.totals["delivered"] -= 2
    op = fable.write("begin", "kill", process="nemesis", forgets=("local",), forgets_s=2)
    fable.pass_s(1)
    fable.write("end", "kill", op, process="nemesis")
    for job, delay in (("a", 0.0), ("b", 0.5)):
        fable.add(job, delay)
    fable.drain()
    report = check(fable.look())
    assert [(finding.id, finding.excused) for finding in report.found if finding.invariant == "early"] == [
        ("a", True),
        ("b", False),
    ]


def test_lateness_is_told_inside_and_outside_of_faults_and_an_outage_from_the_beginning_of_its_fault() -> None:
    fable = Fable()
    for number, late_s in enumerate([0.1, 0.2, 0.3]):
        fable.add(str(number))
        fable.pass_s(late_s - 0.002)
        fable.finish(str(number), fable.pop(str(number)))
    fable.pass_s(5)
    fable.fault(for_s=3)
    fable.add("in")
    fable.pass_s(0.7 - 0.002)
    fable.finish("in", fable.pop("in"))
    figures = check(fable.look()).figures
    assert figures.late_outside == {"p50": pytest.approx(200), "p99": pytest.approx(300), "max": pytest.approx(300)}
    assert figures.late_inside["p50"] == pytest.approx(700)
    assert figures.outage_s == pytest.approx(3.0, abs=0.01) and figures.outage_of == "kill"


def test_an_outage_of_one_who_is_never_answered_again_lasts_while_it_asks() -> None:
    fable = Fable()
    fable.add("a")
    fable.fault()
    for _ in range(3):
        fable.pass_s(5)
        fable.add("a", heard=False)
    assert check(fable.look()[:-4]).figures.outage_s == pytest.approx(16, abs=0.1)


def test_lateness_beyond_what_faults_explain_is_told_with_its_job() -> None:
    fable = Fable()
    for job, broken_s in (("a", 0), ("b", 3)):
        fable.add(job)
        if broken_s:
            fable.fault(for_s=broken_s)
        fable.pass_s(7 - broken_s)
        fable.finish(job, fable.pop(job))
        fable.pass_s(10)
    figures = check(fable.look()).figures
    assert figures.late_beyond_s == pytest.approx(7, abs=0.1) and figures.latest == "a"


# Steps that an honest queue allows; each takes a number that picks the job.
_STEPS = ("add", "add", "pop", "pop", "finish", "delete", "touch", "release", "wait", "fault")
_steps = st.lists(
    st.tuples(st.sampled_from(_STEPS), st.integers(0, 9), st.integers(0, 3000), st.booleans()), max_size=60
)
Steps = list[tuple[str, int, int, bool]]


def told(steps: Steps) -> Fable:
    """The history of an honest queue."""
    fable = Fable()
    for number, (step, which, ms, sure) in enumerate(steps):
        names = list(fable.jobs)
        job = names[which % len(names)] if names else ""
        heard = sure or number % 3 > 0
        match step:
            case "add":
                fable.add(f"j{number}" if sure or not job else job, ms / 1000, heard, done=ms % 7 > 0)
            case "wait":
                fable.pass_s(ms / 1000)
            case "fault":
                fable.fault(*(("local",) if sure else ()), for_s=ms / 1000)
            case _ if not job:
                pass
            case "pop" if fable.may_pop(job):
                fable.pop(job, heard)
            case "finish" if fable.jobs[job].lease:
                fable.finish(job, fable.jobs[job].lease, heard, done=ms % 7 > 0)
            case "delete":
                fable.delete(job, heard, done=ms % 7 > 0)
            case "touch" if fable.jobs[job].lease:
                fable.touch(job, fable.jobs[job].lease, heard)
            case "release" if fable.jobs[job].lease:
                fable.release(job, fable.jobs[job].lease, ms / 1000, heard, counts=sure)
    fable.add("last", delay=1)
    return fable


@given(_steps)
def test_any_honest_history_is_clean(steps: Steps) -> None:
    fable = told(steps)
    fable.drain()
    assert check(fable.look()).found == []


def lose(fable: Fable) -> None:
    fable.lose("last")


def early(fable: Fable) -> None:
    fable.pop("last")


def double(fable: Fable) -> None:
    fable.pass_s(1)
    fable.pop("last")
    fable.pass_s(TTR_S - 0.01)
    fable.pop("last")


def revive(fable: Fable) -> None:
    fable.pass_s(1)
    fable.finish("last", fable.pop("last"))
    fable.pop("last")


def fall(fable: Fable) -> None:
    fable.pass_s(1)
    fable.pop("last")
    fable.pass_s(TTR_S)
    fable.pop("last", lease=fable.jobs["last"].lease - 5)


def invent(fable: Fable) -> None:
    fable.pop("nobody's")


def repeat(fable: Fable) -> None:
    fable.pass_s(1)
    fable.pop("last")
    fable.pass_s(TTR_S)
    fable.pop("last", attempt=1)


def miscount(fable: Fable) -> None:
    fable.totals["created"] += 1


_PLANTS = {
    lose: "lost",
    early: "early",
    double: "overlap",
    revive: "revived",
    fall: "lease",
    invent: "unknown",
    repeat: "tries",
    miscount: "count",
}


@settings(max_examples=25)
@given(_steps)
def test_each_fault_is_found_in_whatever_history_it_is_planted(steps: Steps) -> None:
    for plant, invariant in _PLANTS.items():
        fable = told(steps)
        plant(fable)
        gone = () if "last" in fable.jobs else ("last",)
        fable.drain()
        findings = [finding for finding in check(fable.look(*gone)).findings if finding.invariant == invariant]
        assert findings, invariant
        assert len(findings) == 1 or plant is miscount, invariant  # which breaks the balance too
        assert findings[0].id == {invent: "nobody's", miscount: None}.get(plant, "last"), invariant
        assert findings[0].lines, invariant


_OF_SCHEDULES = {"skipped", "caught up", "overlapping"}
_OF_KEYS = {"together", "turn"}
_OTHERS = {"stuck", "stale", "broken", "refusal", "created", "late", "order", "leak", "lie", "load", "log", "run"}


def test_every_word_of_a_finding_is_explained() -> None:
    assert {*_PLANTS.values(), *_OF_SCHEDULES, *_OF_KEYS, *_OTHERS} == {*INVARIANTS}


def test_a_history_is_read_in_the_order_of_time_without_a_line_that_was_not_ended(tmp_path: Path) -> None:
    with History(tmp_path / "a.jsonl") as one, History(tmp_path / "b.jsonl") as other:
        op = one.invoke("p", "add", id="x", topic="t", delay=0.5)
        with other.fault("kill", ("local",), 2.0):
            one.complete("p", "ok", "add", op, id="x", due=3.25, result="created")
    with (tmp_path / "b.jsonl").open("a") as file:
        file.write('{"at": 1.5, "proc')
    events = read(tmp_path)
    assert [(event.kind, event.command, event.line) for event in events] == [
        ("invoke", "add", 1),
        ("begin", "kill", 2),
        ("ok", "add", 3),
        ("end", "kill", 4),
    ]
    assert (events[0].op, events[0].delay, events[2].due, events[1].forgets) == (op, 0.5, 3.25, ("local",))
