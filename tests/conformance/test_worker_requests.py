"""The requests of every client's worker: ends of jobs and the pop for the next ones share a request, and the jobs that
it brings are handled when an end is refused, an answer is lost, or the worker is stopping."""

from __future__ import annotations

import itertools
import signal
from typing import Any

import pytest

from tests.conformance.participants import Worker
from tests.conformance.proxy import Request
from tests.conformance.shift import Shift
from tests.kit.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

NOT_NOW = {"success": False, "code": "UNAVAILABLE", "error": "not now"}
REFUSALS = [
    {"success": False, "code": "BAD_FIELD", "error": "no such topic", "field": "topics"},
    {"success": False, "code": "INTERNAL", "error": "a defect"},
]


def names(request: Request) -> list[str]:
    return [each["command"] for each in request.commands]


def with_ends(shift: Shift, word: str = "finish") -> list[Request]:
    """The requests with ends of jobs that the proxy has seen."""
    return [request for request in shift.stage.proxy.requests if word in names(request)]


def most_at_a_time(worker: Worker) -> int:
    """The largest number of handlers that ran at a time."""
    steps = [{"started": 1, "returned": -1}[line["handler"]] for line in worker.lines if "handler" in line]
    return max(itertools.accumulate(steps))


async def test_a_worker_with_a_backlog_makes_one_request_a_job(shift: Shift) -> None:
    jobs = [await shift.add(str(number), {"do": "return"}) for number in range(10)]
    async with shift.worker_through_the_proxy() as worker:
        await worker.event("job.finished", times=10)
        await until(shift.stage.parked)  # a poll, now that no job is left
        assert worker.told("handler", "started") == jobs
        poll, *ends, last = shift.stage.proxy.requests
        assert [names(request) for request in (poll, *ends, last)] == [["pop"], *[["finish", "pop"]] * 10, ["pop"]]
        assert poll.commands[0]["wait"] == last.commands[0]["wait"] > 0
        assert not any(request.commands[1].get("wait") for request in ends)
        assert {request.commands[1]["worker"] for request in ends} == {poll.commands[0]["worker"]}


async def test_a_pop_goes_with_ends_only_while_no_poll_is_out_and_for_no_more_than_there_is_room(shift: Shift) -> None:
    hands = 3 if shift.participant.concurrent else 1
    async with shift.worker_through_the_proxy(concurrency=3) as worker:
        await until(shift.stage.parked)
        alone = await shift.add("alone", {"do": "sleep", "seconds": 0.3})
        await worker.event("job.finished", alone)
        # If the worker has more slots, a poll for them is waiting.
        assert names(with_ends(shift)[0]) == (["finish"] if hands > 1 else ["finish", "pop"])
        jobs = [await shift.add(str(number), {"do": "sleep", "seconds": 0.1}) for number in range(4 * hands)]
        for job in jobs:
            await worker.event("job.finished", job)
        pops = [each for request in with_ends(shift) for each in request.commands if each["command"] == "pop"]
        assert pops and all(each.get("count", 1) <= hands for each in pops)
        assert most_at_a_time(worker) <= hands


async def test_a_pop_asks_for_all_the_places_that_its_ends_free(shift: Shift) -> None:
    hands = 3 if shift.participant.concurrent else 1
    jobs = [await shift.add(str(number), {"do": "sleep", "seconds": 0.3}) for number in range(2 * hands)]
    async with shift.worker_through_the_proxy(concurrency=3) as worker:
        for job in jobs[:hands]:
            await worker.handler("started", job)
        shift.stage.proxy.let_go.clear()
        shift.stage.proxy.faults = ["hold"]  # the first end; meanwhile the others are queued
        for job in jobs[:hands]:
            await worker.handler("returned", job)
        shift.stage.proxy.let_go.set()
        for job in jobs:
            await worker.event("job.finished", job)
        for request in with_ends(shift)[: 2 if hands > 1 else 1]:
            assert request.commands[-1].get("count", 1) == len(request.commands) - 1, request.commands
        assert most_at_a_time(worker) <= hands


async def test_no_poll_goes_out_beside_a_pop_that_goes_with_ends(shift: Shift) -> None:
    if not shift.participant.concurrent:
        return  # its only slot has its pop
    first = await shift.add("first", {"do": "sleep", "seconds": 0.3}, ttr=60)
    once = await shift.add("once", {"do": "sleep", "seconds": 0.6}, ttr=0)  # no end is sent for it
    touched = await shift.add("touched", {"do": "sleep", "seconds": 1.5}, ttr=3)
    shift.stage.proxy.let_go.clear()
    async with shift.worker_through_the_proxy(concurrency=3) as worker:
        await worker.handler("started", first)
        shift.stage.proxy.faults = ["hold"]
        await worker.event("job.finished", once)
        await until(lambda: shift.sent("touch") > 0)  # everything that could be sent has been sent
        assert [names(request) for request in shift.stage.proxy.requests[:3]] == [["pop"], ["finish", "pop"], ["touch"]]
        shift.stage.proxy.let_go.set()
        await until(lambda: shift.sent("pop") == 3)  # now there is room for a poll
        await worker.event("job.finished", touched)


@pytest.mark.parametrize("ttr", [60, 0])
async def test_what_comes_with_ends_when_the_worker_is_to_stop_goes_back(shift: Shift, ttr: int) -> None:
    proxy = shift.stage.proxy
    proxy.let_go.clear()
    first = await shift.add("first", {"do": "sleep", "seconds": 0.3}, ttr=60)
    late = await shift.add("late", {"do": "return"}, ttr=ttr)
    async with shift.worker_through_the_proxy() as worker:
        await worker.handler("started", first)
        proxy.faults = ["hold"]
        await shift.becomes(late, "reserved" if ttr else "finished")
        worker.process.send_signal(signal.SIGTERM)
        await worker.event("worker.stopping")
        proxy.let_go.set()
        assert await worker.end() == 0
        told = await shift.get(late)
        if ttr:
            assert worker.told("event", "job.returned") == [late]
            assert (told["state"], told["attempt"]) == ("ready", 0)
            assert worker.told("event", "job.finished") == [first]
            assert names(proxy.requests[-1]) == ["release"]
        else:  # it could not go back
            assert worker.told("event", "job.finished") == [first, late]
        assert await shift.reserved() == 0


async def test_what_was_taken_by_a_pop_whose_answer_was_lost_comes_again(shift: Shift) -> None:
    first = await shift.add("first", {"do": "sleep", "seconds": 0.3}, ttr=60)
    lost = await shift.add("lost", {"do": "return"}, ttr=0.5)
    async with shift.worker_through_the_proxy() as worker:
        await worker.handler("started", first)
        shift.stage.proxy.faults = ["cut"]
        await worker.event("job.finished", first)
        await worker.event("job.finished", lost)
        assert [(await shift.get(job))["deliveries"] for job in (first, lost)] == [1, 2]
        assert not worker.told("event", "job.lost")
        if shift.participant.concurrent:
            assert [names(request) for request in with_ends(shift)[:2]] == [["finish", "pop"], ["finish"]]


async def refused_beside_a_job(shift: Shift) -> dict[str, Any]:
    """The answer to an end and a pop: the end is refused temporarily, and the pop brings the next job of the topic."""
    popped = await shift.stage.client.ask("pop", topic=shift.topic, count=1)
    brought = {**popped, **popped["jobs"][0]}  # the forms of a pop with and without `count`
    return {"status": 200, "answer": [NOT_NOW, brought]}


async def test_an_end_that_is_refused_for_now_heaps_up_no_jobs(shift: Shift) -> None:
    proxy = shift.stage.proxy
    async with shift.worker_through_the_proxy() as worker:
        slow = await shift.add("slow", {"do": "sleep", "seconds": 0.5}, ttr=60)
        await worker.handler("started", slow)
        came = await shift.add("came", {"do": "return"}, ttr=60)
        refused = await refused_beside_a_job(shift)
        more = [await shift.add(f"more:{number}", {"do": "return"}, ttr=60) for number in range(3)]
        proxy.faults = [refused, "page", "page"]
        for job in (slow, came, *more):
            await worker.event("job.finished", job)
        assert most_at_a_time(worker) == 1
        assert (await shift.get(slow))["deliveries"] == 1
        if shift.participant.concurrent:
            assert (await shift.get(came))["deliveries"] == 1
            again = with_ends(shift)[1:4]  # the proxy's pages, and the request that got through
            assert not any("pop" in names(request) for request in again)
            assert not any(again[0].when < each.when < again[2].when for each in polls(shift))


async def test_what_comes_with_an_end_that_is_refused_for_now_and_cannot_go_back_is_begun(shift: Shift) -> None:
    proxy = shift.stage.proxy
    async with shift.worker_through_the_proxy() as worker:
        first = await shift.add("first", {"do": "sleep", "seconds": 0.5}, ttr=60)
        await worker.handler("started", first)
        once = await shift.add("once", {"do": "return"}, ttr=0)
        refused = await refused_beside_a_job(shift)
        proxy.faults = [refused, "page", "page"]
        for job in (first, once):
            await worker.event("job.finished", job)
        assert most_at_a_time(worker) == 1


def polls(shift: Shift) -> list[Request]:
    return [request for request in shift.stage.proxy.requests if names(request) == ["pop"]]


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda refusal: str(refusal["code"]))
async def test_a_refusal_of_a_pop_that_goes_with_ends_does_no_harm(shift: Shift, refusal: dict[str, Any]) -> None:
    job = await shift.add("job", {"do": "sleep", "seconds": 0.3}, ttr=60, tries=1)
    async with shift.worker_through_the_proxy() as worker:
        await worker.handler("started", job)
        done = {"success": True, "id": job, "state": "finished"}
        shift.stage.proxy.faults = [{"status": 200, "answer": [done, refusal]}]
        await worker.event("job.finished", job)
        following = await shift.add("following", {"do": "return"})
        await worker.event("job.finished", following)


async def test_a_refusal_of_all_pops_ends_the_worker(shift: Shift) -> None:
    job = await shift.add("job", {"do": "sleep", "seconds": 0.3}, ttr=60)
    async with shift.worker_through_the_proxy() as worker:
        await worker.handler("started", job)
        done = {"success": True, "id": job, "state": "finished"}
        beside: dict[str, Any] = {"status": 200, "answer": [done, REFUSALS[0]]}
        shift.stage.proxy.faults = [beside, {"status": 400, "answer": REFUSALS[0]}]
        assert await worker.end() != 0
        assert worker.told("event", "job.finished") == [job]
        assert {"clean": True} not in worker.lines


async def test_an_answer_that_is_none_of_a_pops_costs_the_ends_nothing(shift: Shift) -> None:
    job = await shift.add("job", {"do": "sleep", "seconds": 0.3}, ttr=60)
    async with shift.worker_through_the_proxy() as worker:
        await worker.handler("started", job)
        done = {"success": True, "id": job, "state": "finished"}
        shift.stage.proxy.faults = [{"status": 200, "answer": [done, {"success": True, "jobs": [{}]}]}]
        await worker.event("job.finished", job)
        following = await shift.add("following", {"do": "return"})
        await worker.event("job.finished", following)


async def test_under_kills_of_the_service_no_more_handlers_run_than_there_may_and_no_job_is_lost(shift: Shift) -> None:
    hands = 3 if shift.participant.concurrent else 1
    jobs = [await shift.add(str(number), {"do": "sleep", "seconds": 0.05}, ttr=2) for number in range(20 * hands)]
    async with shift.worker(concurrency=3) as worker:
        for share in (3, 6):
            await worker.event("job.finished", times=share * hands)
            await shift.stage.act("service is killed")
            await worker.event("service.lost")
            await shift.stage.act("service starts")
        for job in jobs:
            await worker.event("job.finished", job)
        assert await worker.stop() == 0
        assert most_at_a_time(worker) <= hands
        assert await shift.reserved() == 0
