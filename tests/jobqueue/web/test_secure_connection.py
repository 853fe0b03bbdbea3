"""Connections with TLS, on both event loops: they keep their rules, and end as plain ones do."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
import trustme

from jobqueue.access.caller import CALLER
from jobqueue.access.tls import Tls
from jobqueue.metrics.process import Metrics
from jobqueue.web.connection import Connection, Handshake
from jobqueue.web.handed_over import HandedOver
from tests.jobqueue.access.authorities import Files
from tests.jobqueue.web.test_connection import GET, LOOPS, Desk, Loop, Place, chunked, post, run, served
from tests.kit.waiting import until

Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Site:
    """A server with TLS whose simple requests a desk answers."""

    def __init__(self, place: Place, files: Files, tls: Tls, metrics: Metrics) -> None:
        self.place, self.files, self.tls = place, files, tls
        self._metrics = metrics
        self.port: int = place.runner.addresses[0][1]

    async def connect(self, clients: trustme.CA | None = None, **options: Any) -> Stream:
        context = self.files.client(clients, **options)
        return await asyncio.open_connection("127.0.0.1", self.port, ssl=context, server_hostname="localhost")

    def handshakes(self) -> dict[str, int]:
        return {outcome: number for (outcome,), number in self._metrics._handshakes._numbers.items()}


@asynccontextmanager
async def secured(folder: Path, desk: Desk, clients: trustme.CA | None = None, **options: Any) -> AsyncIterator[Site]:
    files, metrics = Files(folder, clients=clients, must=options.pop("must", True)), Metrics()
    tls = Tls(files.settings, metrics)
    async with served(desk, tls=tls, **options) as place:
        yield Site(place, files, tls, metrics)


async def body(reader: asyncio.StreamReader) -> bytes:
    """The body of the next answer."""
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    return await reader.readexactly(int(head.partition(b"content-length: ")[2].split(b"\r\n")[0]))


@LOOPS
def test_a_connection_is_handed_over_between_two_requests(loop: Loop, tmp_path: Path) -> None:
    async def test() -> None:
        desk = Desk(has_tasks=False)
        desk.let.set()
        async with secured(tmp_path, desk) as site:
            reader, writer = await site.connect()
            writer.write(post(b"a") + chunked(b"b") + post(b"c"))
            assert [await body(reader) for _ in range(3)] == [b"a", b"by aiohttp: b", b"by aiohttp: c"]
            (connection,) = site.place.connections
            assert isinstance(connection, HandedOver)
            writer.close()
            await until(lambda: not site.place.connections)
            assert site.handshakes() == {"ok": 1}

    run(loop, test)


@LOOPS
def test_a_hang_up_is_seen_before_the_loop_reads_it(loop: Loop, tmp_path: Path) -> None:
    async def test() -> None:
        desk = Desk(has_tasks=False)
        async with secured(tmp_path, desk) as site:
            _, writer = await site.connect()
            writer.write(post(b"a"))
            await until(lambda: desk.begun == [b"a"])
            (connection,) = site.place.limits.joined(Connection)
            assert not connection.has_hung_up()
            end: socket.socket = writer.get_extra_info("socket")
            with socket.socket(fileno=os.dup(end.fileno())) as same:
                same.shutdown(socket.SHUT_WR)
            assert connection.has_hung_up()
            writer.transport.abort()
            await until(lambda: desk.gone == [b"a"])

    run(loop, test)


@LOOPS
def test_a_client_that_does_not_read_is_behind_and_is_disconnected(loop: Loop, tmp_path: Path) -> None:
    async def test() -> None:
        desk = Desk(has_tasks=False)
        desk.times = 20_000_000
        desk.let.set()
        async with secured(tmp_path, desk, client_timeout_s=0.5) as site:
            _, writer = await site.connect()
            transport = cast(asyncio.Transport, writer.transport)
            transport.pause_reading()
            writer.write(post(b"a"))
            await until(lambda: any(each.is_behind for each in site.place.limits.joined(Connection)))
            await until(lambda: not site.place.connections)
            writer.transport.abort()

    run(loop, test)


@LOOPS
def test_a_large_answer_reaches_a_slow_client_whole_though_the_connection_is_closed_behind_it(
    loop: Loop, tmp_path: Path
) -> None:
    async def test() -> None:
        desk = Desk()
        desk.times = 8_000_000
        async with secured(tmp_path, desk) as site:
            reader, writer = await site.connect()
            writer.write(post(b"a"))
            await until(lambda: desk.begun == [b"a"])
            transport = cast(asyncio.Transport, writer.transport)
            transport.pause_reading()
            (connection,) = site.place.limits.joined(Connection)
            connection.end()
            desk.let.set()
            await until(lambda: connection.is_behind)
            transport.resume_reading()
            assert await body(reader) == b"a" * 8_000_000
            assert await reader.read() == b""
            writer.close()

    run(loop, test)


@LOOPS
def test_what_is_no_handshake_is_disconnected_and_counted(loop: Loop, tmp_path: Path) -> None:
    async def test() -> None:
        async with secured(tmp_path, Desk(), client_timeout_s=0.3) as site:
            for said in (GET, b"\0" * 50, b"\x16\x03\x01\x00\x05hello"):
                reader, writer = await asyncio.open_connection("127.0.0.1", site.port)
                writer.write(said)
                assert GET[:4] not in await reader.read()
                writer.close()
            assert site.handshakes() == {"failed": 3}
            reader, writer = await asyncio.open_connection("127.0.0.1", site.port)  # it says nothing
            await until(lambda: bool(site.place.limits.joined(Handshake)))
            assert await reader.read() == b""
            writer.close()
            await until(lambda: not site.place.limits.joined(Handshake))

    run(loop, test)


@LOOPS
def test_half_a_handshake_is_a_connection_and_too_many_are_refused(loop: Loop, tmp_path: Path) -> None:
    async def test() -> None:
        async with secured(tmp_path, Desk(), most=1) as site:
            held = [await asyncio.open_connection("127.0.0.1", site.port) for _ in range(65)]
            await until(lambda: len(site.place.limits.joined(Handshake)) == 65)
            reader, writer = await asyncio.open_connection("127.0.0.1", site.port)
            with contextlib.suppress(ConnectionResetError):
                assert await reader.read() == b""
            for _, each in [*held, (reader, writer)]:
                each.close()
            await until(lambda: not site.place.limits.joined(Handshake))

    run(loop, test)


@LOOPS
def test_a_stop_does_not_wait_for_a_client_that_does_not_answer_the_end(loop: Loop, tmp_path: Path) -> None:
    async def test() -> None:
        async with secured(tmp_path, Desk(), grace_s=1000) as site:
            plain = socket.create_connection(("127.0.0.1", site.port))
            context = site.files.client()
            client = await asyncio.to_thread(context.wrap_socket, plain, server_hostname="localhost")
            await until(lambda: len(site.place.connections) == 1)
            async with asyncio.timeout(20):
                await site.place.runner.close()
            client.close()

    run(loop, test)


@LOOPS
def test_a_stop_answers_the_request_in_flight(loop: Loop, tmp_path: Path) -> None:
    async def test() -> None:
        desk = Desk()
        async with secured(tmp_path, desk) as site:
            reader, writer = await site.connect()
            writer.write(post(b"a"))
            await until(lambda: desk.begun == [b"a"])
            desk.closing = True
            closing = asyncio.create_task(site.place.runner.close())
            desk.let.set()
            head = await reader.readuntil(b"\r\n\r\n")
            assert b"Connection: close" in head and await reader.read() == b"a"
            writer.close()
            await closing

    run(loop, test)


@LOOPS
def test_a_new_authority_ends_the_connections_of_before_behind_their_answers(loop: Loop, tmp_path: Path) -> None:
    async def test() -> None:
        desk, before, after = Desk(), trustme.CA(), trustme.CA()
        async with secured(tmp_path, desk, before) as site:
            idle, busy, given = [await site.connect(before) for _ in range(3)]
            busy[1].write(post(b"a"))
            given[1].write(GET)
            await body(given[0])
            await until(lambda: desk.begun == [b"a"])
            renewals: list[asyncio.Task[None]] = []
            site.tls.on_new_authority.append(lambda: renewals.append(asyncio.create_task(site.place.runner.renew())))
            site.files.trust(after)
            site.tls.reload()
            assert await idle[0].read() == b"" and await given[0].read() == b""
            desk.let.set()
            assert (await busy[0].read()).endswith(b"\r\n\r\na")
            with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
                reader, writer = await site.connect(before)
                writer.write(GET)
                await reader.readuntil(b"\r\n")
            reader, writer = await site.connect(after)
            writer.write(GET)
            assert await body(reader) == b"by aiohttp: "
            assert site.handshakes() == {"ok": 4, "certificate": 1}
            for each in (idle, busy, given, (reader, writer)):
                each[1].close()
            await asyncio.gather(*renewals)

    run(loop, test)


@LOOPS
def test_a_client_that_shakes_hands_during_the_change_of_the_authority_is_disconnected_at_once(
    loop: Loop, tmp_path: Path
) -> None:
    async def test() -> None:
        desk, before, after = Desk(), trustme.CA(), trustme.CA()
        async with secured(tmp_path, desk, before) as site:
            reader, writer = await asyncio.open_connection("127.0.0.1", site.port)
            received, to_send = ssl.MemoryBIO(), ssl.MemoryBIO()
            client = site.files.client(before).wrap_bio(received, to_send, server_hostname="localhost")
            is_over = False
            while not is_over:
                try:
                    client.do_handshake()
                    is_over = True
                except ssl.SSLWantReadError:
                    writer.write(to_send.read())
                    received.write(await reader.read(1 << 16) or pytest.fail("the end"))
            site.files.trust(after)
            site.tls.reload()
            client.write(post(b"a"))
            writer.write(to_send.read())
            async with asyncio.timeout(10):
                with contextlib.suppress(ConnectionResetError):
                    await reader.read()
            assert not desk.begun
            writer.close()

    run(loop, test)


@LOOPS
def test_the_names_of_a_client_are_those_in_its_certificate(loop: Loop, tmp_path: Path) -> None:
    async def test() -> None:
        desk, clients, names = Desk(), trustme.CA(), list[Any]()
        desk._note_caller = lambda: names.append(cast(Any, CALLER.get()).certificate_names)  # type: ignore[method-assign]
        desk.let.set()
        async with secured(tmp_path, desk, clients, must=False) as site:
            for given in (clients, None):
                reader, writer = await site.connect(given)
                writer.write(post(b"a") + GET)
                assert [await body(reader), await body(reader)] == [b"a", b"by aiohttp: "]
                writer.close()
            with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):  # of another authority
                reader, writer = await site.connect(trustme.CA())
                writer.write(GET)
                await reader.readuntil(b"\r\n")
        assert names == [("worker.example",), ("worker.example",), (), ()]

    run(loop, test)
