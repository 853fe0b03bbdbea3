"""Every client's worker when answers are lost, late or strange, and in edge cases: touches, retried ends, jobs that
arrive too late, invalid options."""

from __future__ import annotations

import itertools
import signal

import pytest

from tests.conformance.shift import Shift
from tests.kit.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_a_lease_is_touched_when_a_third_of_it_is_over_and_not_all_the_time(shift: Shift) -> None:
    async with shift.worker_through_the_proxy() as worker:
        job = await shift.add("thirds", {"do": "sleep", "seconds": 2.5}, ttr=3)
        await worker.event("job.finished", job)
        assert 1 <= shift.sent("touch") <= 3  # two, unless the machine is busy


async def test_a_touch_that_hangs_costs_no_lease(shift: Shift) -> None:
    async with shift.worker_through_the_proxy() as worker:
        job = await shift.add("hung", {"do": "sleep", "seconds": 4}, ttr=3)
        await worker.handler("started", job)
        shift.stage.proxy.faults = ["hang"]
        await worker.event("job.finished", job)
        assert (await shift.get(job))["deliveries"] == 1
        assert not worker.told("event", "job.lost")


async def test_a_job_that_still_comes_when_its_worker_stops_goes_back_as_if_it_had_never_been_out(shift: Shift) -> None:
    async with shift.worker_through_the_proxy(poll_s=60) as worker:
        await until(shift.stage.parked)
        # The `leave`, so that the poll keeps waiting, and the release, twice.
        shift.stage.proxy.faults = ["drop", "page", "page"]
        worker.process.send_signal(signal.SIGTERM)
        await worker.event("worker.stopping")
        await until(lambda: shift.sent("leave") == 1)
        job = await shift.add("unbegun", {"do": "return"}, ttr=60)
        assert await worker.end() == 0
        assert shift.sent("leave") == 1
        assert worker.told("event", "job.returned") == [job] and not worker.told("handler", "started")
        told = await shift.get(job)
        assert (told["state"], told["deliveries"], told["attempt"]) == ("ready", 1, 0)


async def test_what_was_given_back_is_not_finished_by_a_handler_that_returns_too_late(shift: Shift) -> None:
    async with shift.worker(grace_s=0.3) as worker:
        job = await shift.add("late", {"do": "sleep", "seconds": 0.8}, ttr=60)
        await worker.handler("started", job)
        assert await worker.stop() == 1
        finished, lost = worker.told("event", "job.finished"), worker.told("event", "job.lost")
        assert finished + lost == [job]
        assert (await shift.get(job))["state"] == ("finished" if finished else "ready")


async def test_a_handler_that_returns_cannot_end_another_workers_delivery(shift: Shift) -> None:
    async with shift.worker() as worker:
        job = await shift.add("theirs", {"do": "sleep", "seconds": 1}, ttr=0.3)
        await worker.handler("started", job)
        worker.process.send_signal(signal.SIGSTOP)
        told = await shift.stage.client.ask("pop", topic=shift.topic, wait=10, ttr=30)
        assert told["id"] == job
        worker.process.send_signal(signal.SIGCONT)
        await worker.loss(job)
        await worker.handler("returned", job)
        await worker.stop()
        assert not worker.told("event", "job.finished")
        assert (await shift.get(job))["state"] == "reserved"
        assert (await shift.stage.client.ask("finish", id=job, lease=told["lease"]))["success"]


async def test_a_job_that_someone_else_finished_is_stale(shift: Shift) -> None:
    async with shift.worker() as worker:
        job = await shift.add("done", {"do": "watch"}, ttr=0.6)
        await worker.handler("started", job)
        assert (await shift.stage.client.ask("finish", id=job))["success"]
        assert (await worker.handler("lost", job))["reason"] == "stale"


async def test_a_job_that_went_to_another_worker_is_not_counted_as_finished(shift: Shift) -> None:
    """Its finish may have been executed; the refusal of the next one shows that it was not."""
    async with shift.worker_through_the_proxy() as worker:
        job = await shift.add("perhaps", {"do": "sleep", "seconds": 0.1}, ttr=30)
        await worker.handler("started", job)
        shift.stage.proxy.faults = [NOT_NOW]
        await until(lambda: _refused(shift))
        await shift.stage.client.ask("delete", id=job)
        await shift.add("perhaps", {"do": "return"}, ttr=30, if_exists="replace")
        assert (await shift.stage.client.ask("pop", topic=shift.topic))["id"] == job
        await worker.event("job.lost", job)
        assert not worker.told("event", "job.finished")


async def test_an_end_that_was_done_though_its_answer_was_lost_counts_as_done(shift: Shift) -> None:
    async with shift.worker_through_the_proxy() as worker:
        await until(shift.stage.parked)
        shift.stage.proxy.faults = ["cut"]
        job = await shift.add("heard", {"do": "retry", "after": 80}, ttr=30)
        await worker.event("job.retried", job)
        assert not worker.told("event", "job.lost")
        assert (await shift.get(job))["deliveries"] == 1


async def test_a_long_reason_is_cut_to_what_the_service_takes(shift: Shift) -> None:
    async with shift.worker() as worker:
        job = await shift.add("long-winded", {"do": "fail", "reason": "ü" * 2000}, backoff=[60])
        await worker.event("job.failed", job)
        assert "ü" * 900 in (await shift.becomes(job, "delayed"))["reason"]


async def test_a_service_that_is_away_for_several_polls_is_told_once(shift: Shift) -> None:
    async with shift.worker_through_the_proxy(poll_s=0.2) as worker:
        shift.stage.proxy.faults = ["page"] * 4
        await worker.event("service.back")
        told = [line["event"] for line in worker.lines if line.get("event", "").startswith("service.")]
        assert told == ["service.lost", "service.back"]


async def test_no_more_handlers_run_at_a_time_than_there_may(shift: Shift) -> None:
    hands = 3 if shift.participant.concurrent else 1
    jobs = [await shift.add(str(number), {"do": "sleep", "seconds": 0.3}) for number in range(2 * hands)]
    async with shift.worker(concurrency=3) as worker:
        await worker.event("job.finished", times=len(jobs))
        steps = [{"started": 1, "returned": -1}[line["handler"]] for line in worker.lines if "handler" in line]
        assert max(itertools.accumulate(steps)) == hands


async def _refused(shift: Shift) -> bool:
    return not shift.stage.proxy.faults


NOT_NOW = {"status": 503, "answer": {"success": False, "code": "UNAVAILABLE", "error": "not now", "retry_after": 2}}
"""An answer after which a command may have been executed."""


async def test_a_finish_that_was_done_and_is_forgotten_counts_as_done(shift: Shift) -> None:
    async with shift.worker_through_the_proxy() as worker:
        await until(shift.stage.parked)
        shift.stage.proxy.faults = ["cut"]  # the next finish finds no such job
        job = await shift.add("forgotten", {"do": "return"}, ttr=30, retention=0)
        await worker.event("job.finished", job)
        assert not worker.told("event", "job.lost")


async def test_no_job_is_taken_that_cannot_begin_at_once(shift: Shift) -> None:
    hands = 2 if shift.participant.concurrent else 1
    for number in range(5):
        await shift.add(str(number), {"do": "sleep", "seconds": 0.3}, ttr=60)
    async with shift.worker(concurrency=2) as worker:
        await worker.handler("started", times=hands)
        assert await shift.reserved() == hands
        await worker.event("job.finished", times=5)


async def test_a_late_word_counts_when_nobody_else_has_the_job(shift: Shift) -> None:
    async with shift.worker(keep_alive_s=0.2) as worker:
        job = await shift.add("late", {"do": "sleep", "seconds": 1.5}, ttr=0.3, backoff=[60])
        await shift.becomes(job, "delayed")
        await worker.event("job.finished", job)
        assert (await shift.get(job))["state"] == "finished"
