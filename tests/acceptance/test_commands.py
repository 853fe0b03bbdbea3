"""The native protocol from outside: what only a process shows; tests/conformance/scenario.json has its commands."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.kit.redis_server import RedisServer
from tests.kit.service import Client, ServiceProcess
from tests.kit.waiting import until


async def test_a_herd_is_spread_and_each_job_has_its_moment_whoever_adds_it(client: Client) -> None:
    now = (await client.ask("add", topic="t", body=1))["due"]
    at = int(now) + 3_650 * 86_400 - 60  # with the spread that is beyond ten years
    adds: list[dict[str, Any]] = [
        {"command": "add", "topic": "poll", "id": f"poll:{number}", "body": 1, "at": at, "spread": 3600}
        for number in range(200)
    ]
    moments = {answer["id"]: answer["due"] for answer in await client.batch(adds)}
    assert at <= min(moments.values()) < at + 400 and at + 3200 < max(moments.values()) <= at + 3600
    for again in ({"if_exists": "replace"}, {"tags": ["takes the complete path"], "if_exists": "replace"}):
        assert {each["id"]: each["due"] for each in await client.batch([add | again for add in adds])} == moments
    for how in ("later", "sooner"):  # no move: it is the same moment
        assert (await client.ask(**adds[7] | {"if_exists": how}))["result"] == "existing"
    assert (await client.ask("add", topic="poll", body=1, spread=3600))["state"] == "delayed"  # without an id, too


async def test_a_lease_that_ended_is_told_with_its_time_and_worker(client: Client) -> None:
    await client.ask("add", topic="t", id="a", ttr=0.2, body=1)
    first = await client.ask("pop", topic="t", worker="w")
    assert "ready" not in first
    await until(lambda: is_ready(client, "a"))
    told = await client.ask("get", id="a")
    assert (told["state"], told["reason"], told["worker"], told.get("cause")) == ("ready", "lease ended", "w", None)
    assert first["lease"] / 1e6 + 0.2 <= told["ended"] == told["ready_since"]
    again = await client.ask("pop", topic="t")
    assert (again["attempt"], again["due"], again["ready"]) == (2, first["due"], told["ended"])
    told = await client.ask("get", id="a")
    assert told["reason"] is None and "ended" not in told


async def is_ready(client: Client, job_id: str) -> bool:
    return bool((await client.ask("get", id=job_id))["state"] == "ready")


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


REFUSED = {
    "an empty body": (b"", 400, "BAD_JSON", None),
    "not UTF-8": (b'{"command":"add","topic":"t","body":"\xff"}', 400, "BAD_JSON", None),
    "a deep list": (b"[" * 100_000, 400, "BAD_JSON", None),
    "a deep body": (b'{"command":"add","topic":"t","body":%s1}' % (b"[" * 100_000), 400, "BAD_JSON", None),
    "a list of 200,000 bad ones": (b"[" + b"{}," * 199_999 + b"{}]", 400, "TOO_MANY", None),
    "a body of 10 MB": (b'{"command":"add","topic":"t","body":"%s"}' % (b"x" * 10**7), 413, "TOO_LARGE", "body"),
    "an update of 300 kB": (b'{"command":"update","id":"a","body":"%s"}' % (b"x" * 300_000), 413, "TOO_LARGE", "body"),
    "a request of 17 MB": (b'{"command":"add","topic":"t","body":"%s"}' % (b"x" * 17_000_000), 413, "TOO_LARGE", None),
    "a wrong field": (b'{"command":"add","topic":"t","delay":-1,"body":1}', 400, "BAD_FIELD", "delay"),
}
"""Those that a process could stumble over; tests/jobqueue/schema has all that a field or a command may not be."""


async def test_bad_input_is_reported_by_code_and_field_and_changes_nothing(client: Client) -> None:
    for what, (data, status, code, field) in REFUSED.items():
        got, answer = await client.post(data)
        assert (got, answer["code"], answer.get("field")) == (status, code, field), what
        assert answer["success"] is False and "Traceback" not in answer["error"], what
        assert len(answer["error"]) < 300, what
        good, _ = await client.post(b'{"command":"pop","topic":"t"}')
        assert good == 200, what
    assert (await client.ask("topics"))["topics"] == []
    assert not any((await client.ask("stats"))["totals"].values())


async def test_an_encoded_body_is_refused(client: Client) -> None:
    host, port = client.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    head = b"POST /command HTTP/1.1\r\nHost: t\r\nContent-Encoding: gzip\r\nContent-Length: 12\r\n\r\n"
    writer.write(head + b"no gzip here")
    said = await reader.read()
    writer.close()
    assert said.startswith(b"HTTP/1.1 415 ") and b'"code":"BAD_HTTP"' in said and b"Content-Encoding" in said
    assert (await client.ask("pop", topic="t"))["success"]


async def test_only_the_last_command_of_an_array_may_wait(client: Client) -> None:
    await client.ask("add", topic="t", id="a", body=1)
    answers = await client.batch(
        [{"command": "pop", "topic": "u", "wait": 5}, {"command": "pop", "topic": "t", "wait": 5}]
    )
    assert (answers[0]["code"], answers[0]["field"], answers[1]["id"]) == ("BAD_FIELD", "wait", "a")


async def test_an_unknown_path_is_refused_in_json(client: Client) -> None:
    session = client._session
    assert session
    for method, path, status, code in (
        ("GET", "/command", 405, "METHOD_NOT_ALLOWED"),
        ("POST", "/nowhere", 404, "NO_SUCH_PATH"),  # not NOT_FOUND, or with a wrong URL no job would seem to exist
    ):
        async with session.request(method, client.url + path) as response:
            answer = await response.json()
            assert (response.status, answer["success"], answer["code"]) == (status, False, code)


@pytest.mark.parametrize(
    "junk",
    [
        b"add a job please\r\n\r\n",
        b"POST /command HTTP/1.1\r\nContent-Length: many\r\n\r\n",
        b"\x16\x03\x01\x02\x00\r\n\r\n",
    ],
)
async def test_bytes_that_are_not_http_are_refused_in_json(client: Client, junk: bytes) -> None:
    host, port = client.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(junk)
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    assert head.startswith(b"HTTP/1.1 400 ") or head.startswith(b"HTTP/1.0 400 ")
    assert json.loads(body)["code"] == "BAD_HTTP"


async def test_an_unknown_expectation_is_refused_in_json(client: Client) -> None:
    session = client._session
    assert session
    for expectation, status, code in (("100-continue", 200, None), ("a miracle", 400, "BAD_HTTP")):
        headers = {"Expect": expectation}
        async with session.post(client.url + "/command", data=b'{"command":"stats"}', headers=headers) as response:
            assert (response.status, (await response.json()).get("code")) == (status, code)


async def test_the_request_id_comes_back(client: Client) -> None:
    session = client._session
    assert session
    data = b'{"command":"stats"}'
    async with session.post(client.url + "/command", data=data, headers={"X-Request-Id": "mine-1"}) as response:
        assert response.headers["X-Request-Id"] == "mine-1"
    async with session.post(client.url + "/command", data=data) as response:
        assert response.headers["X-Request-Id"]


async def test_a_command_that_fails_takes_nothing_from_the_one_before_it(redis_server: RedisServer, redis: Any) -> None:
    """A pop, then a listing that fails: the popped job stays with its worker."""
    async with ServiceProcess("--redis", redis_server.url) as service, Client(service.url) as client:
        for number in range(50):
            await client.ask("add", topic="t", id=f"{number}", body=1)
            await redis.read("SET", "{jq:0}:t", "no sorted set")
            popped, listed = await client.batch([{"command": "pop", "topic": "t"}, {"command": "topics"}])
            assert popped["id"] == f"{number}"
            if not listed["success"]:
                break  # otherwise a timer had set the key aside meanwhile
    assert listed["code"] == "INTERNAL"


async def test_the_root_lists_the_paths_that_answer(client: Client) -> None:
    listed = json.loads(await page(client, "/"))
    assert listed["commands"] == "/command"
    assert listed["paths"] == ["/healthz", "/readyz", "/metrics", "/openapi.json"]
    for path in listed["paths"]:
        assert await page(client, path)
    assert await page(client, "/healthz") == b'{"status":"up"}'


async def page(client: Client, path: str) -> bytes:
    async with client._session.get(client.url + path) as response:  # type: ignore[union-attr]
        assert response.status == 200
        return await response.read()


@pytest.mark.parametrize(
    ("method", "path", "data"),
    [
        ("POST", "/command", b'{"command":"stats"}'),
        ("POST", "/command", b"no JSON"),
        ("POST", "/command?by=aiohttp", b'{"command":"stats"}'),
        ("GET", "/", None),
        ("GET", "/metrics", None),
        ("GET", "/nowhere", None),
        ("PUT", "/command", None),
    ],
)
async def test_no_answer_says_with_what_the_service_is_made(
    client: Client, method: str, path: str, data: bytes | None
) -> None:
    async with client._session.request(method, client.url + path, data=data) as response:  # type: ignore[union-attr]
        assert response.headers["Server"] == "jobqueue"
