"""A connection and its fast path: order, bounds, hang-ups, idle time, and shutdown."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from operator import methodcaller
from typing import Any

import pytest
import structlog
import uvloop
from aiohttp import web

from jobqueue import loops
from jobqueue.access.caller import CALLER, Cancellable
from jobqueue.access.connections import ConnectionLimits
from jobqueue.logs import REQUEST
from jobqueue.protocols import Reply
from jobqueue.web.connection import MOST_AHEAD, Connection
from jobqueue.web.fast_path import Head
from jobqueue.web.peer import Peer
from jobqueue.web.port import Client, SimpleClient
from jobqueue.web.ports import Runner
from tests.jobqueue.web.guards import guard
from tests.jobqueue.web.two_services import Line
from tests.kit.waiting import until

Loop = Callable[[], asyncio.AbstractEventLoop]
LOOPS = pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
SHORT_S = 0.2


class Desk:
    """Answers a request with its own body, once it is let."""

    def __init__(self, *, has_tasks: bool = True) -> None:
        self.closing = False
        self.most_bytes = 4 << 20
        self.begun: list[bytes] = []
        self.given: list[str] = []
        self.others: list[bytes] = []  # handled by aiohttp
        self.gone: list[bytes] = []
        self.unsent: list[bytes] = []
        self.let = asyncio.Event()
        self.door = asyncio.Event()  # closed: aiohttp's handlers wait
        self.door.set()
        self.times = 1  # how often an answer repeats the body
        self.enough: Callable[[], bool] = lambda: False  # whether to let no more
        self.has_tasks = has_tasks
        self.callers: list[str] = []
        self.ids: list[str] = []  # of the requests, as they would be logged

    def begin(self, data: bytes, head: Head, connection: SimpleClient) -> Cancellable | None:
        given_id = head.request_id
        self.begun.append(data)
        self.given.append(given_id)
        if self.enough():
            self.let.clear()
        if self.has_tasks:
            connection.complete(self.answer(data, given_id, connection))
            return None
        self.callers.append("by a callback")
        if data == b"bug":
            raise ValueError("of a customer")
        return Quick(self, data, given_id, connection)

    async def answer(self, data: bytes, given_id: str, client: Client) -> None:
        REQUEST.set(given_id)
        self._note_caller()
        try:
            await self.let.wait()
            if data == b"bug":
                raise ValueError("of a customer")
            await client.send(Reply(200, data * self.times), given_id, has_jobs=False)
        except asyncio.CancelledError:
            self.gone.append(data)
            raise
        except ConnectionError:
            self.unsent.append(data)

    def _note_caller(self) -> None:
        caller = CALLER.get()
        assert caller
        self.callers.append(caller.address)
        self.ids.append(REQUEST.get())

    async def by_aiohttp(self, request: web.Request) -> web.Response:
        """Answers what is not simple."""
        self._note_caller()
        await self.door.wait()
        body = await request.read()
        self.others.append(body)
        return web.Response(body=(b"by aiohttp: " + body) * self.times)


WAYS = pytest.mark.parametrize("desk_of", [Desk, partial(Desk, has_tasks=False)], ids=["by a task", "by a callback"])


class Quick:
    """A request that is answered by a callback."""

    def __init__(self, desk: Desk, data: bytes, given_id: str, connection: SimpleClient) -> None:
        self._desk, self._data, self._given_id, self._connection = desk, data, given_id, connection
        self._waits = asyncio.ensure_future(desk.let.wait())
        self._waits.add_done_callback(self._answer)

    def _answer(self, waited: asyncio.Future[Any]) -> None:
        if not waited.cancelled():
            self._connection.answer(self._data * self._desk.times, self._given_id)

    def cancel(self) -> None:
        self._waits.cancel()
        self._desk.gone.append(self._data)


class Place:
    """A server whose simple requests a desk answers, and the lines to it."""

    def __init__(self, runner: Runner, limits: ConnectionLimits) -> None:
        self.runner = runner
        self.limits = limits
        self._lines: list[Line] = []

    def line(self) -> Line:
        """A new connection."""
        self._lines.append(Line(self.runner.addresses[0][1]))
        return self._lines[-1]

    @property
    def connections(self) -> list[Peer]:
        """The server's ends of them."""
        return self.limits.joined(Peer)

    async def close(self) -> None:
        for line in self._lines:
            line.close()
        await self.runner.close()


@asynccontextmanager
async def served(
    desk: Desk, *, client_timeout_s: float = 60.0, most: int = 1000, **options: Any
) -> AsyncIterator[Place]:
    application = web.Application()
    application.router.add_post("/command", desk.by_aiohttp)
    application.router.add_get("/", desk.by_aiohttp)
    limits = ConnectionLimits(client_timeout_s, most)
    runner = Runner(application, desk, limits, guard(), **options)
    await runner.open("127.0.0.1", 0)
    place = Place(runner, limits)
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
    """The bodies of answers with a `Content-Length`."""
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


@WAYS
@LOOPS
def test_one_request_is_in_flight_and_those_behind_it_keep_their_order(desk_of: Callable[[], Desk], loop: Loop) -> None:
    async def test() -> None:
        desk = desk_of()
        async with served(desk) as place:
            line = place.line()
            await line.send([post(b"a", b"X-Request-Id: 1\r\n") + post(b"b")[:50], post(b"b")[50:] + post(b"c")])
            assert desk.begun == [b"a"] and not line.received
            desk.let.set()
            assert bodies(await line.answers(3)) == [b"a", b"b", b"c"]
            assert desk.given == ["1", "", ""]

    run(loop, test)


@WAYS
@LOOPS
def test_a_request_that_is_not_simple_waits_for_its_turn_and_keeps_the_connection(
    desk_of: Callable[[], Desk], loop: Loop
) -> None:
    async def test() -> None:
        desk = desk_of()
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
def test_from_the_first_get_a_connection_belongs_to_aiohttp(loop: Loop) -> None:
    async def test() -> None:
        desk = Desk()
        desk.let.set()
        async with served(desk) as place:
            line = place.line()
            await line.send([post(b"a"), GET, post(b"b"), post(b"c")[:60], post(b"c")[60:]])
            assert bodies(line.received) == [b"a", b"by aiohttp: ", b"by aiohttp: b", b"by aiohttp: c"]
            hasty = place.line()
            await hasty.send([GET + post(b"d"), post(b"e")])
            assert bodies(hasty.received) == [b"by aiohttp: ", b"by aiohttp: d", b"by aiohttp: e"]
            assert len(place.connections) == 2
            assert not place.limits.joined(Connection)

    run(loop, test)


@WAYS
@LOOPS
def test_a_request_within_the_body_of_another_is_not_served(desk_of: Callable[[], Desk], loop: Loop) -> None:
    async def test() -> None:
        desk = desk_of()
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
            await until(lambda: any(each._is_held for each in place.limits.joined(Connection)))
            await sending
            desk.let.set()
            await until(lambda: not place.limits.joined(Connection))
            (connection,) = place.connections
            await until(lambda: not connection._wire.is_reading())
            desk.door.set()
            assert len(bodies(await line.comes(40 * 4096))) > 30
            assert len(bodies(await line.answers(41))) == 41

    run(loop, test)


@WAYS
@LOOPS
def test_a_client_that_sends_ahead_is_not_read_without_bound(desk_of: Callable[[], Desk], loop: Loop) -> None:
    async def test() -> None:
        desk = desk_of()
        async with served(desk) as place:
            line = place.line()
            sending = asyncio.create_task(line.send([post(b"first") + post(b"x" * (3 << 20)) * 10]))
            await until(lambda: desk.begun != [])
            (connection,) = place.limits.joined(Connection)
            await until(lambda: connection._is_held)
            assert len(connection._kept) <= MOST_AHEAD + (256 << 10)  # from one read
            assert not sending.done()
            desk.let.set()
            assert [len(body) for body in bodies(await line.comes(5 + 10 * (3 << 20)))] == [5] + [3 << 20] * 10
            await sending

    run(loop, test)


@WAYS
@LOOPS
def test_a_client_that_does_not_read_its_answers_gets_no_more_requests_served(
    desk_of: Callable[[], Desk], loop: Loop
) -> None:
    async def test() -> None:
        desk = desk_of()
        desk.let.set()
        desk.times = 1 << 16
        async with served(desk) as place:
            line = place.line()
            requests = b"".join(post(b"%04d" % number) for number in range(64))
            await line.write(requests)
            await until(lambda: desk.begun != [])
            (connection,) = place.limits.joined(Connection)
            await until(lambda: connection._is_unread)
            assert connection.is_behind
            assert len(desk.begun) < 64  # only as many as the sockets' buffers hold
            received = await line.comes(16 << 20)
            assert [body[:4] for body in bodies(received)] == [b"%04d" % number for number in range(64)]
            await until(lambda: not connection.is_behind)

    run(loop, test)


@WAYS
@LOOPS
@pytest.mark.parametrize("reset", [False, True])
def test_a_hang_up_cancels_the_request_and_begins_none_behind_it(
    desk_of: Callable[[], Desk], loop: Loop, reset: bool
) -> None:
    async def test() -> None:
        desk = desk_of()
        async with served(desk) as place:
            line = place.line()
            await line.send([post(b"a") + post(b"b")])
            line.close(reset=reset)
            await until(lambda: desk.gone == [b"a"])
            assert desk.begun == [b"a"]

    run(loop, test)


@LOOPS
def test_a_hang_up_while_the_answer_is_not_read_cancels_too(loop: Loop) -> None:
    """Jobs in an unread answer go back."""

    async def test() -> None:
        desk = Desk()
        desk.let.set()
        desk.times = 16 << 20
        async with served(desk) as place:
            line = place.line()
            await line.write(post(b"abcd"))
            await until(lambda: desk.begun != [])
            (connection,) = place.limits.joined(Connection)
            await until(lambda: connection._is_unread)
            line.close()
            await until(lambda: desk.gone == [b"abcd"] or desk.unsent == [b"abcd"])

    run(loop, test)


@LOOPS
def test_an_answer_to_a_closed_connection_is_reported_as_not_sent(loop: Loop) -> None:
    """In the turn of the loop in which the transport is closed, but the connection is not yet reported as lost."""

    async def test() -> None:
        desk = Desk()
        async with served(desk) as place:
            line = place.line()
            await line.send([post(b"a") + post(b"b")])
            (connection,) = place.connections
            desk.let.set()
            connection._wire.close()
            await until(lambda: not place.connections)
            assert (desk.begun, desk.unsent, desk.gone) == ([b"a"], [b"a"], [])

    run(loop, test)


@WAYS
@LOOPS
def test_a_client_that_ends_and_then_reads_gets_the_answer_in_flight_and_no_more(
    desk_of: Callable[[], Desk], loop: Loop
) -> None:
    async def test() -> None:
        desk = desk_of()
        desk.let.set()
        desk.times = 16 << 20
        async with served(desk) as place:
            line = place.line()
            await line.write(post(b"a") + post(b"b"))
            await until(lambda: any(each._is_unread for each in place.limits.joined(Connection)))
            (connection,) = place.connections
            line.end()
            await until(lambda: not connection.is_connected)
            assert len(bodies(await line.comes(16 << 20))[0]) == 16 << 20
            await until(lambda: not place.connections)
        assert desk.begun == [b"a"]

    run(loop, test)


@LOOPS
def test_an_answer_for_a_client_that_is_gone_does_nothing(loop: Loop) -> None:
    """Whoever answers by a callback has others to answer: a write to a closed transport would raise within it."""

    async def test() -> None:
        desk = Desk(has_tasks=False)
        async with served(desk) as place:
            for close in (methodcaller("close"), methodcaller("abort")):
                line = place.line()
                await line.send([post(b"a") + post(b"b")])
                (connection,) = place.limits.joined(Connection)
                close(connection._wire)
                assert connection.has_hung_up() and not connection.is_connected
                connection.answer(b"late", "")
                await until(lambda: not place.connections)
                connection.answer(b"later", "")
                assert connection.address.startswith("127.0.0.1:")
                assert not line.received
            assert desk.begun == [b"a", b"a"]

    run(loop, test)


@LOOPS
def test_a_hang_up_that_the_loop_has_not_read_is_known_before_an_answer(loop: Loop) -> None:
    async def test() -> None:
        desk = Desk(has_tasks=False)
        async with served(desk) as place:
            line = place.line()
            await line.send([post(b"a") + post(b"b")])
            (connection,) = place.limits.joined(Connection)
            assert not connection.has_hung_up()
            line.close()
            assert connection.has_hung_up()
            await until(lambda: not place.connections)
            assert (desk.begun, desk.gone) == ([b"a"], [b"a"])

    run(loop, test)


@LOOPS
@pytest.mark.parametrize("is_gone", [False, True])
def test_a_task_whose_client_hangs_up_begins_before_it_is_cancelled(loop: Loop, is_gone: bool) -> None:
    """It may hold jobs, which go back only by its own hand."""

    async def test() -> None:
        desk = Desk(has_tasks=False)
        seen: list[str] = []

        async def work() -> None:
            seen.append("begun")
            try:
                await asyncio.Event().wait()
            finally:
                seen.append("cancelled")

        async with served(desk) as place:
            line = place.line()
            await line.send([post(b"a")])
            (connection,) = place.limits.joined(Connection)
            connection._wire.abort()
            if is_gone:
                await until(lambda: not place.connections)
            connection.complete(work())
            await until(lambda: seen == ["begun", "cancelled"])

    run(loop, test)


@WAYS
@LOOPS
def test_who_asks_is_known_to_what_answers(desk_of: Callable[[], Desk], loop: Loop) -> None:
    async def test() -> None:
        desk = desk_of()
        desk.let.set()
        async with served(desk) as place:
            line, other = place.line(), place.line()
            await line.send([post(b"a")])
            await other.send([GET])
            await line.send([GET, GET])
            addresses = [f"127.0.0.1:{each.port}" for each in (other, line, line)]
            assert [address for address in desk.callers if address != "by a callback"][-3:] == addresses
            assert desk.callers[0] in (addresses[1], "by a callback")

    run(loop, test)


@LOOPS
def test_aiohttp_gets_no_request_id_of_the_request_before(loop: Loop) -> None:
    async def test() -> None:
        desk = Desk()
        async with served(desk) as place:
            line = place.line()
            await line.send([post(b"a", b"X-Request-Id: mine\r\n") + GET])
            desk.let.set()
            await line.answers(2)
            assert desk.ids == ["mine", ""]

    run(loop, test)


@LOOPS
def test_an_idle_connection_keeps_no_bytes_and_no_task(loop: Loop) -> None:
    async def test() -> None:
        desk = Desk()
        desk.let.set()
        async with served(desk) as place:
            tasks = len(asyncio.all_tasks())
            line = place.line()
            await line.send([post(b"a")[:70], post(b"a")[70:] + post(b"b")])
            (connection,) = place.limits.joined(Connection)
            assert connection._kept == b"" and isinstance(connection._kept, bytes)
            assert connection._doing is None and not hasattr(connection, "__dict__")
            assert len(asyncio.all_tasks()) == tasks
            wire = connection._wire.get_extra_info("socket")
            assert wire.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)

    run(loop, test)


@LOOPS
def test_a_client_that_ends_without_reading_gets_no_more_requests_begun(loop: Loop) -> None:
    """Its connection is not lost before it has read what was written, but nothing more can be written."""

    async def test() -> None:
        desk = Desk()
        desk.let.set()
        desk.times = 16 << 10
        async with served(desk) as place:
            line = place.line()
            await until(lambda: bool(place.connections))
            (connection,) = place.connections
            transport = connection._wire
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


@WAYS
@LOOPS
def test_a_hang_up_in_the_middle_of_a_request_begins_nothing(desk_of: Callable[[], Desk], loop: Loop) -> None:
    async def test() -> None:
        desk = desk_of()
        async with served(desk) as place:
            for end in range(1, len(post(b"abc"))):
                line = place.line()
                await line.send([post(b"abc")[:end]])
                line.close()
            await until(lambda: not place.connections)
            assert desk.begun == []

    run(loop, test)


@WAYS
@LOOPS
def test_only_an_idle_connection_is_closed_when_its_time_is_over(desk_of: Callable[[], Desk], loop: Loop) -> None:
    async def test() -> None:
        desk = desk_of()
        async with served(desk, client_timeout_s=SHORT_S, idle_s=2 * SHORT_S) as place:
            waiting, idle, idle_get = (place.line() for _ in range(3))
            await waiting.send([post(b"a")])
            desk.let.set()
            await idle.send([post(b"b")])
            await idle_get.send([GET])
            desk.let.clear()
            await waiting.send([post(b"c")])
            for line, body in ((idle, b"b"), (idle_get, b"by aiohttp: ")):
                await line.answers(2)
                assert line.closed and bodies(line.received) == [body]
            waiting.look()
            assert not waiting.closed
            desk.let.set()
            assert bodies(await waiting.answers(2)) == [b"a", b"c"]
            await waiting.answers(3)
            assert waiting.closed

    run(loop, test)


@WAYS
@LOOPS
def test_each_answer_restarts_the_idle_time(desk_of: Callable[[], Desk], loop: Loop) -> None:
    async def test() -> None:
        desk = desk_of()
        desk.let.set()
        async with served(desk, client_timeout_s=SHORT_S, idle_s=2 * SHORT_S) as place:
            busy, idle = place.line(), place.line()
            await idle.send([post(b"i")])
            while not idle.closed:
                await busy.send([post(b"a")])
                idle.look()
            await busy.send([post(b"b")])
            assert not busy.closed and bodies(busy.received)[-1] == b"b"

    run(loop, test)


@WAYS
@LOOPS
def test_a_stop_waits_for_the_request_in_flight_and_takes_none_behind_it(
    desk_of: Callable[[], Desk], loop: Loop
) -> None:
    async def test() -> None:
        desk = desk_of()
        async with served(desk, grace_s=60) as place:
            line, half, idle = place.line(), place.line(), place.line()
            await line.send([post(b"a") + post(b"b")])
            await half.send([post(b"c")[:-1]])
            desk.closing = True
            stop = asyncio.create_task(place.runner.close())
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


@WAYS
@LOOPS
def test_a_stop_cancels_what_is_still_in_flight_after_the_grace_time(desk_of: Callable[[], Desk], loop: Loop) -> None:
    async def test() -> None:
        desk = desk_of()
        async with served(desk, grace_s=0.1) as place:
            line = place.line()
            await line.send([post(b"a")])
            await place.runner.close()
            assert desk.gone == [b"a"]
            await line.answers(1)
            assert line.closed and not line.received

    run(loop, test)


@LOOPS
def test_a_stop_does_not_wait_for_a_client_that_does_not_read(loop: Loop) -> None:
    async def test() -> None:
        desk = Desk()
        desk.let.set()
        desk.times = 16 << 20
        async with served(desk, grace_s=0.1) as place:
            line = place.line()
            await line.write(post(b"a"))
            await until(lambda: any(each._is_unread for each in place.limits.joined(Connection)))
            await place.runner.close()
            assert desk.gone == [b"a"]

    run(loop, test)


@WAYS
@LOOPS
def test_while_it_closes_aiohttp_answers(desk_of: Callable[[], Desk], loop: Loop) -> None:
    """The application then decides the answer; the fast path begins nothing."""

    async def test() -> None:
        desk = desk_of()
        async with served(desk) as place:
            line, half = place.line(), place.line()
            await half.send([post(b"b")[:-1]])
            desk.closing = True
            await line.send([post(b"a")])
            await half.send([post(b"b")[-1:]])
            assert bodies(line.received + half.received) == [b"by aiohttp: a", b"by aiohttp: b"]
        assert desk.begun == []

    run(loop, test)


@WAYS
@LOOPS
def test_an_answer_that_comes_while_it_closes_is_the_last(desk_of: Callable[[], Desk], loop: Loop) -> None:
    async def test() -> None:
        desk = desk_of()
        async with served(desk) as place:
            line = place.line()
            await line.send([post(b"a") + post(b"b")])
            desk.closing = True
            desk.let.set()
            await line.answers(2)
            assert bodies(line.received) == [b"a"] and line.closed
            assert b"\r\nConnection: close\r\n" in line.received

    run(loop, test)


@WAYS
@LOOPS
def test_a_bug_is_logged_and_reported_as_internal(desk_of: Callable[[], Desk], loop: Loop) -> None:
    async def test() -> None:
        desk = desk_of()
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
