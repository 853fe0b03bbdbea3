"""Replies that no job queue sends make the Python clients raise Unreachable, and never another error."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from jobqueue_client import AsyncClient, Client, Job, Unreachable

JOB = {
    "id": "1",
    "topic": "t",
    "value": 1,
    "lease": 1,
    "attempt": 1,
    "tries": 16,
    "due": 1.5,
    "ttr": 60,
    "headers": None,
}
Pop = Callable[[str], Awaitable[Job | None]]


async def pop_in_a_thread(url: str) -> Job | None:
    with Client(url, timeout_s=1, retry_for_s=0.2) as client:
        return await asyncio.to_thread(client.pop, "t")


async def pop_in_the_loop(url: str) -> Job | None:
    async with AsyncClient(url, timeout_s=1, retry_for_s=0.2) as client:
        return await client.pop("t")


pops = pytest.mark.parametrize("pop", [pop_in_a_thread, pop_in_the_loop])


@asynccontextmanager
async def answering(answer: bytes) -> AsyncIterator[str]:
    """The URL of a server that sends the same reply to every request."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(1 << 16):  # a request, until the client closes
            writer.write(answer)
            await writer.drain()
        writer.close()
        await writer.wait_closed()
        ended.set()

    ended = asyncio.Event()
    async with await asyncio.start_server(serve, "127.0.0.1") as server:
        host, port = server.sockets[0].getsockname()
        yield f"http://{host}:{port}"
        await ended.wait()


def reply(value: Any, status: int = 200) -> bytes:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%s" % (status, len(data), data)


STRANGE = {
    "another protocol": b"SSH-2.0-OpenSSH\r\n",
    "gzip that is none": b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}",
    "more than a memory": b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999\r\n\r\n{}",
    "more than a number": b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999999\r\n\r\n{}",
    "no chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n",
}


@pops
@pytest.mark.parametrize("answer", STRANGE.values(), ids=STRANGE)
async def test_a_strange_answer_is_unreachable(pop: Pop, answer: bytes) -> None:
    async with answering(answer) as url:
        with pytest.raises(Unreachable):
            await pop(url)


@pops
async def test_an_integer_of_5000_digits_does_not_hide_the_jobs_beside_it(pop: Pop) -> None:
    answer = json.dumps({"success": True, **JOB, "value": "?"}).replace('"?"', "1" * 5000)
    async with answering(reply(answer.encode())) as url:
        job = await pop(url)
        assert job and job.body == math.inf and job.lease == 1


@pops
@pytest.mark.parametrize("host", ["a..b", "a" * 64, "[fe80::a]"])
async def test_a_host_that_cannot_be_is_unreachable_and_nothing_was_done(pop: Pop, host: str) -> None:
    with pytest.raises(Unreachable) as raised:
        await pop(f"http://{host}")
    assert not raised.value.maybe_done
