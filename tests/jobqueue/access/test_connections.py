"""The limits of connections: clients that keep us waiting, and too many of them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable

import orjson
import pytest

from jobqueue.access import connections
from jobqueue.access.connections import most_connections
from tests.jobqueue.web.test_connection import GET, LOOPS, Desk, Loop, Place, bodies, chunked, post, run, served
from tests.jobqueue.web.two_services import Line
from tests.kit.waiting import until

SHORT_S = 0.2
HEAD_ONLY = b"POST /command HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n"
ODD = b"X-Odd:1\r\n"  # not simple, and so for aiohttp

# What a client sends, and the statuses that it gets.
UNFINISHED = {
    "nothing": (b"", b""),
    "a half head": (b"POST /command HTTP/1.1\r\nHos", b"408"),
    "a half head of another kind": (b"PUT /x HTTP/1.1\r\nHos", b"408"),
    "no body": (HEAD_ONLY, b"408"),
    "a half body": (post(b"a" * 1000)[:-1], b"408"),
    "a half body for aiohttp": (post(b"a" * 1000, ODD)[:-1], b"408"),
    "a half chunk": (chunked(b"abc")[:-3], b"408"),
    "a whole request and a half one": (post(b"a") + post(b"b")[:-1], b"200 408"),
    "a whole request and a half one for aiohttp": (post(b"a") + chunked(b"b")[:-1], b"200 408"),
    "a GET and a half request": (GET + HEAD_ONLY, b"200 408"),
}


def statuses(received: bytes) -> bytes:
    return b" ".join(re.findall(rb"HTTP/1\.1 (\d+) ", received))


async def ended(line: Line) -> None:
    """Wait until the service hangs up."""

    def looked() -> bool:
        line.look()
        return line.closed

    await until(looked)


@LOOPS
def test_clients_that_keep_us_waiting_for_their_requests_are_dropped(loop: Loop) -> None:
    async def test() -> None:
        desk = Desk()
        desk.let.set()
        async with served(desk, client_timeout_s=SHORT_S) as place:
            lines = {kind: place.line() for kind in UNFINISHED}
            for kind, line in lines.items():
                await line.write(UNFINISHED[kind][0])
            for line in lines.values():
                await ended(line)
            received = {kind: line.received for kind, line in lines.items()}
            assert {kind: statuses(each) for kind, each in received.items()} == {
                kind: gets for kind, (_, gets) in UNFINISHED.items()
            }
            for kind, each in received.items():
                if b"408" in UNFINISHED[kind][1]:
                    answer = orjson.loads(bodies(each)[-1])
                    assert (answer["success"], answer["code"]) == (False, "BAD_HTTP"), kind
                    assert b"Connection: close" in each, kind
            await until(lambda: not place.connections)

    run(loop, test)


@LOOPS
@pytest.mark.parametrize("said", [post(b"a" * 50), post(b"a" * 50, ODD), chunked(b"a" * 50)])
def test_a_client_that_sends_a_byte_now_and_then_is_dropped_too(loop: Loop, said: bytes) -> None:
    async def test() -> None:
        async with served(Desk(), client_timeout_s=SHORT_S) as place:
            line = place.line()
            for byte in said[:-1]:
                line.look()
                if line.closed:
                    break
                await line.write(bytes([byte]))
                await asyncio.sleep(SHORT_S / 20)  # the drip is what is tested
            await ended(line)
            assert statuses(line.received) == b"408"

    run(loop, test)


@LOOPS
def test_a_client_that_waits_for_us_is_not_dropped(loop: Loop) -> None:
    """A pop that waits, a kept-alive connection without a request, and one that is busy all the time."""

    async def test() -> None:
        desk = Desk()
        async with served(desk, client_timeout_s=SHORT_S) as place:
            waiting, idle, idle_get, busy, silent = (place.line() for _ in range(5))
            desk.let.set()
            await idle.send([post(b"a")])
            await idle_get.send([GET])
            desk.let.clear()
            await waiting.send([post(b"w")])
            turns = 0
            while not silent.closed or turns < 3:  # it is dropped; the others are as old
                await busy.send([GET])
                silent.look()
                turns += silent.closed
                await asyncio.sleep(SHORT_S / 10)
            desk.let.set()
            assert bodies(await waiting.answers(1)) == [b"w"]
            await idle.send([post(b"b")])
            await idle_get.send([post(b"c")])
            assert bodies(idle.received) == [b"a", b"b"]
            assert bodies(idle_get.received)[1:] == [b"by aiohttp: c"]
            assert not busy.closed

    run(loop, test)


@LOOPS
@pytest.mark.parametrize("by", [post, chunked])
def test_a_client_that_does_not_take_its_answer_is_dropped(loop: Loop, by: Callable[[bytes], bytes]) -> None:
    async def test() -> None:
        desk = Desk()
        desk.let.set()
        desk.times = 200_000  # more than the kernel takes
        async with served(desk, client_timeout_s=SHORT_S) as place:
            _, writer = await asyncio.open_connection("127.0.0.1", place.runner.addresses[0][1], limit=1 << 10)
            writer.write(by(b"a" * 100))
            await until(lambda: bool(desk.begun or desk.others))
            await until(lambda: not place.connections)
            await until(lambda: bool(desk.unsent or desk.gone or desk.others))
            writer.transport.abort()

    run(loop, test)


@LOOPS
def test_beyond_the_limit_commands_are_refused_and_looks_are_answered(loop: Loop) -> None:
    async def test() -> None:
        desk = Desk()
        desk.let.set()
        async with served(desk, most=2) as place:
            first, second = place.line(), place.line()
            await until(lambda: len(place.connections) == 2)
            for request in (post(b"a"), post(b"a", ODD), chunked(b"a"), b"nonsense\r\n\r\n"):
                line = place.line()
                await line.write(request)
                await ended(line)
                assert statuses(line.received) == b"503"
                assert b"Retry-After: 1" in line.received
            for look in (GET, GET.replace(b"Host: t", b"Host: localhost\r\nConnection: close")):
                line = place.line()
                await line.write(look)
                await ended(line)
                assert bodies(line.received) == [b"by aiohttp: "]
            await first.send([post(b"b")])
            assert bodies(first.received) == [b"b"]
            second.close()
            await until(lambda: len(place.connections) == 1)
            line = place.line()
            await line.send([post(b"c")])
            assert bodies(line.received) == [b"c"]
            assert desk.begun == [b"b", b"c"]

    run(loop, test)


@LOOPS
def test_far_beyond_the_limit_connections_are_closed_at_once(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "_SPARE", 1)

    async def test() -> None:
        async with served(Desk(), most=1) as place:
            lines = [place.line() for _ in range(3)]
            await ended(lines[2])
            lines[1].look()
            assert not lines[0].closed and not lines[1].closed
            await until(lambda: len(place.connections) == 2)

    run(loop, test)


@LOOPS
@pytest.mark.parametrize("by", [post, lambda body: post(body, ODD), chunked])
def test_unfinished_requests_share_a_bounded_room(
    loop: Loop, by: Callable[[bytes], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "_ROOM", 600_000)
    said = by(b"a" * 900_000)

    async def test() -> None:
        desk = Desk()
        desk.let.set()
        async with served(desk) as place:
            first, second, small = place.line(), place.line(), place.line()
            pieces = [said[at : at + 50_000] for at in range(0, 600_000, 50_000)]
            await first.send(pieces[:10])
            assert held(place) >= 300_000
            await second.send(
                pieces
            )  # no more once it is hung up on: what is on its way then would take the answer along
            await ended(second)
            assert statuses(second.received) == b"503"
            await small.send([post(b"small")])
            assert bodies(small.received) == [b"small"]
            first.close()
            await until(lambda: held(place) == 0)
            third = place.line()
            await third.send([post(b"a" * 500_000)])
            assert statuses(await third.answers(1)) == b"200"
            await until(lambda: held(place) == 0)

    run(loop, test)


def held(place: Place) -> int:
    """Bytes of requests that are not complete."""
    return place.limits._unfinished


def test_there_are_no_more_connections_than_files(caplog: pytest.LogCaptureFixture) -> None:
    assert most_connections(10) == 10
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert soft == hard
    if hard != resource.RLIM_INFINITY:
        assert most_connections(hard) < hard
