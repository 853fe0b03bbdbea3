"""Every client's worker reports a dead letter, although an answer was lost or the worker stopped."""

from __future__ import annotations

import pytest

from tests.conformance.shift import Shift
from tests.kit.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

DEFECT = {"success": False, "code": "INTERNAL", "error": "a defect"}


async def test_a_death_is_reported_although_the_answer_that_told_of_it_was_lost(shift: Shift) -> None:
    async with shift.worker_through_the_proxy() as worker:
        await until(shift.stage.parked)
        shift.stage.proxy.faults = ["cut"]
        job = await shift.add("unheard", {"do": "retry"}, ttr=30, tries=1)
        await worker.event("job.died", job)
        assert not worker.told("event", "job.retried")


async def test_a_job_that_dies_because_its_worker_stopped_is_reported(shift: Shift) -> None:
    async with shift.worker(grace_s=0.2) as worker:
        job = await shift.add("stopped", {"do": "sleep", "seconds": 0.7}, ttr=60, tries=1)
        await worker.handler("started", job)
        await worker.stop()
        assert worker.told("event", "job.lost") == worker.told("event", "job.died") == [job]
        assert (await shift.get(job))["reason"] == "stopping"


async def test_a_defect_of_the_service_costs_an_end_and_not_the_slot(shift: Shift) -> None:
    async with shift.worker_through_the_proxy(concurrency=1) as worker:
        job = await shift.add("job", {"do": "sleep", "seconds": 0.3}, ttr=60)
        await worker.handler("started", job)
        shift.stage.proxy.faults = [{"status": 200, "answer": [DEFECT, {"success": True, "jobs": [], "id": None}]}]
        await worker.event("job.expired", job)
        following = await shift.add("following", {"do": "return"})
        await worker.event("job.finished", following)
