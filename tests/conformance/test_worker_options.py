"""What every client's worker does with its options: limits, hooks, middleware, and several addresses."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.participants import Worker
from tests.conformance.shift import Shift
from tests.kit.service import ServiceProcess
from tests.kit.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

SUMS = {"finished": 0, "failed": 0, "retried": 0, "buried": 0, "died": 0, "lost": 0}


async def stopped(worker: Worker) -> tuple[str, dict[str, Any]]:
    """Wait for a clean end; returns the reason why the worker stopped, and its sums."""
    assert await worker.end() == 0
    events = {line["event"]: line for line in worker.lines if "event" in line}
    return events["worker.stopping"]["reason"], {name: events["worker.stopped"][name] for name in SUMS}


@pytest.mark.parametrize(("most", "concurrency"), [(3, 2), (4, 10)])
async def test_a_worker_takes_no_more_than_max_jobs(shift: Shift, most: int, concurrency: int) -> None:
    for number in range(8):
        await shift.add(str(number), {"do": "return"})
    async with shift.worker(max_jobs=most, concurrency=concurrency) as worker:
        assert await stopped(worker) == ("max_jobs", {**SUMS, "finished": most})
    figures = await shift.stage.figures(shift.topic)
    assert (figures["ready"], figures["reserved"]) == (8 - most, 0)


@pytest.mark.parametrize("busy", [True, False])
async def test_a_worker_stops_when_its_time_is_over_though_its_poll_would_wait(shift: Shift, busy: bool) -> None:
    if busy:
        await shift.add("1", {"do": "sleep", "seconds": 0.7}, ttr=60)
    async with shift.worker(max_time_s=0.5, poll_s=60) as worker:
        reason, sums = await stopped(worker)
        assert reason == "max_time"
        assert sums == {**SUMS, "finished": 1 if worker.told("handler", "started") else 0}
    assert await shift.reserved() == 0


async def test_a_worker_that_takes_more_memory_than_it_may_does_one_job_each_time(shift: Shift) -> None:
    await shift.add("1", {"do": "return"})
    async with shift.worker(memory_mb=1, concurrency=1) as worker:
        assert await stopped(worker) == ("memory", {**SUMS, "finished": 1})


async def test_the_hooks_get_the_error_the_job_and_the_reason_of_its_death(shift: Shift) -> None:
    async with shift.worker(max_jobs=6, concurrency=1) as worker:
        again = await shift.add("again", {"do": "fail", "reason": "no order"}, tries=2, backoff=[0])
        await worker.event("job.died", again)
        retried = await shift.add("retried", {"do": "retry"}, tries=1)
        once = await shift.add("once", {"do": "fail", "reason": "no order"}, ttr=0)
        buried = await shift.add("buried", {"do": "bury", "reason": "poison"})
        later = await shift.add("later", {"do": "retry", "after": 60})
        sums = {**SUMS, "failed": 3, "retried": 1, "buried": 1, "died": 2}
        assert await stopped(worker) == ("max_jobs", sums)
    hooks = [(line["hook"], line["id"], line["message"]) for line in worker.lines if "hook" in line]
    error = "no order"
    assert [each for each in hooks if each[0] == "error"] == [("error", each, error) for each in (again, again, once)]
    deaths = {line["id"]: line["reason"] for line in worker.lines if line.get("hook") == "death"}
    assert deaths == {
        **{again: (await shift.get(again))["reason"], buried: "poison"},
        retried: "the tries ran out: 1 of 1",
    }
    assert [each[2] for each in hooks if each[:2] == ("death", again)] == [error]
    died = {line["id"]: line["reason"] for line in worker.lines if line.get("event") == "job.died"}
    assert died == {job: deaths[job] for job in (again, retried)}
    assert (await shift.get(retried))["reason"] == deaths[retried]

    def ends(job: str) -> list[tuple[str, int, str]]:
        about = [line for line in worker.lines if line.get("event", "").startswith("job.") and line["id"] == job]
        return [(line["event"], line["attempt"], line["error"]) for line in about if line["event"] != "job.started"]

    assert ends(again) == [("job.failed", 1, error), ("job.failed", 2, error), ("job.died", 2, error)]
    assert [each[:2] for each in ends(retried)] == [("job.died", 1)]
    assert ends(once) == [("job.failed", 1, error)]
    assert [each[:2] for each in ends(buried)] == [("job.buried", 1)]
    assert [each[:2] for each in ends(later)] == [("job.retried", 1)]


async def test_middleware_is_around_the_handler_the_first_outermost_and_may_decide_the_end(shift: Shift) -> None:
    done = await shift.add("done", {"do": "return"}, priority=9)
    buried = await shift.add("buried", {"do": "return", "inner": "buries"}, priority=8)
    failed = await shift.add("failed", {"do": "fail", "reason": "no"}, priority=7)
    async with shift.worker(max_jobs=3, concurrency=1, middleware=True) as worker:
        await stopped(worker)
    steps = [
        (line.get("around") or line["handler"], line["id"])
        for line in worker.lines
        if {"around", "handler"} & line.keys()
    ]
    assert [word for word, job in steps if job == done] == ["outer", "inner", "started", "returned", "outer after done"]
    assert [word for word, job in steps if job == buried] == ["outer", "inner"]
    assert [word for word, job in steps if job == failed] == ["outer", "inner", "started"]
    states = [await shift.get(job) for job in (done, buried, failed)]
    assert [(each["state"], each["reason"]) for each in states] == [
        ("finished", None),
        ("dead", "not this one"),
        ("dead", "inner: no"),
    ]


async def test_the_lateness_is_that_of_this_delivery(shift: Shift) -> None:
    for job in ("first", "again"):
        await shift.add(job, {"do": "return"})
    popped = await shift.stage.client.ask("pop", topic=shift.topic, count=2)
    first, again = popped["jobs"]
    first["due"] -= 1000
    again["due"] -= 1000
    again["ready"] = again["due"] + 990
    done = {"success": True, "id": "x", "state": "finished"}
    async with shift.worker_through_the_proxy() as worker:
        await until(shift.stage.parked)
        brought = [[done, {**popped, **job, "jobs": [job]}] for job in (first, again)]
        shift.stage.proxy.faults = [{"status": 200, "answer": answers} for answers in brought]
        await shift.add("begins", {"do": "return"})  # its end and the next pop share a request
        late_s = [(await worker.event("job.started", job["id"]))["late_s"] for job in (first, again)]
        assert [round(each, -2) for each in late_s] == [1000, 0]


async def test_a_worker_of_two_instances_goes_on_when_one_stops_or_is_killed(shift: Shift) -> None:
    """Whichever of them it polls: each is stopped or killed, and comes back."""
    service = shift.stage.service
    async with ServiceProcess(*service._flags[2:]) as other:
        both = [service, other]
        async with shift.worker(urls=[each.url for each in both]) as worker:

            async def parked() -> bool:
                return any([await each.parked(1) for each in both if each.process and each.process.returncode is None])

            for number, (end, each) in enumerate((end, each) for end in ("stop", "kill") for each in both):
                await until(parked)
                await getattr(each, end)()
                await until(parked)  # at the other one
                await each.start()
                job = await shift.add(str(number), {"do": "return"})
                await worker.event("job.finished", job)
            assert await worker.stop() == 0
            assert not [line for line in worker.lines if line.get("event", "").startswith("service.")]
