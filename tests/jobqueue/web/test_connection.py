"""The connection with the quick way: order, bounds, hang-ups, idle time, and the stop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import structlog
import uvloop
from aiohttp import web

from jobqueue import loops
from jobqueue.access.connections import ConnectionLimits
from jobqueue.protocols import Reply
from jobqueue.web.connection import MOST_AHEAD, Client, Connection
from jobqueue.web.runner import Runner
from tests.jobqueue.web.two_ways import Line
from tests.waiting import until

Loop = Callable[[], asyncio.AbstractEventLoop]
LOOPS = pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])


class Desk:
    """Answers a request with its own body, when it is let."""

    def __init__(self) -> None:
        self.closing = False
        self.most_bytes = 4 << 20
        self.begun: list[bytes] = []
        self.given: list[str] = []
        self.others: list[bytes] = []  # that aiohttp's handlers had
        self.gone: list[bytes] = []
        self.unsent: list[bytes] = []
        self.let = asyncio.Event()
        self.door = asyncio.Event()  # behind which aiohttp's handlers wait
        self.door.set()
        self.times = 1  # that the body stands in its answer
        self.enough: Callable[[], bool] = lambda: False  # when it lets no more

    async def answer(self, data: bytes, given_id: str, client: Client) -> None:
        self.begun.append(data)
        self.given.append(given_id)
        if self.enough():
            self.let.clear()
        try:
            await self.let.wait()
            if data == b"bug":
                raise ValueError("of a customer")
            await client.send(Reply(200, data * self.times), given_id)
        except asyncio.CancelledError:
            self.gone.append(data)
            raise
        except ConnectionError:
            self.unsent.append(data)

    async def by_aiohttp(self, request: web.Request) -> web.Response:
        """What is not plain."""
        await self.door.wait()
        body = await request.read()
        self.others.append(body)
        return web.Response(body=(b"by aiohttp: " + body) * self.times)


class Place:
    """A server whose plain requests a desk answers, and the lines to it."""

    def __init__(self, runner: Runner) -> None:
        self.runner = runner
        self._lines: list[Line] = []

    def line(self) -> Line:
        """A new connection."""
        self._lines.append(Line(self.runner.addresses[0][1]))
        return self._lines[-1]

    @property
    def connections(self) -> list[Connection]:
        """The server's ends of them."""
        assert self.runner.server
        return [each for each in self.runner.server.connections if isinstance(each, Connection)]

    async def close(self) -> None:
        for line in self._lines:
            line.close()
        await self.runner.cleanup()


@asynccontextmanager
async def served(
    desk: Desk, *, client_timeout_s: float = 60.0, most: int = 1000, **options: Any
) -> AsyncIterator[Place]:
    application = web.Application()
    application.router.add_post("/command", desk.by_aiohttp)
    application.router.add_get("/", desk.by_aiohttp)
    limits = ConnectionLimits(client_timeout_s, most)
    runner = Runner(application, desk, limits, handler_cancellation=True, access_log=None, **options)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    place = Place(runner)
    async with loops.running(loops.Loop("connections", limits.run)):
        try:
            yield place
        finally:
            await place.close()


def post(body: bytes, fields: bytes = b"") -> bytes:
    return b"POST /command HTTP/1.1\r\nHost: t\r\n%bContent-Length: %d\r\n\r\n%b" % (fields, len(body), body)


GET = b"GET / HTTP/1.1\r\nHost: t\r\n\r\n"


def chunked(body: bytes) -> bytes:
    head = b"POST /command HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n"
    return head + b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)


def bodies(received: bytes) -> list[bytes]:
    """Those of answers that all have a head."""
    found = []
    while received:
        head, _, rest = received.partition(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
        found.append(rest[:length])
        received = rest[length:]
    return found


def run(loop: Loop, test: Any) -> None:
    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(test())


@LOOPS
def test_one_request_is_in_flight_and_those_behind_it_keep_their_order(loop: Loop) -> None:
    async def test() -> None:
        desk = Desk()
        async with served(desk) as place:
            line = place.line()
            await line.send([post(b"a", b"X-Request-Id: 1\r\n") + post(b"b")[:50], post(b"b")[50:] + post(b"c")])
            assert desk.begun == [b"a"] and not line.received
            desk.let.set()
            assert bodies(await line.answers(3)) == [b"a", b"b", b"c"]
            assert desk.given == ["1", "", ""]

    run(loop, test)


@LOOPS
def test_what_is_not_plain_waits_for_its_turn_and_keeps_the_connection(loop: Loop) -> None:
    async def test() -> None:
        desk = Desk()
        async with served(desk) as place:
            line = place.line()
            await line.send([post(b"a") + chunked(b"b") + post(b"c")])
            assert not line.received
            desk.let.set()
            assert bodies(await line.answers(3)) == [b"a", b"by aiohttp: b", b"by aiohttp: c"]
            await line.send([post(b"d")])
            assert bodies(await line.answers(4))[3:] == [b"by aiohttp: d"]

    run(loop, test)


@LOOPS
def test_behind_the_answer_to_a_get_the_quick_way_is_open_again(loop: Loop) -> None:
    async def test() -> None:
        desk = Desk()
        desk.let.set()
        async with served(desk) as place:
            line = place.line()
            await line.send([GET, post(b"a"), GET, GET, post(b"b")])
            assert bodies(line.received)[1::3] == [b"a", b"b"]
            hasty = place.line()
            await hasty.send([GET + post(b"c"), post(b"d")])
            assert bodies(hasty.received) == [b"by aiohttp: ", b"by aiohttp: c", b"by aiohttp: d"]

    run(loop, test)


@LOOPS
def test_a_request_within_another_is_none(loop: Loop) -> None:
    async def test() -> None:
        desk = Desk()
        desk.let.set()
        async with served(desk) as place:
            outer = post(post(b"a"))
            head = outer.index(b"\r\n\r\n") + 4
            for before in (b"", GET, GET.replace(b"GET / ", b"GET /x "), chunked(b"c")):
                line = place.line()
                await line.send([before + outer[:head], outer[head:]])
                assert bodies(line.received)[-1].removeprefix(b"by aiohttp: ") == post(b"a")
            line = place.line()
            await line.send([GET + b"POST /command HTTP/1.1\r\nX-A: ", post(b"b")])
            assert bodies(line.received) == [b"by aiohttp: ", b"by aiohttp: b"]
        assert desk.begun == [post(b"a")]

    run(loop, test)


@LOOPS
def test_what_comes_behind_a_get_that_is_not_answered_yet_waits_for_it(loop: Loop) -> None:
    async def test() -> None:
        desk = Desk()
        desk.let.set()
        desk.door.clear()
        async with served(desk) as place:
            line = place.line()
            await line.send([GET, post(b"a")])
            assert not line.received
            desk.door.set()
            assert bodies(await line.answers(2)) == [b"by aiohttp: ", b"by aiohttp: a"]

    run(loop, test)


@LOOPS
def test_aiohttp_keeps_its_own_bound_of_what_it_is_handed(loop: Loop) -> None:
    async def test() -> None:
        desk = Desk()
        desk.door.clear()
        async with served(desk) as place:
            line = place.line()
            sending = asyncio.create_task(line.write(post(b"a") + chunked(b"x" * 4096) * 40))
            await until(lambda: bool(place.connections) and place.connections[0]._is_held)
            await sending
            (connection,) = place.connections
            desk.let.set()
            await until(lambda: connection._buffer_paused)
            assert connection.transport and not connection.transport.is_reading()
            desk.door.set()
            assert len(bodies(await line.comes(40 * 4096))) > 30
            assert len(bodies(await line.answers(41))) == 41

    run(loop, test)


@LOOPS
def test_a_client_that_sends_ahead_is_not_read_without_bound(loop: Loop) -> None:
    async def test() -> None:
        desk = Desk()
        async with served(desk) as place:
            line = place.line()
            sending = asyncio.create_task(line.send([post(b"first") + post(b"x" * (3 << 20)) * 10]))
            await until(lambda: desk.begun != [])
            (connection,) = place.connections
            await until(lambda: connection._is_held)
            assert len(connection._pending) <= MOST_AHEAD + (256 << 10)  # of one reading
            assert not sending.done()
            desk.let.set()
            assert [len(body) for body in bodies(await line.comes(5 + 10 * (3 << 20)))] == [5] + [3 << 20] * 10
            await sending

    run(loop, test)


@LOOPS
def test_who_does_not_read_the_answers_gets_no_more_requests_taken(loop: Loop) -> None:
    async def test() -> None:
        desk = Desk()
        desk.let.set()
        desk.times = 1 << 16
        async with served(desk) as place:
            line = place.line()
            requests = b"".join(post(b"%04d" % number) for number in range(64))
            await line.write(requests)
            await until(lambda: desk.begun != [])
            (connection,) = place.connections
            await until(lambda: connection.writing_paused)
            assert len(desk.begun) < 64  # only as many as the sockets' buffers hold
            received = await line.comes(16 << 20)
            assert [body[:4] for body in bodies(received)] == [b"%04d" % number for number in range(64)]

    run(loop, test)


@LOOPS
@pytest.mark.parametrize("reset", [False, True])
def test_a_hang_up_cancels_the_request_and_begins_none_behind_it(loop: Loop, reset: bool) -> None:
    async def test() -> None:
        desk = Desk()
        async with served(desk) as place:
            line = place.line()
            await line.send([post(b"a") + post(b"b")])
            line.close(reset=reset)
            await until(lambda: desk.gone == [b"a"])
            assert desk.begun == [b"a"]

    run(loop, test)


@LOOPS
def test_a_hang_up_while_the_answer_is_not_read_cancels_too(loop: Loop) -> None:
    """Jobs in an answer that nobody read go back."""

    async def test() -> None:
        desk = Desk()
        desk.let.set()
        desk.times = 16 << 20
        async with served(desk) as place:
            line = place.line()
            await line.write(post(b"abcd"))
            await until(lambda: desk.begun != [])
            (connection,) = place.connections
            await until(lambda: connection.writing_paused)
            line.close()
            await until(lambda: desk.gone == [b"abcd"] or desk.unsent == [b"abcd"])

    run(loop, test)


@LOOPS
def test_an_answer_to_a_closed_connection_is_told_as_not_sent(loop: Loop) -> None:
    """In the turn of the loop in which the socket is closed, but nobody has been told."""

    async def test() -> None:
        desk = Desk()
        async with served(desk) as place:
            line = place.line()
            await line.send([post(b"a") + post(b"b")])
            (connection,) = place.connections
            desk.let.set()
            assert connection.transport
            connection.transport.close()
            await until(lambda: not place.connections)
            assert (desk.begun, desk.unsent, desk.gone) == ([b"a"], [b"a"], [])

    run(loop, test)


@LOOPS
def test_who_ends_and_then_reads_gets_the_answer_in_flight_and_no_more(loop: Loop) -> None:
    async def test() -> None:
        desk = Desk()
        desk.let.set()
        desk.times = 16 << 20
        async with served(desk) as place:
            line = place.line()
            await line.write(post(b"a") + post(b"b"))
            await until(lambda: bool(place.connections) and place.connections[0].writing_paused)
            (connection,) = place.connections
            line.end()
            await until(lambda: connection.transport is None or connection.transport.is_closing())
            assert len(bodies(await line.comes(16 << 20))[0]) == 16 << 20
            await until(lambda: not place.connections)
        assert desk.begun == [b"a"]

    run(loop, test)


@LOOPS
def test_who_ends_without_reading_gets_nothing_more_begun(loop: Loop) -> None:
    """Its connection is not lost before what was written is read; but nothing can be written any more."""

    async def test() -> None:
        desk = Desk()
        desk.let.set()
        desk.times = 16 << 10
        async with served(desk) as place:
            line = place.line()
            await until(lambda: bool(place.connections))
            (connection,) = place.connections
            transport = connection.transport
            assert transport
            desk.enough = lambda: transport.get_write_buffer_size() > 0
            await line.write(post(b"a") * 1000)
            await until(lambda: not desk.let.is_set())
            line.end()
            await until(transport.is_closing)
            begun = len(desk.begun)
            assert begun < 1000
            desk.let.set()
            await until(lambda: desk.unsent != [])
            await line.comes((begun - 1) * (16 << 10))
            await until(lambda: not place.connections)
            assert (len(desk.begun), desk.unsent, desk.gone) == (begun, [b"a"], [])

    run(loop, test)


@LOOPS
def test_a_connection_that_is_to_close_begins_nothing(loop: Loop) -> None:
    async def test() -> None:
        desk = Desk()
        async with served(desk) as place:
            line = place.line()
            await line.send([b"P"])
            (connection,) = place.connections
            connection.close()
            await line.send([post(b"a")[1:]])
            assert desk.begun == []

    run(loop, test)


@LOOPS
def test_a_hang_up_in_the_middle_of_a_request_begins_nothing(loop: Loop) -> None:
    async def test() -> None:
        desk = Desk()
        async with served(desk) as place:
            for end in range(1, len(post(b"abc"))):
                line = place.line()
                await line.send([post(b"abc")[:end]])
                line.close()
            await until(lambda: not place.connections)
            assert desk.begun == []

    run(loop, test)


@LOOPS
def test_only_an_idle_connection_is_closed_when_its_time_is_over(loop: Loop) -> None:
    async def test() -> None:
        desk = Desk()
        async with served(desk, keepalive_timeout=0.2) as place:
            waiting, half, half_head, idle = (place.line() for _ in range(4))
            await waiting.send([post(b"a")])
            await half.send([post(b"b")[:-1]])
            await half_head.send([post(b"b")[:30]])
            for line in (idle, half_head):
                await line.answers(1)
                assert line.closed and not line.received
            late = place.line()  # its time begins now: when it is over, that of the first two is so twice
            await late.answers(1)
            assert late.closed
            desk.let.set()
            await half.send([post(b"b")[-1:]])
            for line, body in ((waiting, b"a"), (half, b"b")):
                assert bodies(await line.answers(1)) == [body]
                assert not line.closed
                await line.answers(2)
                assert line.closed

    run(loop, test)


@LOOPS
def test_each_answer_begins_the_idle_time_anew(loop: Loop) -> None:
    async def test() -> None:
        desk = Desk()
        desk.let.set()
        async with served(desk, keepalive_timeout=0.2) as place:
            busy, idle = place.line(), place.line()
            while not idle.closed:
                await busy.send([post(b"a")])
                idle.look()
            await busy.send([post(b"b")])
            assert not busy.closed and bodies(busy.received)[-1] == b"b"

    run(loop, test)


@LOOPS
def test_a_stop_waits_for_the_request_in_flight_and_takes_none_behind_it(loop: Loop) -> None:
    async def test() -> None:
        desk = Desk()
        async with served(desk, shutdown_timeout=60) as place:
            line, half, idle = place.line(), place.line(), place.line()
            await line.send([post(b"a") + post(b"b")])
            await half.send([post(b"c")[:-1]])
            desk.closing = True
            stop = asyncio.create_task(place.runner.cleanup())
            for other in (half, idle):
                await other.answers(1)
                assert other.closed and not other.received
            assert not stop.done() and not line.closed
            desk.let.set()
            await line.answers(2)
            await stop
            assert bodies(line.received) == [b"a"] and line.closed
            assert b"\r\nConnection: close\r\n" in line.received
        assert desk.begun == [b"a"]

    run(loop, test)


@LOOPS
def test_a_stop_cancels_what_is_still_in_flight_after_the_grace_time(loop: Loop) -> None:
    async def test() -> None:
        desk = Desk()
        async with served(desk, shutdown_timeout=0.1) as place:
            line = place.line()
            await line.send([post(b"a")])
            await place.runner.cleanup()
            assert desk.gone == [b"a"]
            await line.answers(1)
            assert line.closed and not line.received

    run(loop, test)


@LOOPS
def test_a_stop_does_not_wait_for_who_does_not_read(loop: Loop) -> None:
    async def test() -> None:
        desk = Desk()
        desk.let.set()
        desk.times = 16 << 20
        async with served(desk, shutdown_timeout=0.1) as place:
            line = place.line()
            await line.write(post(b"a"))
            await until(lambda: bool(place.connections) and place.connections[0].writing_paused)
            await place.runner.cleanup()
            assert desk.gone == [b"a"]

    run(loop, test)


@LOOPS
def test_while_it_closes_aiohttp_answers(loop: Loop) -> None:
    """The application knows what it says then; nothing is begun here."""

    async def test() -> None:
        desk = Desk()
        async with served(desk) as place:
            line, half = place.line(), place.line()
            await half.send([post(b"b")[:-1]])
            desk.closing = True
            await line.send([post(b"a")])
            await half.send([post(b"b")[-1:]])
            assert bodies(line.received + half.received) == [b"by aiohttp: a", b"by aiohttp: b"]
        assert desk.begun == []

    run(loop, test)


@LOOPS
def test_an_answer_that_comes_while_it_closes_is_the_last(loop: Loop) -> None:
    async def test() -> None:
        desk = Desk()
        async with served(desk) as place:
            line = place.line()
            await line.send([post(b"a") + post(b"b")])
            desk.closing = True
            desk.let.set()
            await line.answers(2)
            assert bodies(line.received) == [b"a"] and line.closed
            assert b"\r\nConnection: close\r\n" in line.received

    run(loop, test)


@LOOPS
def test_a_bug_is_logged_and_told_as_internal(loop: Loop) -> None:
    async def test() -> None:
        desk = Desk()
        desk.let.set()
        async with served(desk) as place:
            line = place.line()
            with structlog.testing.capture_logs() as logs:
                await line.send([post(b"bug") + post(b"b")])
                await line.answers(2)
        assert line.received.startswith(b"HTTP/1.1 500 ") and b'"code":"INTERNAL"' in line.received
        assert b"customer" not in line.received
        assert line.closed and desk.begun == [b"bug"]
        assert [entry["event"] for entry in logs] == ["command.failed"]

    run(loop, test)
