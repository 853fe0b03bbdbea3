"""Workers of PHP and Node whose token is refused all the time: they go on for a minute. Time passes faster for them."""

from __future__ import annotations

import pytest

from tests.chaos.faketime import hurried
from tests.clients.guarded import NEW, OLD, Answer, Guarded
from tests.conformance.participants import PARTICIPANTS, Line, Participant, Worker

TIMES = 30

JOB: Answer = {
    **{"success": True, "id": "x", "topic": "t", "value": {"do": "return"}, "lease": 1, "attempt": 1, "tries": 16},
    **{"due": 0, "ttr": 3600, "headers": None},
}


class _Hurried(Worker):
    """A worker for which time passes faster."""

    def __init__(self, participant: Participant, url: str, options: Line) -> None:
        super().__init__(participant, url, options)
        self._environment = hurried(TIMES)


@pytest.fixture(params=["php", "node"])
def participant(request: pytest.FixtureRequest) -> Participant:
    (chosen,) = (each for each in PARTICIPANTS if each.name == request.param)
    if missing := chosen.lacks():
        pytest.skip(missing)
    return chosen


async def test_a_worker_whose_token_is_refused_for_a_minute_ends_with_the_error(participant: Participant) -> None:
    async with Guarded(lambda _: {}, accepted=NEW) as server:
        options = {"topics": ["t"], "token": OLD, "heartbeat_s": 50}
        async with _Hurried(participant, server.url, options) as worker:
            await worker.event("worker.heartbeat")
            assert await worker.end() not in (0, None)
            assert "clean" not in worker.lines[-1]
            assert all(line.get("event") != "worker.stopping" for line in worker.lines)
            assert len([line for line in worker.lines if line.get("event") == "worker.heartbeat"]) == 1


async def test_one_that_has_only_the_end_of_a_job_to_send_ends_too(participant: Participant) -> None:
    def answer(command: Answer) -> Answer:
        server.accepted = NEW
        return {"success": True, "jobs": [JOB]} if "count" in command else dict(JOB)

    async with Guarded(answer) as server:
        options = {"topics": ["t"], "token": OLD} | ({"concurrency": 1} if participant.concurrent else {})
        async with _Hurried(participant, server.url, options) as worker:
            await worker.handler("returned")
            assert await worker.end() not in (0, None)
            assert not worker.told("event", "job.finished")
            ends = [each for request in server.requests for each in request.commands if each["command"] == "finish"]
            assert len(ends) > 10
