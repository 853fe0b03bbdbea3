"""Every client's worker whose token is exchanged, refused, or does not reach its topics."""

from __future__ import annotations

import subprocess

import pytest

from tests.conformance.participants import Worker
from tests.conformance.shift import Shift
from tests.conformance.tokens import NEWER_TOKEN, TOKEN
from tests.kit.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")


class _Heard(Worker):
    """A worker whose log the test can read."""

    log = subprocess.PIPE


async def test_a_worker_goes_on_when_its_token_is_exchanged_and_loses_no_end_of_a_job(shift: Shift) -> None:
    proxy, file = shift.stage.proxy, shift.stage.token_file
    file.write_text(TOKEN)
    async with shift.worker_through_the_proxy(token_file=str(file)) as worker:
        proxy.wanted_token, proxy.refused = TOKEN, 0
        job = await shift.add("kept", {"do": "sleep", "seconds": 0.3}, ttr=60)
        await worker.handler("started", job)
        assert proxy.refused == 0
        proxy.wanted_token = NEWER_TOKEN
        await worker.handler("returned", job)
        await until(lambda: _refusals(shift, 3))
        assert not worker.told("event", "job.finished")
        file.write_text(NEWER_TOKEN)
        await worker.event("job.finished", job)
        assert (await shift.get(job))["deliveries"] == 1
        later = await shift.add("later", {"do": "return"})
        await worker.event("job.finished", later)
        assert not worker.told("event", "job.lost")
        assert await worker.stop() == 0


async def test_a_worker_whose_topic_is_forbidden_ends_at_once_and_says_why(shift: Shift) -> None:
    proxy = shift.stage.proxy
    proxy.requests.clear()
    proxy.wanted_token = None
    proxy.faults = [{"status": 403, "answer": FORBIDDEN}]
    async with _Heard(shift.participant, proxy.url, {"topics": [shift.topic], "token": TOKEN}) as worker:
        assert await worker.end() not in (0, None)
        assert [line["event"] for line in worker.lines if "event" in line] == ["worker.started", "worker.stopped"]
        log = await worker.logged()
        assert SENTENCE in log
        assert TOKEN not in log
    assert shift.sent("pop") == 1


async def _refusals(shift: Shift, count: int) -> bool:
    return shift.stage.proxy.refused >= count


SENTENCE = "this token may not consume from this topic"
FORBIDDEN = {
    "success": False,
    "id": None,
    "error": SENTENCE,
    "code": "FORBIDDEN",
    "right": "consume",
    "topic": "mail",
}
