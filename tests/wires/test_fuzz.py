"""Random requests to each dialect, and clients that behave badly: nothing breaks, and others go on. TEST_FUZZ sets
the number of requests of a dialect, TEST_FUZZ_SEED makes them differ."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
from pathlib import Path

import pytest

from buckets.redis.client import Redis
from tests.kit.redis_server import RedisServer
from tests.wires.drivers import Driver
from tests.wires.drivers.stream import Stream
from tests.wires.random_requests import Maker
from tests.wires.serving import DRIVERS, Wires, serving

REQUESTS = int(os.environ.get("TEST_FUZZ", "5000"))
SEED = int(os.environ.get("TEST_FUZZ_SEED", "0"))
_ON_A_CONNECTION = 5
_AT_ONCE = 16
_QUIET_S = 0.1
_ANSWER_S = 20.0
_GROWTH = 64 << 20
"""Bytes that the process may grow by: what was added stays in Redis, so this is what caches and buffers may take."""
_SILENT = 1000
DIALECTS = [kind for kind in DRIVERS if kind.NAME not in ("native", "queue_server by UDP")]
by_dialect = pytest.mark.parametrize("kind", DIALECTS, ids=lambda kind: kind.NAME)
BUGS = {"command.failed", "request.failed", "task.ended", "timer.failed", "timer.broke", "job.set_aside"}


def resident(wires: Wires) -> int:
    """Bytes of the service's process."""
    assert wires.service.process
    pages = Path(f"/proc/{wires.service.process.pid}/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


async def sent(port: int, data: bytes) -> bytes:
    """Send bytes and, when nothing comes back for a moment, hang up; returns all that came until the service closed.
    Raises TimeoutError for a hang."""
    async with asyncio.timeout(_ANSWER_S):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        answer = b""
        with contextlib.suppress(ConnectionError):
            writer.write(data)
            while some := await _more(reader, writer):
                answer += some
        writer.close()
        return answer


async def _more(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_QUIET_S):
            return await reader.read(1 << 16)
    if writer.can_write_eof():
        writer.write_eof()
    return await reader.read(1 << 16)


async def goes_on(wires: Wires, kind: type[Driver]) -> None:
    """A well-behaved client adds, pops and finishes."""
    async with wires.driver(kind) as client, wires.popper(kind) as popper:
        await client.add("well/behaved", b"x")
        job = await popper.pop("well/behaved", 10)
        assert job is not None and await popper.finish(job)


def check_events(wires: Wires) -> None:
    events = [json.loads(line).get("event") for line in wires.log.read_text().splitlines()]
    assert not BUGS & {*events}, events


@pytest.mark.timeout(3600)
@by_dialect
async def test_no_request_breaks_a_dialect_and_others_go_on(
    kind: type[Driver], redis_server: RedisServer, redis: Redis
) -> None:
    async with serving(redis_server.url) as wires:
        port, maker = wires.port(kind.NAME), Maker(kind.NAME, SEED)
        await goes_on(wires, kind)
        before, answered = resident(wires), 0
        for turn in range(0, REQUESTS, _ON_A_CONNECTION * _AT_ONCE):
            batches = [b"".join(maker.request() for _ in range(_ON_A_CONNECTION)) for _ in range(_AT_ONCE)]
            for answer in await asyncio.gather(*(sent(port, batch) for batch in batches)):
                assert b"INTERNAL" not in answer, answer
                answered += bool(answer)
            if turn % 1000 == 0:
                await goes_on(wires, kind)
        assert answered > REQUESTS / _ON_A_CONNECTION / 2, "hardly anything was answered"
        await goes_on(wires, kind)
        assert resident(wires) - before < _GROWTH
        check_events(wires)


@pytest.mark.timeout(3600)
async def test_no_datagram_breaks_queue_server_and_what_is_no_object_gets_no_answer(
    redis_server: RedisServer, redis: Redis
) -> None:
    kind = next(each for each in DRIVERS if each.NAME == "queue_server by UDP")
    async with serving(redis_server.url) as wires:
        maker = Maker("queue_server", SEED)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
            client.connect(("127.0.0.1", wires.port("queue_server")))
            client.setblocking(False)
            for turn in range(REQUESTS):
                client.send(maker.request())
                with contextlib.suppress(BlockingIOError):
                    json.loads(client.recv(1 << 16))
                if turn % 100 == 0:
                    await goes_on(wires, kind)
        check_events(wires)


async def test_junk_datagrams_get_no_answer(redis_server: RedisServer, redis: Redis) -> None:
    async with serving(redis_server.url) as wires:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
            client.connect(("127.0.0.1", wires.port("queue_server")))
            client.setblocking(False)
            for junk in (b"", b"\xff", b'{"action":4,"queue":"a"', b"[1]", b"1", b"null", b'"x"'):
                client.send(junk)
            client.send(b'{"action":4,"queue":"a","seq":77}')
            async with asyncio.timeout(10):
                answer = await asyncio.get_running_loop().sock_recv(client, 1 << 16)
            assert json.loads(answer)["seq"] == 77


@by_dialect
async def test_a_thousand_silent_connections_and_a_slow_sender_hold_nobody_up(
    kind: type[Driver], redis_server: RedisServer, redis: Redis
) -> None:
    async with serving(redis_server.url) as wires, contextlib.AsyncExitStack() as stack:
        await goes_on(wires, kind)
        before = resident(wires)
        for number in range(_SILENT):
            silent = Stream(wires.port(kind.NAME))
            stack.push_async_callback(silent.close)
            await silent.connect()
            if number % 10 == 0:
                await silent.send(Maker(kind.NAME, number).request()[:1])  # begins a request and does not go on
        await goes_on(wires, kind)
        assert resident(wires) - before < _GROWTH
        check_events(wires)
