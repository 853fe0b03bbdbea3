"""TCP connections of a dialect: who may connect, order, bounds, hang-ups, idle time, and the end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
import structlog
import uvloop

from jobqueue.access.connections import ConnectionLimits
from jobqueue.wires.stream import MOST_AHEAD, Stream, Streams
from tests.kit.waiting import until

LOOPS = pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])


class Echo(Stream[bytes]):
    """Answers a line with the same line once it is let; `many` with a lot; `bug` and `cancelled` with an error."""

    def __init__(self, streams: Streams, let: asyncio.Event, gone: list[bytes]) -> None:
        super().__init__(streams)
        self._let = let
        self._gone = gone

    def take(self) -> bytes | None:
        end = self.received.find(b"\n") + 1
        line = bytes(self.received[:end])
        del self.received[:end]
        return line or None

    async def answer(self, request: bytes) -> None:
        self.is_waiting = request == b"wait\n"
        try:
            await self._let.wait()
        except asyncio.CancelledError:
            self._gone.append(request)
            raise
        if request == b"bug\n":
            raise ValueError("of a customer")
        if request == b"cancelled\n":
            raise asyncio.CancelledError
        self.check_client() if request == b"job\n" else None
        self.write(request * (1 << 20) if request == b"many\n" else request)


class Patient(Echo):
    """Lets its clients be idle."""

    may_be_idle = True


class Prompt(Echo):
    """Answers lines of small letters by callback; `give up` by a task after all, `oops` with a bug, and anything with a
    capital by a task from the beginning."""

    def begin(self, request: bytes) -> bool:
        if not request.islower():
            return False
        self._loop.call_soon(self.taking(self._took), request)
        return True

    def _took(self, request: bytes) -> None:
        if request == b"oops\n":
            raise ValueError("of a customer")
        if request == b"give up\n":
            self.complete(lambda: self.answer(request))
        elif not self._let.is_set():
            self._loop.call_later(0.001, self.taking(self._took), request)
        else:
            self.answered(request * (1 << 20) if request == b"many\n" else request)


class Staying(Echo):
    """Stays when the service stops."""

    def drain(self) -> None:
        pass


class Place:
    """A port with such connections."""

    def __init__(self, kind: type[Echo] = Echo, *, allow: tuple[str, ...] = ("127.0.0.0/8",), most: int = 9) -> None:
        self.limits = ConnectionLimits(0.3, most)
        self.streams = Streams(self.limits, lambda: allow)
        self.let = asyncio.Event()
        self.let.set()
        self.gone: list[bytes] = []
        self.port = 0
        self._kind = kind

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Place]:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: self._kind(self.streams, self.let, self.gone), "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        visits = asyncio.create_task(self.limits.run())
        try:
            yield self
        finally:
            visits.cancel()
            server.close()
            await self.streams.close(0)

    async def line(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port)

    async def entered(self) -> Stream[bytes]:
        await until(lambda: len(self.streams.open) == 1)
        return next(iter(self.streams.open))


Loop = Callable[[], asyncio.AbstractEventLoop]
BOTH_WAYS = pytest.mark.parametrize("kind", [Echo, Prompt])  # by a task, and by callback


def run(loop: Loop, scene: Callable[[Place], object], place: Callable[[], Place] = Place) -> None:
    async def act() -> None:
        async with asyncio.timeout(60), place().open() as opened:
            await scene(opened)  # type: ignore[misc]  # a coroutine function

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(act())


@LOOPS
@BOTH_WAYS
def test_requests_sent_ahead_are_answered_in_order_one_at_a_time(loop: Loop, kind: type[Echo]) -> None:
    async def scene(place: Place) -> None:
        reader, writer = await place.line()
        writer.write(b"a\nb\nc\nd")
        assert await reader.readexactly(6) == b"a\nb\nc\n"
        writer.write(b"\n")
        assert await reader.readline() == b"d\n"
        writer.close()
        await until(lambda: not place.streams.open)

    run(loop, scene, lambda: Place(kind))


@LOOPS
def test_answers_by_callback_and_by_task_come_in_order(loop: Loop) -> None:
    async def scene(place: Place) -> None:
        reader, writer = await place.line()
        lines = [b"a\n", b"b\n", b"C\n", b"give up\n", b"D\n", b"E\n", b"f\n"] * 500
        writer.write(b"".join(lines))
        writer.write_eof()
        assert await reader.read() == b"".join(lines)
        writer.close()

    run(loop, scene, lambda: Place(Prompt))


@LOOPS
def test_a_bug_in_a_callback_closes_the_connection(loop: Loop) -> None:
    async def scene(place: Place) -> None:
        with structlog.testing.capture_logs() as logs:
            reader, writer = await place.line()
            writer.write(b"a\noops\nb\n")
            assert await reader.read() == b"a\n"
        assert [each["event"] for each in logs] == ["client.failed"]
        writer.close()

    run(loop, scene, lambda: Place(Prompt))


@LOOPS
def test_a_client_that_reads_late_gets_all_answers_by_callback(loop: Loop) -> None:
    async def scene(place: Place) -> None:
        reader, writer = await place.line()
        writer.write(b"many\n" * 20 + b"C\n" + b"d\n")
        stream = await place.entered()
        await until(lambda: stream.transport is not None and stream.transport.get_write_buffer_size() > 0)
        assert stream.is_busy
        assert (await reader.readexactly((5 << 20) * 20 + 4)).endswith(b"many\nC\nd\n")
        writer.close()

    run(loop, scene, lambda: Place(Prompt))


@LOOPS
def test_an_answer_by_callback_to_a_client_that_is_gone_is_dropped(loop: Loop) -> None:
    async def scene(place: Place) -> None:
        place.let.clear()
        with structlog.testing.capture_logs() as logs:
            _, writer = await place.line()
            writer.write(b"a\nb\n")
            stream = await place.entered()
            await until(lambda: stream.is_busy)
            stream.abort()
            await until(lambda: not place.streams.open)
            place.let.set()
            await until(lambda: not stream.is_busy)
        assert logs == []
        writer.close()

    run(loop, scene, lambda: Place(Prompt))


@LOOPS
def test_a_client_that_sends_no_more_while_it_waits_gets_the_answers_before(loop: Loop) -> None:
    async def scene(place: Place) -> None:
        reader, writer = await place.line()
        stream = await place.entered()
        assert stream.transport is not None
        stream.transport.set_write_buffer_limits(high=64 << 20)  # so that the next request begins
        writer.write(b"many\n")
        await until(lambda: stream.transport is not None and stream.transport.get_write_buffer_size() > 0)
        place.let.clear()
        writer.write(b"wait\n")
        await until(lambda: stream.is_waiting)
        writer.write_eof()
        await until(lambda: stream.has_ended)
        assert await reader.read() == b"many\n" * (1 << 20)
        await until(lambda: place.gone == [b"wait\n"])
        writer.close()

    run(loop, scene)


@LOOPS
def test_only_the_allowed_networks_may_connect(loop: Loop) -> None:
    async def scene(place: Place) -> None:
        reader, writer = await place.line()
        writer.write(b"a\n")
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await reader.readexactly(1)
        writer.close()
        assert not place.streams.open

    run(loop, scene, lambda: Place(allow=("10.0.0.0/8",)))


@LOOPS
def test_one_connection_too_many_is_closed(loop: Loop) -> None:
    async def scene(place: Place) -> None:
        reader, writer = await place.line()
        writer.write(b"a\n")
        assert await reader.readline() == b"a\n"
        other, closing = await place.line()
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await other.readexactly(1)
        for each in (writer, closing):
            each.close()

    run(loop, scene, lambda: Place(most=1))


@LOOPS
@BOTH_WAYS
def test_a_client_that_sends_no_more_gets_the_answers_to_what_it_sent(loop: Loop, kind: type[Echo]) -> None:
    async def scene(place: Place) -> None:
        reader, writer = await place.line()
        writer.write(b"a\nb\n")
        writer.write_eof()
        assert await reader.read() == b"a\nb\n"
        writer.close()

    run(loop, scene, lambda: Place(kind))


@LOOPS
def test_a_client_that_hangs_up_while_it_waits_is_given_up(loop: Loop) -> None:
    async def scene(place: Place) -> None:
        place.let.clear()
        _, writer = await place.line()
        writer.write(b"wait\n")
        stream = await place.entered()
        await until(lambda: stream.is_busy)
        writer.transport.abort()
        await until(lambda: place.gone == [b"wait\n"])

    run(loop, scene)


@LOOPS
def test_a_client_that_hung_up_unnoticed_gets_no_job(loop: Loop) -> None:
    async def scene(place: Place) -> None:
        place.let.clear()
        reader, writer = await place.line()
        writer.write(b"job\n")
        stream = await place.entered()
        await until(lambda: stream.is_busy)
        writer.write_eof()
        await until(lambda: stream.has_ended)
        place.let.set()
        assert await reader.read() == b""
        writer.close()

    run(loop, scene)


@LOOPS
def test_a_client_that_waits_is_missed_also_when_it_has_sent_too_much_ahead(loop: Loop) -> None:
    async def scene(place: Place) -> None:
        place.let.clear()
        _, writer = await place.line()
        stream = await place.entered()
        writer.write(b"wait\n" + b"a\n" * MOST_AHEAD)
        await until(lambda: len(stream.received) > MOST_AHEAD)
        writer.transport.abort()
        await until(lambda: place.gone == [b"wait\n"])

    run(loop, scene)


@LOOPS
def test_half_a_request_ends_in_time_and_silence_only_where_it_may_not_last(loop: Loop) -> None:
    async def scene(place: Place) -> None:
        for sent in (b"", b"a\nhalf"):
            reader, writer = await place.line()
            writer.write(sent)
            with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                await reader.readexactly(3)
            writer.close()

    run(loop, scene)


@LOOPS
def test_a_patient_dialect_closes_no_idle_connection(loop: Loop) -> None:
    async def scene(place: Place) -> None:
        idle, kept = await place.line()
        half, writer = await place.line()
        writer.write(b"half")
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):  # which takes the whole time-out
            await half.readexactly(1)
        kept.write(b"a\n")
        assert await idle.readline() == b"a\n"
        for each in (writer, kept):
            each.close()

    run(loop, scene, lambda: Place(Patient))


@LOOPS
def test_a_client_that_reads_no_answers_is_served_no_further_and_then_cut_off(loop: Loop) -> None:
    async def scene(place: Place) -> None:
        _, writer = await place.line()
        writer.write(b"many\n" * 50)
        stream = await place.entered()
        await until(lambda: not place.streams.open)
        assert stream.transport is None
        writer.close()

    run(loop, scene)


@LOOPS
@BOTH_WAYS
def test_what_is_sent_ahead_is_bounded(loop: Loop, kind: type[Echo]) -> None:
    async def scene(place: Place) -> None:
        place.let.clear()
        reader, writer = await place.line()
        writer.write(b"a\n" * (8 << 20))
        stream = await place.entered()
        await until(lambda: len(stream.received) > MOST_AHEAD)
        await asyncio.sleep(0.05)  # in which all of it would have come
        assert len(stream.received) < MOST_AHEAD + (1 << 20)
        writer.transport.abort()
        place.let.set()
        await until(lambda: not place.streams.open)
        assert place.limits.charge(0)
        assert reader

    run(loop, scene, lambda: Place(kind))


@LOOPS
def test_a_bug_closes_the_connection_and_says_nothing(loop: Loop) -> None:
    async def scene(place: Place) -> None:
        with structlog.testing.capture_logs() as logs:
            reader, writer = await place.line()
            writer.write(b"bug\n")
            assert await reader.read() == b""
        assert [each["event"] for each in logs] == ["client.failed"]
        writer.close()

    run(loop, scene)


@LOOPS
def test_a_request_that_is_given_up_here_closes_the_connection(loop: Loop) -> None:
    async def scene(place: Place) -> None:
        reader, writer = await place.line()
        writer.write(b"cancelled\n")
        assert await reader.read() == b""
        writer.close()

    run(loop, scene, lambda: Place(Patient))


@LOOPS
def test_a_connection_that_stays_while_the_service_stops_is_read_on(loop: Loop) -> None:
    async def scene(place: Place) -> None:
        place.let.clear()
        reader, writer = await place.line()
        stream = await place.entered()
        ahead = b"a\n" * MOST_AHEAD
        writer.write(ahead)
        await until(lambda: len(stream.received) > MOST_AHEAD)
        place.streams.drain()
        place.let.set()
        writer.write(b"b\n")
        assert (await reader.readexactly(len(ahead) + 2)).endswith(b"a\nb\n")
        writer.close()

    run(loop, scene, lambda: Place(Staying))


@LOOPS
@BOTH_WAYS
def test_a_stop_answers_what_has_begun_and_closes(loop: Loop, kind: type[Echo]) -> None:
    async def scene(place: Place) -> None:
        place.let.clear()
        reader, writer = await place.line()
        writer.write(b"a\n")
        stream = await place.entered()
        await until(lambda: stream.is_busy)
        closing = asyncio.create_task(place.streams.close(60))
        await asyncio.sleep(0)
        place.let.set()
        assert await reader.read() == b"a\n"
        await closing
        writer.close()

    run(loop, scene, lambda: Place(kind))


@LOOPS
def test_a_stop_does_not_wait_longer_than_its_grace(loop: Loop) -> None:
    async def scene(place: Place) -> None:
        place.let.clear()
        _, writer = await place.line()
        writer.write(b"a\n")
        stream = await place.entered()
        await until(lambda: stream.is_busy)
        await place.streams.close(0.05)
        assert not place.streams.open
        writer.close()

    run(loop, scene)
