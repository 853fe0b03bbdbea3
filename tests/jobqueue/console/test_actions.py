"""What each action does; and that the service's refusals are shown as the service gave them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import NamedTuple

import pytest
import pytest_asyncio

from jobqueue.console.actions import ACTIONS
from tests.jobqueue.console.consoles import Console, console
from tests.kit.service import Client, ServiceProcess

pytestmark = pytest.mark.asyncio(loop_scope="module")


class Desk(NamedTuple):
    """A console, and the service behind it."""

    console: Console
    client: Client

    async def job(self, job_id: str, state: str = "delayed", topic: str = "t") -> str:
        """A job in a state."""
        delay = {"delay": 3600} if state == "delayed" else {}
        assert (await self.client.ask("add", topic=topic, id=job_id, body={}, **delay))["success"]
        if state in ("reserved", "dead"):
            assert (await self.client.ask("pop", id=job_id, ttr=600))["id"] == job_id
        if state == "dead":
            assert (await self.client.ask("bury", id=job_id))["success"]
        return job_id

    async def state(self, job_id: str) -> str:
        return str((await self.client.ask("get", id=job_id)).get("state"))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def desk(filled: ServiceProcess) -> AsyncIterator[Desk]:
    async with console(filled.url) as made, Client(filled.url) as client:
        yield Desk(made, client)


async def test_run_makes_a_delayed_job_due(desk: Desk) -> None:
    job = await desk.job("run:1")
    assert "made due" in await desk.console.note("/do/run", {"id": job})
    assert await desk.state(job) == "ready"


async def test_kick_revives_the_ticked_dead_letters_and_counts_what_is_refused(desk: Desk) -> None:
    jobs = [await desk.job(f"kick:{number}", "dead") for number in range(3)]
    delayed = await desk.job("kick:delayed")
    note = await desk.console.note("/do/kick", {"id": [*jobs, delayed]})
    assert "3 kicked" in note and "1 not: 1 WRONG_STATE" in note
    assert {await desk.state(job) for job in jobs} == {"ready"}
    assert await desk.state(delayed) == "delayed"


async def test_delete_deletes_the_ticked_jobs(desk: Desk) -> None:
    jobs = [await desk.job(f"delete:{number}") for number in range(3)]
    assert "2 deleted" in await desk.console.note("/do/delete", {"id": jobs[:2]})
    assert [await desk.state(job) for job in jobs] == ["deleted", "deleted", "delayed"]


async def test_reschedule_takes_a_duration_or_a_time(desk: Desk) -> None:
    job = await desk.job("reschedule:1")
    await desk.console.note("/do/reschedule", {"id": job, "when": "2d"})
    assert (await desk.client.ask("get", id=job))["due"] > 1.7e5
    await desk.console.note("/do/reschedule", {"id": job, "when": "2035-01-02T03:04:05+01:00"})
    assert (await desk.client.ask("get", id=job))["due"] == 2_051_316_245.0


async def test_a_time_that_cannot_be_read_is_refused_in_the_words_of_the_service(desk: Desk) -> None:
    job = await desk.job("reschedule:2")
    response, text = await desk.console.post("/do/reschedule", {"id": job, "when": "soon", "back": "/job?id=x"})
    assert response.status == 400
    assert "RFC 3339" in text and '<a href="/job?id=x#f-at">' in text


async def test_release_and_bury_take_a_reserved_job_from_its_worker(desk: Desk) -> None:
    one, other = await desk.job("held:1", "reserved"), await desk.job("held:2", "reserved")
    await desk.console.note("/do/release", {"id": one, "delay": "10m", "reason": "not now"})
    job = await desk.client.ask("get", id=one)
    assert (job["state"], job["reason"], job["attempt"]) == ("delayed", "not now", 0)
    await desk.console.note("/do/bury", {"id": other, "reason": "broken"})
    job = await desk.client.ask("get", id=other)
    assert (job["state"], job["cause"], job["reason"]) == ("dead", "buried", "broken")


async def test_an_edited_body_is_kept_byte_for_byte(desk: Desk) -> None:
    job = await desk.job("edit:1")
    body = '{"n": 12345678901234567890123, "p": 1.10}'
    await desk.console.note("/do/edit", {"id": job, "body": body})
    raw = await desk.console.get(f"/body?id={job}")
    assert raw[1] == body


async def test_a_body_is_one_json_value_and_can_be_nothing_else(desk: Desk) -> None:
    job = await desk.job("edit:2")
    for body in ('1,"priority":9', "{", "", '{"a":1} 2', '"\x00"'):
        response, text = await desk.console.post("/do/edit", {"id": job, "body": body})
        assert response.status == 400 and "body must be JSON" in text
    assert (await desk.client.ask("get", id=job))["priority"] == 4


async def test_prioritise_sets_the_priority(desk: Desk) -> None:
    job = await desk.job("priority:1")
    await desk.console.note("/do/prioritise", {"id": job, "priority": "9"})
    assert (await desk.client.ask("get", id=job))["priority"] == 9
    response, text = await desk.console.post("/do/prioritise", {"id": job, "priority": "10"})
    assert response.status == 400 and "an integer from 0 to 9" in text


async def test_pause_and_resume_reach_all_ticked_topics(desk: Desk) -> None:
    for topic in ("paused-1", "paused-2"):
        await desk.job(f"in:{topic}", topic=topic)
    assert "2 paused" in await desk.console.note("/do/pause", {"topic": ["paused-1", "paused-2"], "seconds": "30m"})
    figures = await desk.client.ask("stats", topic="paused-1")
    assert figures["paused"] and figures["paused_until"]
    assert "2 resumed" in await desk.console.note("/do/resume", {"topic": ["paused-1", "paused-2"]})
    assert "paused" not in await desk.client.ask("stats", topic="paused-2")


async def test_purge_wants_the_name_of_the_topic_once_more(desk: Desk) -> None:
    for number in range(5):
        await desk.job(f"purge:{number}", topic="purged")
    response, _ = await desk.console.post("/do/purge", {"topic": "purged", "confirm": "purge"})
    assert response.status == 400
    assert await desk.state("purge:0") == "delayed"
    assert "5 jobs deleted" in await desk.console.note("/do/purge", {"topic": "purged", "confirm": "purged"})


async def test_purge_spares_other_states(desk: Desk) -> None:
    await desk.job("spared:1", topic="spared")
    await desk.job("spared:2", "dead", topic="spared")
    fields = {"topic": "spared", "confirm": "spared", "state": "dead"}
    assert "1 job deleted" in await desk.console.note("/do/purge", fields)
    assert await desk.state("spared:1") == "delayed"


async def test_the_oldest_dead_letters_of_a_topic_are_kicked(desk: Desk) -> None:
    for number in range(3):
        await desk.job(f"old:{number}", "dead", topic="old")
    assert "2 jobs kicked" in await desk.console.note("/do/kick-topic", {"topic": "old", "count": "2"})
    assert [await desk.state(f"old:{number}") for number in range(3)] == ["ready", "ready", "dead"]


async def test_a_test_job_is_added(desk: Desk) -> None:
    fields = {"topic": "tried", "id": "tried:1", "delay": "30m", "body": '{"a": 1.10}'}
    assert "tried:1: created" in await desk.console.note("/do/add", fields)
    assert await desk.state("tried:1") == "delayed"
    await desk.console.note("/do/add", fields | {"id": "tried:2", "key": "7"})
    assert (await desk.client.ask("get", id="tried:2"))["key"] == "7"
    response, text = await desk.console.post("/do/add", {**fields, "topic": "not a topic"})
    assert response.status == 400 and "topic" in text


async def test_a_schedule_is_removed(desk: Desk) -> None:
    await desk.client.ask("schedule", name="gone", topic="report", every=60, body={})
    assert "gone removed" in await desk.console.note("/do/unschedule", {"name": "gone"})
    assert (await desk.client.ask("schedules", pattern="gone"))["schedules"] == []


async def test_an_action_on_an_unknown_job_shows_the_refusal_of_the_service(desk: Desk) -> None:
    for action in ("run", "kick", "delete", "bury", "release"):
        response, text = await desk.console.post(f"/do/{action}", {"id": "nobody"})
        assert response.status == 404 and "no such job" in text


async def test_nothing_ticked_is_refused(desk: Desk) -> None:
    for name in ("do/run", "do/kick", "do/delete", "do/pause", "do/resume", "do/unschedule"):
        assert name in ACTIONS
        response, text = await desk.console.post(f"/{name}")
        assert response.status == 400 and "one at least" in text


async def test_a_page_shows_what_an_action_has_just_changed(desk: Desk) -> None:
    """Although questions are asked once a second only."""
    job = await desk.job("seen:1")
    assert "Run now" in (await desk.console.get(f"/job?id={job}"))[1]
    await desk.console.post("/do/run", {"id": job})
    assert "Run now" not in (await desk.console.get(f"/job?id={job}"))[1]


async def test_dead_letters_are_exported_as_they_are(desk: Desk) -> None:
    body = '{"n":12345678901234567890123,\n "p":1.10}'
    for number in range(150):
        await desk.client.post(f'{{"command":"add","topic":"exported","id":"e:{number}","body":{body}}}'.encode())
        await desk.client.ask("pop", topic="exported")
        await desk.client.ask("bury", id=f"e:{number}", reason="odd" if number % 2 else "even")
    response, text = await desk.console.get("/dead.jsonl?topic=exported&reason=odd")
    lines = text.splitlines()
    assert len(lines) == 75 and {json.loads(line)["reason"] for line in lines} == {"odd"}
    assert all('"n":12345678901234567890123' in line and "1.10" in line for line in lines)
    assert "attachment" in response.headers["Content-Disposition"]
    assert response.headers["Content-Security-Policy"].startswith("sandbox")
