"""peek, topics, pause, resume and purge from outside, and the bound on the jobs in the answers to one request."""

from __future__ import annotations

import base64
import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from buckets.redis.client import Redis
from tests.kit.redis_server import RedisServer
from tests.kit.service import Client, ServiceProcess
from tests.kit.waiting import until

KIB = 1024
WORDS = ["delayed", "ready", "reserved", "dead"]


async def add(client: Client, number: int, body: Any = 1, topic: str = "t", **fields: Any) -> None:
    """Add `number` jobs with the ids `0`, `1`, …"""
    for first in range(0, number, 20):
        jobs = [
            {"command": "add", "topic": topic, "id": str(n), "body": body, **fields}
            for n in range(first, min(first + 20, number))
        ]
        assert all(answer["success"] for answer in await client.batch(jobs))


async def one_in_each_state(client: Client, topic: str = "t") -> None:
    """Jobs whose ids are the words of their states."""
    for job_id in ("dead", "reserved"):
        await client.ask("add", topic=topic, id=job_id, body={"of": job_id})
        await client.ask("pop", topic=topic)
    await client.ask("bury", id="dead", reason="poison")
    await client.ask("add", topic=topic, id="ready", body={"of": "ready"}, headers={"a": "b"})
    await client.ask("add", topic=topic, id="delayed", body={"of": "delayed"}, delay=3600, tags=["x"])


async def all_of(client: Client, command: str, part: str, **fields: Any) -> list[Any]:
    """The entries of all pages of a listing."""
    found, cursor = [], None
    while True:
        answer = await client.ask(command, cursor=cursor, **fields)
        assert answer["success"], answer
        found += answer[part]
        cursor = answer["cursor"]
        if cursor is None:
            return found


async def test_peek_shows_jobs_as_get_does_and_reserves_none(client: Client) -> None:
    await one_in_each_state(client)
    status, answer = await client.post(b'{"command":"peek","topic":"t"}')
    assert (status, answer.keys()) == (200, {"success", "topic", "jobs", "cursor"})
    assert (answer["topic"], answer["cursor"]) == ("t", None)
    assert [job["id"] for job in answer["jobs"]] == WORDS
    for job in answer["jobs"]:
        told = await client.ask("get", id=job["id"])
        assert told.pop("success") and told == job
        assert (job["state"], job["value"]) == (job["id"], {"of": job["id"]})
        only = await client.ask("peek", topic="t", state=job["id"], count=1)
        assert only["jobs"] == [job]
    assert (await client.ask("stats", topic="t"))["counts"] == dict.fromkeys(WORDS, 1)
    assert await client.ask("peek", topic="nothing") == {
        "success": True,
        "topic": "nothing",
        "jobs": [],
        "cursor": None,
        "known": False,
    }


async def test_a_peek_may_begin_at_a_time(client: Client) -> None:
    begin = int(time.time()) + 1_000_000
    for n in range(5):
        await client.ask("add", topic="t", id=str(n), body=n, at=begin + n)
    fields: dict[str, Any] = {"topic": "t", "state": "delayed", "count": 2}
    jobs = await all_of(client, "peek", "jobs", **fields, **{"from": begin + 1})
    assert [job["id"] for job in jobs] == ["1", "2", "3", "4"]
    page = await client.ask("peek", **fields, **{"from": datetime.fromtimestamp(begin + 3, UTC).isoformat()})
    assert [job["id"] for job in page["jobs"]] == ["3", "4"]
    cursor = (await client.ask("peek", **fields, **{"from": begin + 1}))["cursor"]
    for wrong in ({}, {"from": begin}):  # a cursor goes on where it began
        answer = await client.ask("peek", **fields, **wrong, cursor=cursor)
        assert (answer["code"], answer["field"]) == ("BAD_FIELD", "cursor")
    for state in ({}, {"state": "ready"}):
        answer = await client.ask("peek", topic="t", **state, **{"from": begin})
        assert answer["error"] == "from needs a state that goes by time: delayed, reserved or dead"


async def test_a_paused_topic_says_so_wherever_one_looks_for_its_jobs(client: Client) -> None:
    await client.ask("add", topic="t", id="a", body=1)
    until = (await client.ask("pause", topic="t", seconds=1000))["until"]
    await client.ask("pause", topic="u")
    nothing = {"success": True, "id": None, "value": None}
    assert await client.ask("pop", topic="t", wait=0.1) == {**nothing, "paused": {"t": until}}
    assert await client.ask("pop", topics=["u", "t"]) == {**nothing, "paused": {"u": None, "t": until}}
    assert await client.ask("pop", topic="t", count=2) == {"success": True, "jobs": [], "paused": {"t": until}}
    for command, names in (("get", {"id": "a"}), ("stats", {"topic": "t"})):
        told = await client.ask(command, **names)
        assert (told["paused"], told["paused_until"]) == (True, until)
    assert (await client.ask("stats", topic="u"))["paused_until"] is None
    await client.ask("resume", topic="t")
    for command, names in (("get", {"id": "a"}), ("stats", {"topic": "t"}), ("stats", {}), ("pop", {"topic": "t"})):
        assert not {"paused", "paused_until", "known"} & (await client.ask(command, **names)).keys()
    assert await client.ask("pop", topics=["t", "none"]) == nothing


async def test_a_topic_that_does_not_exist_is_not_known(client: Client) -> None:
    for command in ("resume", "stats", "peek", "purge", "pop"):
        told = await client.ask(command, topic="none")
        assert (told["success"], told["known"]) == (True, False), command
    assert (await client.ask("pop", topics=["none", "neither"], count=3))["known"] is False
    assert (await client.ask("pause", topic="none"))["known"] is False
    for command in ("pause", "stats", "peek", "purge", "pop", "resume", "resume"):  # from now on it is: the pause holds
        assert "known" not in await client.ask(command, topic="none"), command
    await client.ask("add", topic="t", id="a", delay=60, body=1)
    assert "known" not in await client.ask("pop", topic="t")  # it has a job, though none was ever ready


async def test_a_topic_shows_how_long_its_oldest_job_has_waited_and_how_many_workers_poll_it(client: Client) -> None:
    await add(client, 2, topic="polled")
    (told,) = (await client.ask("topics"))["topics"]
    assert told["workers"] == 0 and 0 <= told["oldest_ready_s"] < 60
    for _ in range(2):
        await client.ask("pop", topics=["polled", "u"], worker="w")
    await client.ask("pop", topic="polled", worker="v")

    async def polled() -> bool:
        (told,) = (await client.ask("topics"))["topics"]
        return (told["workers"], told["oldest_ready_s"]) == (2, None)

    await until(polled)


def cursor_of(place: Any) -> str:
    """Cursors that a client may make up."""
    return base64.urlsafe_b64encode(json.dumps(place, separators=(",", ":")).encode()).decode().rstrip("=")


JUNK = {
    "no base64": "!!!!",
    "base64 of another alphabet": "+/+/",
    "a length that no base64 has": "abcde",
    "no JSON": base64.urlsafe_b64encode(b"hello").decode().rstrip("="),
    "no UTF-8": base64.urlsafe_b64encode(b'[1,0,0,"1","\xff",0]').decode().rstrip("="),
    "a lone surrogate": base64.urlsafe_b64encode(b'[1,0,0,"1","\\ud800",0]').decode().rstrip("="),
    "letters": "ü",
    "with its filling": cursor_of([1, 0, 0, "", "", 0]) + "=",
    "JSON with spaces": base64.urlsafe_b64encode(b'[1, 0, 0, "", "", 0]').decode().rstrip("="),
    "an object": cursor_of({"state": 1, "shard": 0}),
    "a number": cursor_of(7),
    "nothing": cursor_of(None),
    "an empty list": cursor_of([]),
    "too short": cursor_of([1]),
    "too long": cursor_of([1, 0, 0, "", "", 0, 0]),
    "defaults left out": cursor_of([1, 0]),
    "a state that is text": cursor_of(["1", 0, 0, "", "", 0]),
    "a state that is none": cursor_of([0, 0, 0, "", "", 0]),
    "a tombstone's state": cursor_of([5, 0, 0, "", "", 0]),
    "a shard beyond all": cursor_of([1, 1, 0, "", "", 0]),
    "a negative shard": cursor_of([1, -1, 0, "", "", 0]),
    "a bucket beyond all": cursor_of([1, 0, 256, "", "", 0]),
    "a negative bucket": cursor_of([1, 0, -1, "", "", 0]),
    "a priority beyond all": cursor_of([2, 0, 11, "", "", 0]),
    "a shard with a fraction": cursor_of([1, 0.5, 0, "", "", 0]),
    "a shard that is true": cursor_of([1, True, 0, "", "", 0]),
    "a shard beyond all integers": cursor_of([1, 10**30, 0, "", "", 0]),
    "a time that is a word": cursor_of([1, 0, 0, "now", "", 0]),
    "a time that is a number": cursor_of([1, 0, 0, 5, "", 0]),
    "a time with two points": cursor_of([1, 0, 0, "1.2.3", "", 0]),
    "a time that is an interval": cursor_of([1, 0, 0, "(1", "", 0]),
    "an index with a fraction": cursor_of([2, 0, 4, "1.5", "", 0]),
    "a negative index": cursor_of([2, 0, 4, "-1", "", 0]),
    "an entry with letters beyond bytes": cursor_of([1, 0, 0, "1", "€", 0]),
    "an entry that is a list": cursor_of([1, 0, 0, "1", [], 0]),
    "a beginning before all times": cursor_of([1, 0, 0, "", "", -1]),
    "a beginning beyond all integers": cursor_of([1, 0, 0, "", "", 10**30]),
    "a thousand characters": "A" * 1000,
    "more than a thousand": "A" * 1001,
    "no characters": "",
}


async def check_refused(client: Client, what: str, command: str, **fields: Any) -> None:
    status, answer = await client.post(json.dumps({"command": command, **fields}).encode())
    assert (status, answer["code"], answer.get("field")) == (400, "BAD_FIELD", "cursor"), what
    assert answer["error"] == "cursor must be one that an earlier answer to this command gave"


async def test_a_cursor_that_is_none_is_told_so_and_nothing_is_deleted(client: Client) -> None:
    await one_in_each_state(client)
    for what, cursor in JUNK.items():
        for command in ("peek", "purge"):
            await check_refused(client, what, command, topic="t", cursor=cursor)
        await check_refused(client, what, "topics", cursor=cursor)
    for place in ([1, 0], [-1, 0], [0, -1], [0, 2**64], [0, 10**30], [0, "0"], [0], [0, 0, 0], [0, 0.5]):
        await check_refused(client, str(place), "topics", cursor=cursor_of(place))
    assert (await client.ask("stats", topic="t"))["counts"] == dict.fromkeys(WORDS, 1)


async def test_a_cursor_of_another_command_or_state_is_none(client: Client) -> None:
    begun = time.time_ns() // 1_000_000 + 60_000
    peek, purge, topics = cursor_of([4, 0, 0, "", "", 0]), cursor_of([4, 0, 0, "", "", begun]), cursor_of([0, 5])
    await one_in_each_state(client)
    for command, cursors in {"peek": [purge, topics], "purge": [peek, topics], "topics": [peek, purge]}.items():
        fields = {} if command == "topics" else {"topic": "t"}
        for cursor in cursors:
            await check_refused(client, command, command, cursor=cursor, **fields)
    for word in ("delayed", "ready", "reserved"):
        await check_refused(client, word, "peek", topic="t", state=word, cursor=peek)
        await check_refused(client, word, "purge", topic="t", state=word, cursor=purge)
    assert [job["id"] for job in (await client.ask("peek", topic="t", state="dead", cursor=peek))["jobs"]] == ["dead"]
    assert (await client.ask("topics", cursor=topics))["success"]
    assert (await client.ask("stats", topic="t"))["counts"] == dict.fromkeys(WORDS, 1)
    assert (await client.ask("purge", topic="t", state="dead", cursor=purge))["count"] == 1


async def test_the_answers_to_a_request_hold_so_many_bytes_of_jobs_and_then_nothing_is_reserved(
    client: Client,
) -> None:
    """8 MiB; the last job that goes beyond it is whole."""
    body = "x" * (250 * KIB)
    await add(client, 40, body)
    for command in ({"command": "pop", "topic": "t"}, {"command": "pop", "topic": "t", "count": 1}):
        answers = await client.batch([command] * 40)
        good = sum(answer["success"] for answer in answers)
        assert [answer["success"] for answer in answers] == [True] * good + [False] * (40 - good)
        assert 32 <= good <= 33
        assert {answer["code"] for answer in answers[good:]} == {"TOO_LARGE"}
        assert (await client.ask("stats", topic="t"))["counts"]["reserved"] == good
        await client.batch([{"command": "release", "id": str(n), "delay": 0} for n in range(40)])
        await until(lambda: all_ready(client, 40))
    answers = await client.batch([{"command": "get", "id": str(n)} for n in range(40)])
    assert sum(answer["success"] for answer in answers) in (32, 33)
    assert answers[-1]["code"] == "TOO_LARGE"
    assert answers[-1]["id"] == "39"
    answers = await client.batch([{"command": "peek", "topic": "t"}] * 2 + [{"command": "pop", "topic": "t"}])
    assert 32 <= len(answers[0]["jobs"]) <= 33 and answers[0]["cursor"]
    assert [answer.get("code") for answer in answers[1:]] == ["TOO_LARGE"] * 2
    rest = await client.ask("peek", topic="t", cursor=answers[0]["cursor"])
    assert len(answers[0]["jobs"]) + len(rest["jobs"]) == 40
    popped = await client.ask("pop", topic="t", count=1000)
    assert 32 <= len(popped["jobs"]) <= 33
    assert (await client.ask("pop", topic="t", count=1000))["jobs"]


async def all_ready(client: Client, number: int) -> bool:
    return bool((await client.ask("stats", topic="t"))["counts"]["ready"] == number)


async def test_small_jobs_with_much_beside_their_bodies_count_too(client: Client) -> None:
    headers = {f"{n:02}" + "h" * 126: "v" * 128 for n in range(16)}
    await add(client, 1_000, headers=headers)
    peek: dict[str, Any] = {"command": "peek", "topic": "t", "count": 1000}
    answers = await client.batch([peek, peek, peek, peek])
    assert sum(len(answer.get("jobs", ())) for answer in answers) < 2_500
    assert answers[-1]["code"] == "TOO_LARGE"
    pop = {"command": "pop", "topic": "t", "count": 1000}
    peek["state"] = "reserved"
    answers = await client.batch([pop, {"command": "get", "id": "0"}, {"command": "get", "id": "1"}, peek, peek, peek])
    assert len(answers[0]["jobs"]) == 1_000
    assert answers[-1]["code"] == "TOO_LARGE"


async def test_a_job_larger_than_all_that_answers_hold_still_fits(
    redis_server: RedisServer, redis: Redis, tmp_path: Path
) -> None:
    config = tmp_path / "jobqueue.toml"
    config.write_text(f"max_body_bytes = {12 << 20}\n")
    flags = ("--redis", redis_server.url, "--config", str(config))
    async with ServiceProcess(*flags) as service, Client(service.url) as client:
        body = "x" * (9 << 20)
        assert (await client.ask("add", topic="t", id="a", body=body))["success"]
        for command in (
            {"command": "get", "id": "a"},
            {"command": "peek", "topic": "t"},
            {"command": "pop", "topic": "t", "count": 9},
        ):
            answers = await client.batch([command, {"command": "get", "id": "a"}])
            told = answers[0].get("jobs", [answers[0]])
            assert [len(job["value"]) for job in told] == [9 << 20]
            assert answers[1]["code"] == "TOO_LARGE"
