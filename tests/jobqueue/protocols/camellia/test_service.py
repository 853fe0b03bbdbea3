"""camellia's clients at a real service: raw bytes, tokens and namespaces in the path, long polls, a Java program."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import aiohttp
import pytest

from buckets import Redis
from jobqueue.app import Service
from jobqueue.dialect_settings import Camellia, Dialects
from jobqueue.settings import Settings
from tests.kit.ports import free_port
from tests.kit.redis_server import RedisServer

REQUEST = (
    b"POST /camellia/delayQueue/sendMsg HTTP/1.1\r\n"
    b"Content-Type: application/x-www-form-urlencoded; charset=utf-8\r\n"
    b"Content-Length: 122\r\n"
    b"Host: 127.0.0.1:8080\r\n"
    b"Connection: Keep-Alive\r\n"
    b"Accept-Encoding: gzip\r\n"
    b"User-Agent: okhttp/3.14.9\r\n"
    b"\r\n"
    b"msg=%7B%22x%22%3A%22%C3%A9+%26%22%7D&maxRetry=-1&delayMillis=1500&topic=%E8%AE%A2%E5%8D%95+a&ttlMillis=-1"
    b"&msgId=id%2B1%2F2"
)
ANSWER = (
    r'\{"code":200,"msg":"success","delayMsg":\{"topic":"订单 a","msgId":"id\+1/2","msg":"\{\\"x\\":\\"é &\\"\}",'
    r'"produceTime":(\d{13}),"triggerTime":(\d{13}),"expireTime":(\d{13}),"maxRetry":10,"retry":0,"status":1\}\}'
)


@contextlib.asynccontextmanager
async def serving(server: RedisServer, **options: Any) -> AsyncIterator[tuple[Service, int]]:
    """A service that speaks camellia, and its port."""
    port = free_port()
    protocols = Dialects(camellia=Camellia(**({"port": port} | options)))
    async with Service(Settings(port=0, redis=server.url, grace_s=1, protocols=protocols)) as service:
        yield service, port


async def post(url: str, operation: str, **parameters: Any) -> Any:
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{url}/camellia/delayQueue/{operation}", data=parameters) as response,
    ):
        return {"status": response.status} | await response.json()


def own(port: int) -> str:
    return f"http://127.0.0.1:{port}"


@pytest.fixture(autouse=True)
def empty(redis: Redis) -> None:
    """Redis is empty."""


async def test_the_java_sdks_bytes_are_answered_with_what_it_reads(redis_server: RedisServer) -> None:
    async with serving(redis_server) as (_, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        answers = []
        for _ in range(2):  # on one connection, and the second answer is that of the first message
            writer.write(REQUEST)
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            length = re.search(r"Content-Length: (\d+)\r\n", head)
            assert (
                head.startswith("HTTP/1.1 200 OK\r\n") and "\r\nContent-Type: application/json\r\n" in head and length
            )
            answers.append((await reader.readexactly(int(length[1]))).decode())
        writer.close()
    match = re.fullmatch(ANSWER, answers[0])
    assert match and answers[1] == answers[0]
    produced, due, ends = map(int, match.groups())
    assert (due - produced, ends - due) == (1500, 3_600_000)


async def test_the_path_may_hold_a_token_and_then_a_namespace(redis_server: RedisServer) -> None:
    options = {"token": "s3cret", "namespaces": {"im": "im."}, "path": "/c"}
    async with serving(redis_server, **options) as (service, port):
        message = {"topic": "t", "msgId": "m", "msg": "x", "delayMillis": "0"}
        assert (await post(f"{own(port)}/~s3cret/im", "sendMsg", **message))["code"] == 200
        pulled = await post(f"{service.url}/c/~s3cret/im", "pullMsg", topic="t")
        assert [each["msgId"] for each in pulled["delayMsgList"]] == ["m"]
        for base in ("", "/~wrong", "/im/~s3cret"):
            refused = await post(own(port) + base, "pullMsg", topic="t")
            assert (refused["status"], refused["error"]) == (401, "Unauthorized")
            assert refused["path"] == f"{base.replace('/~wrong', '')}/camellia/delayQueue/pullMsg"


async def test_a_refused_long_poll_waits_as_the_sdk_polls_again_at_once(redis_server: RedisServer) -> None:
    async with serving(redis_server, token="s3cret") as (_, port):  # noqa: S106
        begun = asyncio.get_running_loop().time()
        refused = await post(own(port), "longPollingMsg", topic="t")
        assert refused["status"] == 401
        assert asyncio.get_running_loop().time() - begun > 0.9


async def test_health_and_what_is_not_there(redis_server: RedisServer) -> None:
    async with serving(redis_server, token="s3cret") as (_, port), aiohttp.ClientSession() as session:  # noqa: S106
        for name in ("status", "check"):
            async with session.get(f"{own(port)}/camellia/health/{name}") as response:
                assert (response.status, await response.text()) == (200, '{"code":200}')
        async with session.get(f"{own(port)}/~s3cret/camellia//nothing") as response:
            page = await response.json()
            assert (response.status, page["status"], page["path"]) == (404, 404, "/camellia/nothing")


async def test_the_monitor_counts_what_its_process_delivers(redis_server: RedisServer) -> None:
    async with serving(redis_server) as (_, port), aiohttp.ClientSession() as session:
        for name in ("getMonitorData", "getMonitorString"):
            async with session.get(f"{own(port)}/camellia/delayQueue/{name}") as response:
                assert response.status == 200 and not json.loads(await response.text()).get("requestStats")


@pytest.mark.skipif(shutil.which("javac") is None, reason="needs a JDK: Debian's openjdk-17-jdk-headless")
async def test_a_java_program_sends_pulls_and_acks_as_the_sdk_does(redis_server: RedisServer) -> None:
    async with serving(redis_server) as (_, port):
        java = await asyncio.create_subprocess_exec(
            *("java", "-Xshare:auto", str(Path(__file__).with_name("Sdk.java")), own(port)),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        said, _ = await java.communicate()
    assert java.returncode == 0 and said.decode().endswith("all is well\n"), said.decode()


def test_the_sdks_request_says_how_long_it_is() -> None:
    form = REQUEST.partition(b"\r\n\r\n")[2]
    pairs = (("msg", '{"x":"é &"}'), ("maxRetry", -1), ("delayMillis", 1500), ("topic", "订单 a"))
    assert form.decode() == urlencode([*pairs, ("ttlMillis", -1), ("msgId", "id+1/2")]) and len(form) == 122
