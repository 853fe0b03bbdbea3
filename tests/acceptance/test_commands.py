"""The native protocol from outside: what users send and what comes back."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.acceptance.service import Client, ServiceProcess
from tests.redis_server import RedisServer


@pytest.fixture
async def client(redis_server: RedisServer, redis: Any) -> AsyncIterator[Client]:
    """A client of a service on the tests' own Redis, which is empty."""
    async with ServiceProcess("--redis", redis_server.url) as service, Client(service.url) as client:
        yield client


async def test_the_four_commands_work_as_the_protocol_writes_them(client: Client) -> None:
    job = {"topic": "order-close", "id": "order-close:1001", "delay": 0, "TTR": 60, "body": {"order": 1001}}
    added = await client.ask("add", **job)
    assert (added["success"], added["id"], added["state"], added["result"]) == (
        True,
        "order-close:1001",
        "ready",
        "created",
    )
    popped = await client.ask("pop", topic="order-close")
    assert (popped["id"], popped["value"], popped["attempt"], popped["ttr"]) == (
        "order-close:1001",
        {"order": 1001},
        1,
        60,
    )
    assert (await client.ask("finish", id="order-close:1001"))["state"] == "finished"
    again = await client.ask("delete", id="order-close:1001")
    assert (again["code"], again["state"]) == ("WRONG_STATE", "finished")
    assert (await client.ask("pop", topic="order-close"))["id"] is None


async def test_a_body_comes_back_byte_for_byte(client: Client) -> None:
    for body in (
        '"ü"',
        '"\\u00fc \\ud83d\\ude00"',
        '{"a" : [1, 2.50, 1e3, null],"a":0}',
        '"' + "x" * 200_000 + '"',
        "9007199254740993",
        '""',
        "null",
    ):
        add = f'{{"command":"add","topic":"t","id":"b","if_exists":"replace","body":{body}}}'
        raw = f'[{add},{{"command":"pop","topic":"t"}}]'
        async with client._session.post(client.url + "/command", data=raw.encode()) as response:  # type: ignore[union-attr]
            text = (await response.read()).decode()
        assert f'"value":{body},' in text
        await client.ask("finish", id="b")


async def test_an_array_is_answered_in_order_and_one_bad_member_spoils_nothing(client: Client) -> None:
    answers = await client.batch(
        [
            {"command": "add", "topic": "t", "id": "a", "body": 1},
            {"command": "add", "topic": "t t", "id": "b", "body": 1},
            {"command": "pop", "topic": "t"},
            {"command": "finish", "id": "a"},
            {"command": "pop", "topic": "t", "count": 5},
            {"command": "get", "id": "nobody"},
        ]
    )
    assert [answer["success"] for answer in answers] == [True, False, True, True, True, False]
    assert (answers[1]["code"], answers[1]["field"], answers[1]["id"]) == ("BAD_FIELD", "topic", "b")
    assert (answers[2]["id"], answers[3]["state"], answers[4]["jobs"]) == ("a", "finished", [])
    assert answers[5]["code"] == "NOT_FOUND"


async def test_get_tells_all_of_a_job_that_it_was_given(client: Client) -> None:
    given: dict[str, Any] = {
        "topic": "t", "id": "g", "delay": 100, "ttr": 5, "priority": 7, "tries": 3, "backoff": [15, 15, 30, 180],
        "ttl": 1000, "retention": 5, "headers": {"trace": "ü"}, "tags": ["a", "b"],
    }  # fmt: skip
    added = await client.ask("add", body={"x": 1}, **given)
    told = await client.ask("get", id="g")
    for name, value in given.items():
        if name != "delay":
            assert told[name] == value, name
    assert (told["value"], told["state"], told["attempt"], told["deliveries"]) == ({"x": 1}, "delayed", 0, 0)
    assert told["due"] == added["due"] == told["until"]


async def test_stats_count_what_was_done(client: Client) -> None:
    await client.batch(
        [{"command": "add", "topic": "t", "id": str(n), "delay": 3600 * (n > 2), "body": n} for n in range(5)]
    )
    await client.ask("pop", topic="t")
    await client.ask("delete", id="4")
    stats = await client.ask("stats", topic="t")
    assert stats["counts"] == {"delayed": 1, "ready": 2, "reserved": 1, "dead": 0}
    assert stats["totals"] == {"created": 5, "deleted": 1, "delivered": 1}
    assert stats["due"]["under_1h"] + stats["due"]["under_6h"] == 1
    assert stats["oldest_ready"] >= 0
    assert (await client.ask("stats"))["counts"] == stats["counts"]


REFUSED = {
    "not JSON": (b"add a job please", 400, "BAD_JSON", None),
    "an empty body": (b"", 400, "BAD_JSON", None),
    "not UTF-8": (b'{"command":"add","topic":"t","body":"\xff"}', 400, "BAD_JSON", None),
    "a number": (b"3", 400, "BAD_JSON", None),
    "an empty list": (b"[]", 400, "TOO_MANY", None),
    "a list of 1,001": (json.dumps([{"command": "stats"}] * 1001).encode(), 400, "TOO_MANY", None),
    "deep nesting": (
        b'{"command":"add","topic":"t","body":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        400,
        "BAD_JSON",
        None,
    ),
    "a deep list": (b"[" * 100_000, 400, "BAD_JSON", None),
    "a lone surrogate": (b'{"command":"add","topic":"t","body":"\\ud800"}', 400, "BAD_JSON", None),
    "a wrong type": (b'{"command":"add","topic":"t","delay":"30","body":1}', 400, "BAD_FIELD", "delay"),
    "a topic that is a number": (b'{"command":"add","topic":7,"body":1}', 400, "BAD_FIELD", "topic"),
    "a delay that is true": (b'{"command":"add","topic":"t","delay":true,"body":1}', 400, "BAD_FIELD", "delay"),
    "NaN": (b'{"command":"add","topic":"t","delay":NaN,"body":1}', 400, "BAD_FIELD", "delay"),
    "a number beyond all numbers": (b'{"command":"add","topic":"t","delay":1e999,"body":1}', 400, "BAD_FIELD", "delay"),
    "a negative delay": (b'{"command":"add","topic":"t","delay":-1,"body":1}', 400, "BAD_FIELD", "delay"),
    "a delay of 11 years": (b'{"command":"add","topic":"t","delay":346896000,"body":1}', 400, "BAD_FIELD", "delay"),
    "a time without its offset": (
        b'{"command":"add","topic":"t","at":"2030-01-01T00:00:00","body":1}',
        400,
        "BAD_FIELD",
        "at",
    ),
    "a time in 100 years": (b'{"command":"add","topic":"t","at":4951238400,"body":1}', 400, "BAD_FIELD", "at"),
    "a time beyond all times": (b'{"command":"add","topic":"t","at":1e308,"body":1}', 400, "BAD_FIELD", "at"),
    "a number in the body that nobody can read": (
        b'{"command":"add","topic":"t","body":[1e999]}',
        400,
        "BAD_FIELD",
        "body",
    ),
    "a field with a dash": (
        b'{"command":"add","topic":"t","if-exists":"keep","body":1}',
        400,
        "UNKNOWN_FIELD",
        "if-exists",
    ),
    "a header of 200 characters": (
        b'{"command":"add","topic":"t","headers":{"' + b"h" * 200 + b'":"1"},"body":1}',
        400,
        "BAD_FIELD",
        "headers",
    ),
    "a list of 200,000 bad ones": (b"[" + b"{}," * 199_999 + b"{}]", 400, "TOO_MANY", None),
    "delay and at": (b'{"command":"add","topic":"t","at":1,"delay":1,"body":1}', 400, "BAD_FIELD", "at"),
    "ttr and TTR": (b'{"command":"add","topic":"t","ttr":1,"TTR":1,"body":1}', 400, "BAD_FIELD", "ttr"),
    "a ttr of 10 ms": (b'{"command":"add","topic":"t","TTR":0.01,"body":1}', 400, "BAD_FIELD", "ttr"),
    "a body of 10 MB": (
        b'{"command":"add","topic":"t","id":"big","body":"' + b"x" * 10_000_000 + b'"}',
        413,
        "TOO_LARGE",
        "body",
    ),
    "a request of 17 MB": (
        b'{"command":"add","topic":"t","body":"' + b"x" * 17_000_000 + b'"}',
        413,
        "TOO_LARGE",
        None,
    ),
    "no body": (b'{"command":"add","topic":"t"}', 400, "BAD_FIELD", "body"),
    "an id with spaces": (b'{"command":"add","topic":"t","id":"a b","body":1}', 400, "BAD_FIELD", "id"),
    "an id with a newline at its end": (b'{"command":"add","topic":"t","id":"a\\n","body":1}', 400, "BAD_FIELD", "id"),
    "a topic of 300 characters": (
        b'{"command":"add","topic":"' + b"t" * 300 + b'","body":1}',
        400,
        "BAD_FIELD",
        "topic",
    ),
    "a topic that is a Redis key": (b'{"command":"add","topic":"{jq:0}:meta","body":1}', 400, "BAD_FIELD", "topic"),
    "no command": (b'{"topic":"t","body":1}', 400, "BAD_FIELD", "command"),
    "an unknown command": (b'{"command":"ad","topic":"t","body":1}', 400, "UNKNOWN_COMMAND", "command"),
    "a misspelt field": (b'{"command":"add","topic":"t","dealy":30,"body":1}', 400, "UNKNOWN_FIELD", "dealy"),
    "priority 10": (b'{"command":"add","topic":"t","priority":10,"body":1}', 400, "BAD_FIELD", "priority"),
    "a ladder of 33 steps": (
        json.dumps({"command": "add", "topic": "t", "backoff": [1] * 33, "body": 1}).encode(),
        400,
        "BAD_FIELD",
        "backoff",
    ),
    "a header that is a number": (
        b'{"command":"add","topic":"t","headers":{"a":1},"body":1}',
        400,
        "BAD_FIELD",
        "headers",
    ),
    "pop without a topic": (b'{"command":"pop"}', 400, "BAD_FIELD", "topic"),
    "pop of 1,001 jobs": (b'{"command":"pop","topic":"t","count":1001}', 400, "BAD_FIELD", "count"),
    "a wait of 61 s": (b'{"command":"pop","topic":"t","wait":61}', 400, "BAD_FIELD", "wait"),
    "a lease of 2^53": (b'{"command":"finish","id":"a","lease":9007199254740992}', 400, "BAD_FIELD", "lease"),
}


async def test_bad_input_is_told_by_code_and_field_and_changes_nothing(client: Client, redis: Any) -> None:
    before = await redis.read("DBSIZE")
    for what, (data, status, code, field) in REFUSED.items():
        got, answer = await client.post(data)
        assert (got, answer["code"], answer.get("field")) == (status, code, field), what
        assert answer["success"] is False and "Traceback" not in answer["error"], what
        assert len(answer["error"]) < 300, what
        good, _ = await client.post(b'{"command":"pop","topic":"t"}')
        assert good == 200, what
    assert await redis.read("DBSIZE") == before


async def test_a_damaged_body_is_refused(client: Client) -> None:
    host, port = client.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    head = b"POST /command HTTP/1.1\r\nHost: t\r\nContent-Encoding: gzip\r\nContent-Length: 12\r\n\r\n"
    writer.write(head + b"no gzip here")
    said = await reader.read()
    writer.close()
    assert said.startswith(b"HTTP/1.1 400 ") and b'"code":"BAD_JSON"' in said
    assert (await client.ask("pop", topic="t"))["success"]


async def test_a_misspelt_field_names_the_nearest_known_one(client: Client) -> None:
    answer = await client.ask("add", topic="t", dealy=30, body=1)
    assert "did you mean delay?" in answer["error"]


async def test_wait_stands_in_the_last_command_of_an_array_only(client: Client) -> None:
    await client.ask("add", topic="t", id="a", body=1)
    answers = await client.batch(
        [{"command": "pop", "topic": "u", "wait": 5}, {"command": "pop", "topic": "t", "wait": 5}]
    )
    assert (answers[0]["code"], answers[0]["field"], answers[1]["id"]) == ("BAD_FIELD", "wait", "a")


async def test_null_is_as_if_the_field_were_absent(client: Client) -> None:
    answer = await client.ask("add", topic="t", id=None, delay=None, at=None, ttr=None, backoff=None, body=None)
    assert answer["success"] and len(answer["id"]) == 32
    assert (await client.ask("pop", topic="t", topics=None, count=None))["value"] is None


async def test_a_path_that_there_is_not_is_told_in_json(client: Client) -> None:
    session = client._session
    assert session
    for method, path, status in (("GET", "/command", 405), ("POST", "/nowhere", 404)):
        async with session.request(method, client.url + path) as response:
            assert response.status == status
            assert (await response.json())["success"] is False


async def test_the_request_id_comes_back(client: Client) -> None:
    session = client._session
    assert session
    data = b'{"command":"stats"}'
    async with session.post(client.url + "/command", data=data, headers={"X-Request-Id": "mine-1"}) as response:
        assert response.headers["X-Request-Id"] == "mine-1"
    async with session.post(client.url + "/command", data=data) as response:
        assert response.headers["X-Request-Id"]


async def test_a_command_that_fails_takes_nothing_from_the_one_before_it(redis_server: RedisServer, redis: Any) -> None:
    """A pop and a stats that meets an error: the job of the first is with its worker all the same."""
    async with ServiceProcess("--redis", redis_server.url) as service, Client(service.url) as client:
        await client.ask("add", topic="t", id="a", body=1)
        await redis.read("SET", "{jq:0}:c:broken", "not a hash")
        answers = await client.batch([{"command": "pop", "topic": "t"}, {"command": "stats", "topic": "broken"}])
    assert (answers[0]["id"], answers[1]["code"]) == ("a", "INTERNAL")
