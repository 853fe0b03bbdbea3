"""What a request may do is what its own token may do, at every moment: when its script has to be sent again, and when
the token ends or changes while the request goes on."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from buckets.redis.client import Redis
from jobqueue.access.issuing import Issued
from tests.kit.guarded import Guarded, guarded
from tests.kit.redis_server import RedisServer
from tests.kit.service import Client, ServiceProcess
from tests.kit.waiting import until


@pytest_asyncio.fixture(name="guarded")
async def one_service() -> AsyncIterator[Guarded]:
    with tempfile.TemporaryDirectory(prefix="jq-") as name:
        async with guarded(Path(name)) as service:
            yield service


class Wire:
    """A kept connection on which a test writes bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self.writer = reader, writer

    async def answer(self) -> tuple[int, Any]:
        """The status and the body of the next answer."""
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode()
        length = int(head.lower().partition("content-length: ")[2].partition("\r\n")[0])
        return int(head.split()[1]), json.loads(await self._reader.readexactly(length))

    async def ask(self, issued: Issued, command: Any, more: str = "") -> tuple[int, Any]:
        head, body = request(issued, command, more)
        self.writer.write(head + body)
        return await self.answer()


def request(issued: Issued, command: Any, more: str = "") -> tuple[bytes, bytes]:
    """The head and the body of a request. `more`: further fields of the head."""
    body = json.dumps(command).encode()
    shown = f"Authorization: Bearer {issued.token.text}\r\n"
    return f"POST /command HTTP/1.1\r\nHost: h\r\n{shown}{more}Content-Length: {len(body)}\r\n\r\n".encode(), body


async def connect(guarded: Guarded) -> Wire:
    return Wire(*await asyncio.open_connection("127.0.0.1", guarded.service.port))


async def test_a_script_that_is_sent_again_keeps_to_the_topics_of_its_own_token(guarded: Guarded) -> None:
    """As behind a proxy, whose connections carry the requests of several tokens."""
    wide, narrow = await guarded.token("admin"), await guarded.token("produce", topics=["own"])
    wire = await connect(guarded)
    assert (await wire.ask(wide, {"command": "add", "topic": "other", "id": "a", "body": 1}))[0] == 200
    assert (await wire.ask(wide, {"command": "get", "id": "a"}))[0] == 200  # answered by a task
    await guarded.redis.read("SCRIPT", "FLUSH")
    replace = {"command": "add", "topic": "own", "id": "a", "body": 2, "if_exists": "replace"}
    status, answer = await wire.ask(narrow, replace)
    assert (status, answer["code"]) == (409, "ALREADY_EXISTS")
    assert (await wire.ask(wide, {"command": "get", "id": "a"}))[1]["topic"] == "other"
    await guarded.redis.read("SCRIPT", "FLUSH")
    assert (await wire.ask(wide, {"command": "add", "topic": "other", "id": "b", "body": 1}))[0] == 200
    wire.writer.close()


async def test_without_tokens_a_script_is_sent_again_too(own_server: RedisServer) -> None:
    redis = Redis(own_server.url)
    async with ServiceProcess("--redis", own_server.url) as service, Client(service.url) as client:
        for number in range(3):
            assert (await client.ask("add", topic="t", id=f"{number}", body=1))["success"]
            await redis.read("SCRIPT", "FLUSH")
    await redis.close()


@pytest.mark.parametrize("more", ["", "X-Odd:1\r\n"], ids=["simple", "by aiohttp"])
@pytest.mark.parametrize("command", [{"command": "pop", "topic": "t", "wait": 30}, {"command": "stats"}], ids=str)
async def test_a_token_that_ends_before_the_body_has_come_does_nothing(
    guarded: Guarded, command: Any, more: str
) -> None:
    issued = await guarded.token("consume", "look")
    wire = await connect(guarded)
    head, body = request(issued, command, more)
    wire.writer.write(head + body[:5])
    await revoke(guarded, issued)
    wire.writer.write(body[5:])
    status, answer = await wire.answer()
    assert (status, answer["code"]) == (401, "UNAUTHORIZED")
    wire.writer.close()


async def test_a_pop_behind_commands_that_take_time_does_not_wait_for_a_token_that_has_ended(guarded: Guarded) -> None:
    issued = await guarded.token("consume")
    wire = await connect(guarded)
    await guarded.redis.read("CLIENT", "PAUSE", "2000", "WRITE")
    head, body = request(issued, [{"command": "touch", "id": "x"}, {"command": "pop", "topic": "t", "wait": 30}])
    wire.writer.write(head + body)
    await guarded.issuing.revoke(issued.record.id)  # written before the touch, or after it: the pop comes later
    status, answer = await wire.answer()
    assert status == 200
    assert answer[1]["code"] == "UNAUTHORIZED", answer
    wire.writer.close()


async def revoke(guarded: Guarded, issued: Issued) -> None:
    """Revoke a token, and wait until the service knows."""
    await guarded.issuing.revoke(issued.record.id)

    async def is_known() -> bool:
        return (await guarded.ask(issued, {"command": "whoami"}))[0] == 401

    await until(is_known)
