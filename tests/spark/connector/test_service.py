"""pyspark_jobqueue.connector.service: batches of commands are sent until all are answered."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import trustme
from pyspark_jobqueue.connector.options import Target
from pyspark_jobqueue.connector.service import Answer, Service
from pyspark_jobqueue.errors import Refused, Unreachable

from buckets.redis.client import Redis
from tests.conformance.proxy import Proxy
from tests.kit.redis_server import RedisServer
from tests.kit.service import Client, ServiceProcess


@pytest.fixture
async def proxy(redis_server: RedisServer, redis: Redis) -> AsyncIterator[Proxy]:
    """A proxy in front of a service on the tests' own, empty Redis."""
    async with ServiceProcess("--redis", redis_server.url) as service, Proxy(service.url) as proxy:
        yield proxy


def target(proxy: Proxy, *before: str, retries: int = 3) -> Target:
    return Target((*before, proxy.url), timeout_s=5, max_retries=retries, retry_wait_s=0.01)


def add(job_id: str, body: str = "") -> bytes:
    return json.dumps({"command": "add", "topic": "t", "id": job_id, "delay": 60, "body": body}).encode()


def adds(*ids: str) -> list[bytes]:
    return [add(each) for each in ids]


async def batch(service: Service, commands: list[bytes]) -> list[Answer]:
    try:
        return await asyncio.to_thread(service.batch, commands)
    finally:
        service.close()


async def kept(proxy: Proxy) -> dict[str, Any]:
    """The jobs in the queue, by id."""
    async with Client(proxy.url) as client:
        return {job["id"]: job for job in (await client.ask("peek", topic="t", count=1000))["jobs"]}


def later(code: str, **more: Any) -> dict[str, Any]:
    return {"success": False, "error": "not now", "code": code, **more}


@pytest.mark.parametrize(
    "faults",
    [
        ["cut"],
        ["drop", "drop"],
        ["page"],
        [{"status": 503, "answer": later("SHUTTING_DOWN")}],
        [{"status": 429, "answer": later("TOO_FAST")}, "cut"],
        [{"status": 200, "answer": "what is this?"}],
        [{"status": 503, "answer": {"code": 14, "message": "of a gateway"}}],
    ],
    ids=str,
)
async def test_a_request_without_an_answer_is_sent_again_and_each_job_is_there_once(
    proxy: Proxy, faults: list[Any]
) -> None:
    proxy.faults = list(faults)
    service = Service(target(proxy))
    answers = await batch(service, adds("a", "b"))
    assert [answer["id"] for answer in answers] == ["a", "b"]
    assert service.retries == len(faults) and len(proxy.requests) == len(faults) + 1
    assert set(await kept(proxy)) == {"a", "b"}


async def test_only_the_members_that_were_refused_for_now_are_sent_again(proxy: Proxy) -> None:
    done = {"success": True, "id": "a", "result": "created"}
    proxy.faults = [{"status": 200, "answer": [done, later("TOPIC_FULL"), {**done, "id": "c"}]}]
    answers = await batch(Service(target(proxy)), adds("a", "b", "c"))
    assert [(answer["id"], answer["result"]) for answer in answers] == [(each, "created") for each in "abc"]
    assert [command["id"] for command in proxy.requests[1].commands] == ["b"]


@pytest.mark.parametrize("of_all", [True, False], ids=["Retry-After", "retry_after of a member"])
async def test_it_waits_as_long_as_it_is_told(proxy: Proxy, of_all: bool) -> None:
    reported = later("NO_ROOM", retry_after=1)
    by_header = {"status": 503, "answer": reported, "headers": {"Retry-After": "1"}}
    proxy.faults = [by_header if of_all else {"status": 200, "answer": [reported]}]
    await batch(Service(target(proxy)), adds("a"))
    first, second = proxy.requests
    assert second.when - first.when >= 1


async def test_it_gives_up_after_retries_in_a_row_without_progress(proxy: Proxy) -> None:
    proxy.faults = [{"status": 200, "answer": [later("TOPIC_FULL")]}] * 4
    with pytest.raises(Unreachable, match=r"gave up after 3 retries: not now \(TOPIC_FULL\)"):
        await batch(Service(target(proxy)), adds("a"))
    assert len(proxy.requests) == 4


async def test_as_long_as_something_moves_it_does_not_give_up(proxy: Proxy) -> None:
    done = {"success": True, "result": "created"}
    proxy.faults = [{"status": 200, "answer": [done, *[later("TOPIC_FULL")] * left]} for left in (4, 3, 2, 1)]
    answers = await batch(Service(target(proxy, retries=1)), adds(*"abcde"))
    assert len(answers) == 5 and len(proxy.requests) == 5


async def test_where_one_url_does_not_answer_the_next_is_asked(proxy: Proxy) -> None:
    for start in (0, 1):
        service = Service(target(proxy, "http://127.0.0.1:9"), start)
        assert (await batch(service, adds("a")))[0]["success"]
        assert service.retries == 1 - start


async def test_a_refusal_of_all_is_raised_and_names_neither_token_nor_job(proxy: Proxy) -> None:
    proxy.faults = [{"status": 401, "answer": {"success": False, "error": "who are you?", "code": "UNAUTHORIZED"}}]
    secret = Target((proxy.url,), "s3cret", max_retries=3)
    with pytest.raises(Refused, match=r"who are you\? \(UNAUTHORIZED\)") as refused:
        await batch(Service(secret), adds("a"))
    assert proxy.requests[0].headers["Authorization"] == "Bearer s3cret"
    assert "s3cret" not in str(refused.value) and len(proxy.requests) == 1


async def test_a_token_that_was_exchanged_in_its_file_is_shown_to_the_end_of_the_task(
    proxy: Proxy, tmp_path: Path
) -> None:
    refusal = {"status": 401, "answer": {"success": False, "error": "who are you?", "code": "UNAUTHORIZED"}}
    file = tmp_path / "token"
    file.write_text("new\n")
    proxy.faults = [refusal]
    target = Target((proxy.url,), "old", str(file), max_retries=3, retry_wait_s=0.001)
    assert (await batch(Service(target), adds("a")))[0]["success"]
    assert [each.headers["Authorization"] for each in proxy.requests] == ["Bearer old", "Bearer new"]
    proxy.faults = [refusal] * 2
    with pytest.raises(Refused):  # the file has no other one
        await batch(Service(target), adds("b"))
    assert len(proxy.requests) == 4


async def test_what_is_too_large_for_one_request_goes_in_several(proxy: Proxy) -> None:
    """The proxy accepts 1 MiB, and answers with an HTML page beyond that; the service accepts bodies of 256 KiB."""
    commands = [
        *(add(f"{n}", "x" * 250_000) for n in range(16)),
        add("larger", "x" * 300_000),
        add("huge", "x" * 2**20),
    ]
    answers = await batch(Service(target(proxy)), commands)
    assert [answer["id"] for answer in answers[:16]] == [f"{n}" for n in range(16)]
    assert [(answer["success"], answer["code"]) for answer in answers[16:]] == [(False, "TOO_LARGE")] * 2
    assert len(await kept(proxy)) == 16


async def test_threads_have_connections_of_their_own(proxy: Proxy) -> None:
    service = Service(target(proxy))

    def one(number: int) -> str:
        (answer,) = service.batch(adds(f"{number}"))
        return str(answer["id"])

    with ThreadPoolExecutor(8) as threads:
        reported = await asyncio.gather(
            *(asyncio.get_running_loop().run_in_executor(threads, one, number) for number in range(100))
        )
    assert reported == [f"{number}" for number in range(100)] and len(await kept(proxy)) == 100
    service.close()


async def test_a_single_command_raises_what_it_was_refused_with(proxy: Proxy) -> None:
    service = Service(target(proxy))
    assert (await asyncio.to_thread(service.ask, {"command": "stats", "topic": "t"}))["shards"] == 1
    with pytest.raises(Refused, match=r"get: no such job \(NOT_FOUND\)") as refused:
        await asyncio.to_thread(service.ask, {"command": "get", "id": "nobody"})
    assert refused.value.code == "NOT_FOUND"
    service.close()


async def test_a_failure_of_tls_names_its_cure(proxy: Proxy) -> None:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(context)
    server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    cures = {
        f"https://127.0.0.1:{port}": ": the certificate is not valid: .*set SSL_CERT_FILE on the driver",
        f"http://127.0.0.1:{port}": ": this port speaks TLS: use https://$",
        proxy.url.replace("http:", "https:"): ": this port does not speak TLS: use http://$",
    }
    for url, cure in cures.items():
        with pytest.raises(Unreachable, match=f"{url}{cure}"):
            await batch(Service(Target((url,), timeout_s=5, max_retries=0)), adds("1"))
    server.close()
