"""The same requests over HTTP, on all paths: the fast one, the complete one on our connections, and aiohttp's."""

from __future__ import annotations

import re
import time
from contextlib import AsyncExitStack
from typing import Any

import pytest

from buckets import Redis
from jobqueue.protocols.command.fast_path import FastPath
from tests.jobqueue.protocols.command.random_requests import Maker
from tests.jobqueue.web.two_services import Line, started
from tests.kit.redis_server import RedisServer

REQUESTS = 300


def posted(body: bytes, fields: bytes = b"") -> bytes:
    return b"POST /command HTTP/1.1\r\nHost: t\r\nX-Request-Id: mine\r\n%bContent-Length: %d\r\n\r\n%b" % (
        fields,
        len(body),
        body,
    )


async def answered(port: int, request: bytes) -> bytes:
    """The answer to a request, on a connection of its own: a large one would leave the connection to aiohttp."""
    line = Line(port)
    try:
        await line.write(request)
        head, _, _ = (await line.answers(1)).partition(b"\r\n\r\n")
        return await line.comes(len(head) + 4 + int(re.findall(rb"Content-Length: (\d+)", head)[0]))
    finally:
        line.close()


def without_times(received: bytes) -> bytes:
    """An answer without what the clock decides. Times have fewer digits where the last ones are zeros."""
    received = re.sub(rb'"(lease|due|ready|paused_until|created|until)":[0-9.]+', rb'"\1":0', received)
    return re.sub(rb"(?m)^(Date|Content-Length): .*\r$", rb"\1\r", received)


def leases(body: bytes) -> dict[str, int]:
    """Those of the jobs that an answer hands out."""
    found = re.findall(rb'"id":"([^"]+)","value":.*?"lease":(\d+)', body, re.DOTALL)
    return {job_id.decode(): int(lease) for job_id, lease in found}


async def test_the_same_requests_are_answered_alike_on_all_paths(
    redis: Redis, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each path has a namespace of its own. The leases are those that each was given itself."""
    taken = {"fast": 0, "complete": 0}
    begin = FastPath.begin

    def count(path: FastPath, *arguments: object) -> object:
        begun = begin(path, *arguments) if path in fast_ones else None  # type: ignore[arg-type]
        taken["fast" if begun and type(begun) is not tuple else "complete"] += 1
        return begun

    monkeypatch.setattr(FastPath, "begin", count)
    make, made = FastPath.__init__, list[FastPath]()

    def note(path: FastPath, *arguments: Any) -> None:
        make(path, *arguments)
        made.append(path)

    monkeypatch.setattr(FastPath, "__init__", note)
    async with AsyncExitStack() as stack:
        ports = [await stack.enter_async_context(started(redis_server.url, name)) for name in ("one", "two", "three")]
        fast_ones, now_s = made[:1], time.time()
        makers = [Maker(7, now_s, steady=True) for _ in ports]
        for turn in range(REQUESTS):
            said = []
            for port, maker, fields in zip(ports, makers, (b"", b"", b"X-Odd:1\r\n"), strict=True):
                data = maker.request()
                answer = await answered(port, posted(data, fields))
                maker.leases |= leases(answer)
                said.append(without_times(answer))
            assert said[0] == said[1] == said[2], (turn, data)
    assert taken["fast"] > REQUESTS / 3
    assert taken["complete"] > REQUESTS
