"""Every client's worker as a real process: how it handles the outcomes of handlers, signals, kill -9, and a service
that goes down."""

from __future__ import annotations

import asyncio
import random
import signal

import pytest

from tests.conformance.participants import Worker
from tests.conformance.shift import Shift
from tests.kit.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

SUMS = {"finished", "failed", "retried", "buried", "died", "lost"}
JOB = {"topic", "id", "attempt"}
FIELDS = {
    "worker.started": {"worker"},
    "worker.stopping": {"worker", "reason"},
    "worker.stopped": {"worker", *SUMS},
    "worker.heartbeat": {"worker", "running", *SUMS},
    "job.started": {*JOB, "late_s"},
    "job.finished": {*JOB, "seconds"},
    **{name: {*JOB, "seconds", "reason", "error"} for name in ("job.failed", "job.retried", "job.buried", "job.died")},
    "job.lost": {*JOB, "seconds", "reason"},
    "job.expired": {*JOB, "seconds"},
    "job.returned": JOB,
    "service.lost": {"reason"},
    "service.back": {"seconds"},
}
"""The fields of each event, as clients/README.md lists them."""


async def test_a_handlers_end_is_the_jobs_end(shift: Shift) -> None:
    async with shift.worker() as worker:
        returns = await shift.add("returns", {"do": "return", "text": "ü😀"})
        fails = await shift.add("fails", {"do": "fail", "reason": "no ü"}, backoff=[60])
        ladder = await shift.add("ladder", {"do": "retry"}, backoff=[70])
        later = await shift.add("later", {"do": "retry", "after": 80, "attempt": False, "reason": "not yet"})
        buried = await shift.add("buried", {"do": "bury", "reason": "poison"})
        once = await shift.add("once", {"do": "fail", "reason": "x"}, ttr=0)
        await worker.event("job.failed", once)
        await worker.event("job.finished", returns)
        assert (await shift.becomes(returns, "finished"))["deliveries"] == 1
        assert next(line for line in worker.lines if line.get("id") == returns and "body" in line)["body"] == {
            "do": "return",
            "text": "ü😀",
        }
        failed = await shift.becomes(fails, "delayed")
        assert "no ü" in failed["reason"] and failed["attempt"] == 1 and failed["until"] - failed["due"] > 50
        assert (await shift.becomes(ladder, "delayed"))["attempt"] == 1
        waits = await shift.becomes(later, "delayed")
        assert (waits["attempt"], waits["reason"]) == (0, "not yet") and waits["until"] - waits["due"] > 70
        assert (await shift.becomes(buried, "dead"))["reason"] == "poison"
        assert (await shift.get(once))["state"] == "finished"
        assert await worker.stop() == 0
        assert worker.lines[-1] == {"clean": True}
        assert sorted(worker.told("event", "job.failed")) == sorted([fails, once])
        assert sorted(worker.told("event", "job.retried")) == sorted([ladder, later])
        assert worker.told("event", "job.buried") == [buried]


async def test_the_hook_tells_what_its_documentation_says(shift: Shift) -> None:
    async with shift.worker(heartbeat_s=0.1) as worker:
        await shift.add("1", {"do": "return"})
        await shift.add("2", {"do": "fail", "reason": "x"}, tries=1)
        await worker.until(
            lambda line: line.get("event") == "worker.heartbeat" and line["finished"] == line["failed"] == 1
        )
        await worker.stop()
        assert {"worker.started", "worker.stopping", "worker.stopped"} <= {line.get("event") for line in worker.lines}
        for line in worker.lines:
            if "event" in line:
                assert line.keys() - {"event"} >= FIELDS[line["event"]], line


async def test_a_handler_of_three_ttrs_keeps_its_lease_and_its_job_is_delivered_once(shift: Shift) -> None:
    async with shift.worker() as worker:
        job = await shift.add("long", {"do": "sleep", "seconds": 3.6}, ttr=1.2)
        await worker.event("job.finished", job)
        assert (await shift.get(job))["deliveries"] == 1
        assert worker.told("handler", "started") == [job]


async def test_a_handler_that_hangs_holds_its_job_no_longer_than_keep_alive_s(shift: Shift) -> None:
    async with shift.worker(keep_alive_s=0.6) as worker:
        job = await shift.add("hangs", {"do": "watch"}, ttr=0.3, backoff=[60])
        assert (await worker.handler("lost", job))["reason"] == "expired"
        await shift.becomes(job, "delayed")
        await worker.loss(job)


async def test_a_handler_is_told_that_its_job_was_deleted(shift: Shift) -> None:
    async with shift.worker() as worker:
        job = await shift.add("deleted", {"do": "watch"}, ttr=0.3)
        await worker.handler("started", job)
        await shift.stage.client.ask("delete", id=job)
        assert (await worker.handler("lost", job))["reason"] == "deleted"
        assert (await worker.event("job.lost", job))["reason"] == "deleted"
        assert await worker.stop() == 0


async def test_a_worker_that_slept_past_its_ttr_learns_that_another_has_its_job_and_leaves_it_alone(
    shift: Shift,
) -> None:
    async with shift.worker() as worker:
        job = await shift.add("stale", {"do": "watch"}, ttr=0.3)
        await worker.handler("started", job)
        worker.process.send_signal(signal.SIGSTOP)
        told = await shift.stage.client.ask("pop", topic=shift.topic, wait=10, ttr=30)
        assert told["id"] == job
        worker.process.send_signal(signal.SIGCONT)
        assert (await worker.handler("lost", job))["reason"] in ("stale", "expired")
        await worker.loss(job)
        assert (await shift.get(job))["state"] == "reserved"
        assert (await shift.stage.client.ask("finish", id=job, lease=told["lease"]))["success"]


async def test_the_job_of_a_worker_that_was_killed_is_handed_out_again_after_its_ttr(shift: Shift) -> None:
    async with shift.worker() as worker:
        job = await shift.add("killed", {"do": "sleep", "seconds": 60}, ttr=0.6)
        await worker.handler("started", job)
        first = (await shift.get(job))["reserved_until"]
        await until(lambda: _touched(shift, job, first))  # so that the lease is being kept alive
        worker.process.kill()
        await worker.process.wait()
        told = await shift.stage.client.ask("pop", topic=shift.topic, wait=10)
        assert (told["id"], told["attempt"]) == (job, 2)


async def _touched(shift: Shift, job: str, first: float) -> bool:
    return bool((await shift.get(job))["reserved_until"] > first)


async def test_a_worker_that_is_told_to_stop_finishes_what_runs_and_takes_nothing_more(shift: Shift) -> None:
    hands = 2 if shift.participant.concurrent else 1
    async with shift.worker(concurrency=2) as worker:
        jobs = [await shift.add(str(number), {"do": "sleep", "seconds": 0.8}, ttr=30) for number in range(hands + 2)]
        await worker.handler("started", times=hands)
        assert await worker.stop() == 0
        assert (await worker.event("worker.stopping"))["reason"] == "signal"
        done = worker.told("handler", "started")
        assert len(done) == hands and sorted(worker.told("event", "job.finished")) == sorted(done)
        for job in jobs:
            told = await shift.get(job)
            assert (told["state"], told["attempt"]) == (("finished", 1) if job in done else ("ready", 0)), told


async def test_a_worker_that_waits_for_jobs_stops_at_once(shift: Shift) -> None:
    async with shift.worker(poll_s=60) as worker:
        await until(shift.stage.parked)
        assert await worker.stop() == 0
    job = await shift.add("next", {"do": "return"})
    assert (await shift.stage.client.ask("pop", topic=shift.topic))["id"] == job


async def test_workers_that_stop_at_any_moment_leave_no_job_reserved(shift: Shift) -> None:
    chance = random.Random(shift.topic)
    for number in range(6):
        async with shift.worker(concurrency=4) as worker:
            adding = asyncio.create_task(_flow(shift, f"{number}"))
            await asyncio.sleep(chance.uniform(0.05, 0.3))  # a random moment is the point of the test
            assert await worker.stop() == 0
            assert await shift.reserved() == 0
            await adding
            started, finished = worker.told("handler", "started"), worker.told("event", "job.finished")
            assert sorted(started) == sorted(finished)


async def _flow(shift: Shift, name: str) -> None:
    for number in range(60):
        await shift.add(f"{name}:{number}", {"do": "return"}, ttr=60)


async def test_what_still_runs_after_the_grace_is_told_and_given_back(shift: Shift) -> None:
    async with shift.worker(grace_s=0.3) as worker:
        job = await shift.add("stuck", {"do": "watch"}, ttr=60)
        await worker.handler("started", job)
        assert await worker.stop() in (0, 1)  # a handler that checks its job may end in time for a clean stop
        assert (await shift.get(job))["state"] == "ready"
        assert next(line for line in worker.lines if line.get("handler") == "lost")["reason"] == "stopping"


async def test_a_handler_that_does_not_listen_cannot_keep_a_stopped_worker_alive(shift: Shift) -> None:
    async with shift.worker(grace_s=0.3) as worker:
        job = await shift.add("deaf", {"do": "sleep", "seconds": 60}, ttr=60)
        await worker.handler("started", job)
        assert await worker.stop() == 1
        assert (await shift.get(job))["state"] == "ready"


async def test_a_second_signal_ends_the_grace(shift: Shift) -> None:
    async with shift.worker(grace_s=60) as worker:
        job = await shift.add("impatient", {"do": "sleep", "seconds": 60}, ttr=60, backoff=[60])
        await worker.handler("started", job)
        worker.process.send_signal(signal.SIGTERM)
        await worker.event("worker.stopping")
        worker.process.send_signal(signal.SIGTERM)
        assert await worker.end() == 1
        told = await shift.get(job)
        assert (told["state"], told["attempt"]) == ("ready", 1)  # released at once, and the delivery counts as a try


@pytest.mark.parametrize("end", ["service stops", "service is killed"])
async def test_a_service_that_stops_and_starts_under_a_workers_feet_costs_nothing(shift: Shift, end: str) -> None:
    async with shift.worker(concurrency=4) as worker:
        before = [await shift.add(f"before:{n}", {"do": "sleep", "seconds": 0.1}, ttr=10) for n in range(8)]
        slow = await shift.add("slow", {"do": "sleep", "seconds": 1}, ttr=30, priority=9)
        await worker.handler("started", slow)
        await shift.stage.act(end)
        await worker.event("service.lost")
        await shift.stage.act("service starts")
        after = [await shift.add(f"after:{n}", {"do": "return"}, ttr=30) for n in range(8)]
        for job in [*before, slow, *after]:
            await worker.event("job.finished", job)
        await worker.event("service.back")
        assert await worker.stop() == 0
        started = worker.told("handler", "started")
        assert len(started) == len(set(started)) == 17
        assert not worker.told("event", "job.failed") and not worker.told("event", "job.lost")
        for job in [*before, slow, *after]:
            assert (await shift.get(job))["state"] == "finished"


async def test_a_job_that_ended_while_the_service_was_away_is_finished_when_it_is_back(shift: Shift) -> None:
    async with shift.worker() as worker:
        job = await shift.add("away", {"do": "sleep", "seconds": 0.5}, ttr=30)
        await worker.handler("started", job)
        await shift.stage.act("service is killed")
        await worker.handler("returned", job)
        await shift.stage.act("service starts")
        await worker.event("job.finished", job)
        assert (await shift.get(job))["deliveries"] == 1


async def test_no_topic_starves(shift: Shift) -> None:
    """The first topic always has jobs; the second one still gets its turn."""
    for number in range(60):
        await shift.add(str(number), {"do": "sleep", "seconds": 0.1})
    rare = Shift(shift.participant, shift.stage, f"{shift.topic}-rare")
    job = await rare.add("1", {"do": "return"})
    async with shift.worker(topics=[shift.topic, rare.topic], concurrency=1) as worker:
        await worker.event("job.finished", job)
        assert (await shift.stage.figures(shift.topic))["ready"] > 0


async def test_a_topic_that_cannot_be_ends_the_worker_with_words(shift: Shift) -> None:
    url = shift.stage.service.url
    async with Worker(shift.participant, url, {"topics": ["no such name!"]}) as worker:
        assert await worker.end() != 0
        assert {"clean": True} not in worker.lines
