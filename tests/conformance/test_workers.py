"""Every client's worker, as a real process: what it makes of its handlers' ends, of signals, of kill -9, and of a
service that goes away."""

from __future__ import annotations

import asyncio
import itertools
import random
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.conformance.participants import Participant, Worker
from tests.conformance.stage import Stage
from tests.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

_numbers = itertools.count(1)

FIELDS = {
    "worker.started": {"worker"},
    "worker.stopping": {"worker"},
    "worker.stopped": {"worker"},
    "worker.heartbeat": {"worker", "running", "finished", "failed", "retried", "buried", "lost"},
    "job.started": {"topic", "id", "attempt", "late_s"},
    "job.finished": {"topic", "id", "seconds"},
    "job.failed": {"topic", "id", "seconds", "reason"},
    "job.retried": {"topic", "id", "seconds", "reason"},
    "job.buried": {"topic", "id", "seconds", "reason"},
    "job.lost": {"topic", "id", "seconds", "reason"},
    "job.returned": {"topic", "id"},
    "service.lost": {"reason"},
    "service.back": {"seconds"},
}
"""What the hook tells with each event, as clients/README.md says."""


@pytest.fixture
def topic() -> Iterator[str]:
    """One that no other test has."""
    yield f"work-{next(_numbers)}"


class Shift:
    """Workers of one client on one topic of a stage."""

    def __init__(self, participant: Participant, stage: Stage, topic: str) -> None:
        self.participant, self.stage, self.topic = participant, stage, topic

    @asynccontextmanager
    async def worker(self, **options: Any) -> AsyncIterator[Worker]:
        """A worker that has begun to work; killed at the end if it still does."""
        if not self.participant.concurrent:
            options.pop("concurrency", None)
        url = self.stage.service.url
        async with Worker(self.participant, url, {"topics": [self.topic], **options}) as worker:
            await worker.event("worker.started")
            yield worker
            if worker.process.returncode is None:
                worker.process.kill()

    async def add(self, job_id: str, body: Any, **fields: Any) -> str:
        """Hand in a job; its id, which has the topic before it."""
        told = await self.stage.client.insist("add", topic=self.topic, id=f"{self.topic}:{job_id}", body=body, **fields)
        assert told["success"], told
        return str(told["id"])

    async def get(self, job_id: str) -> dict[str, Any]:
        told: dict[str, Any] = await self.stage.client.ask("get", id=job_id)
        return told

    async def becomes(self, job_id: str, state: str) -> dict[str, Any]:
        """Wait until a job is in a state; all of it then."""

        async def there() -> bool:
            return bool((await self.get(job_id))["state"] == state)

        await until(there)
        return await self.get(job_id)

    async def reserved(self) -> int:
        return int((await self.stage.figures(self.topic))["reserved"])


@pytest.fixture
def shift(participant: Participant, stage: Stage, topic: str) -> Shift:
    return Shift(participant, stage, topic)


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
        job = await shift.add("long", {"do": "sleep", "seconds": 1.5}, ttr=0.5)
        await worker.event("job.finished", job)
        assert (await shift.get(job))["deliveries"] == 1
        assert worker.told("handler", "started") == [job]


async def test_a_handler_that_hangs_holds_its_job_no_longer_than_keep_alive_s(shift: Shift) -> None:
    async with shift.worker(keep_alive_s=0.6) as worker:
        job = await shift.add("hangs", {"do": "watch"}, ttr=0.3, backoff=[60])
        assert (await worker.handler("lost", job))["reason"] == "expired"
        await shift.becomes(job, "delayed")
        await worker.event("job.lost", job)


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
        await worker.event("job.lost", job)
        assert (await shift.get(job))["state"] == "reserved"
        assert (await shift.stage.client.ask("finish", id=job, lease=told["lease"]))["success"]


async def test_the_job_of_a_worker_that_was_killed_is_handed_out_again_after_its_ttr(shift: Shift) -> None:
    async with shift.worker() as worker:
        job = await shift.add("killed", {"do": "sleep", "seconds": 60}, ttr=0.6)
        await worker.handler("started", job)
        first = (await shift.get(job))["reserved_until"]
        await until(lambda: _touched(shift, job, first))  # so that what keeps the lease alive is at work
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
            await asyncio.sleep(chance.uniform(0.05, 0.3))  # any moment: the very thing that is tried
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
        assert await worker.stop() in (0, 1)  # a handler that listens may end in time for a clean end
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
        assert (told["state"], told["attempt"]) == ("ready", 1)  # given back at once; and it was a try


@pytest.mark.parametrize("end", ["service stops", "service is killed"])
async def test_a_service_that_stops_and_starts_under_a_workers_feet_costs_nothing(shift: Shift, end: str) -> None:
    async with shift.worker(concurrency=4) as worker:
        before = [await shift.add(f"before:{n}", {"do": "sleep", "seconds": 0.1}, ttr=30) for n in range(8)]
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


async def test_no_topic_starves(participant: Participant, stage: Stage, topic: str) -> None:
    """The first topic always has jobs; the second gets its turn."""
    shift = Shift(participant, stage, topic)
    for number in range(60):
        await shift.add(str(number), {"do": "sleep", "seconds": 0.1})
    rare = Shift(participant, stage, f"{topic}-rare")
    job = await rare.add("1", {"do": "return"})
    async with shift.worker(topics=[topic, rare.topic], concurrency=1) as worker:
        await worker.event("job.finished", job)
        assert (await stage.figures(topic))["ready"] > 0


async def test_a_topic_that_cannot_be_ends_the_worker_with_words(shift: Shift) -> None:
    url = shift.stage.service.url
    async with Worker(shift.participant, url, {"topics": ["no such name!"]}) as worker:
        assert await worker.end() != 0
        assert {"clean": True} not in worker.lines


@asynccontextmanager
async def _through_the_proxy(shift: Shift, **options: Any) -> AsyncIterator[Worker]:
    """A worker of one handler at a time, so that its requests come one by one."""
    proxy = shift.stage.proxy
    proxy.faults.clear()
    proxy.requests.clear()
    if shift.participant.concurrent:
        options["concurrency"] = 1
    async with Worker(shift.participant, proxy.url, {"topics": [shift.topic], **options}) as worker:
        await worker.event("worker.started")
        yield worker
        if worker.process.returncode is None:
            worker.process.kill()


def _sent(shift: Shift, command: str) -> int:
    return sum(each["command"] == command for request in shift.stage.proxy.requests for each in request.commands)


async def test_a_lease_is_touched_when_a_third_of_it_is_over_and_not_all_the_time(shift: Shift) -> None:
    async with _through_the_proxy(shift) as worker:
        job = await shift.add("thirds", {"do": "sleep", "seconds": 2.5}, ttr=3)
        await worker.event("job.finished", job)
        assert 1 <= _sent(shift, "touch") <= 3  # two, where the machine is not busy


async def test_a_touch_that_hangs_costs_no_lease(shift: Shift) -> None:
    async with _through_the_proxy(shift) as worker:
        job = await shift.add("hung", {"do": "sleep", "seconds": 4}, ttr=3)
        await worker.handler("started", job)
        shift.stage.proxy.faults = ["hang"]
        await worker.event("job.finished", job)
        assert (await shift.get(job))["deliveries"] == 1
        assert not worker.told("event", "job.lost")


async def test_a_job_that_still_comes_when_its_worker_stops_goes_back_as_if_it_had_never_been_out(shift: Shift) -> None:
    async with _through_the_proxy(shift, poll_s=60) as worker:
        await until(shift.stage.parked)
        # The `leave`, so that the poll goes on waiting; and the release, twice.
        shift.stage.proxy.faults = ["drop", "page", "page"]
        worker.process.send_signal(signal.SIGTERM)
        await worker.event("worker.stopping")
        job = await shift.add("unbegun", {"do": "return"}, ttr=60)
        assert await worker.end() == 0
        assert _sent(shift, "leave") == 1
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
        await worker.event("job.lost", job)
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
    """Its finish was perhaps done; the refusal of the next says that it was not."""
    async with _through_the_proxy(shift) as worker:
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
    async with _through_the_proxy(shift) as worker:
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
    async with _through_the_proxy(shift, poll_s=0.2) as worker:
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
"""An answer after which a command was perhaps done."""


class _Heard(Worker):
    """A worker whose log the test reads."""

    log = subprocess.PIPE


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *[("poll_s", value) for value in (0, 61)],
        *[(option, -1) for option in ("grace_s", "heartbeat_s", "keep_alive_s")],
        *[(option, 0) for option in ("timeout_s", "connect_timeout_s")],
        ("name", "x" * 129),
        ("headers", {"X-Token": "a\r\nX-Other: b"}),
    ],
)
async def test_an_option_that_cannot_be_is_an_error_that_names_it(
    participant: Participant, stage: Stage, option: str, value: Any
) -> None:
    async with _Heard(participant, stage.service.url, {"topics": ["options"], option: value}) as worker:
        assert await worker.end() != 0
        assert worker.lines == []
        assert option in await worker.logged()


async def test_a_finish_that_was_done_and_is_forgotten_counts_as_done(shift: Shift) -> None:
    async with _through_the_proxy(shift) as worker:
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
