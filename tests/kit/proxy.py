"""A bad network: a TCP proxy in front of a server, with weather that may change at any time.

A cut is that of a cable, not of a socket: what was sent stays in flight, and arrives once the network is whole again,
unless an end has given up meanwhile. During a cut the kernel still accepts new connections, which user space cannot
prevent, but they hear nothing.

`of`: the weather applies only to connections from these addresses. All of 127.0.0.0/8 is this machine, and a Redis with
`bind-source-addr 127.0.0.7` connects from there, which shows who is calling.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import struct
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import Self

THERE = "there"  # towards the server
BACK = "back"
BOTH = (THERE, BACK)

_CHUNK = 1 << 16
_UNDER_WAY = 256  # chunks per connection and direction
_RESET_AT_ONCE = struct.pack("ii", 1, 0)

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Dial = Callable[[], Awaitable[Streams]]


@dataclass(frozen=True)
class Weather:
    """What happens to bytes."""

    latency_s: float = 0.0
    """How much later they arrive, in each direction."""
    resets: float = 0.0
    """The probability that a chunk resets its connection instead of arriving."""
    slice_bytes: int = 0
    """How many arrive at a time (0: as they were sent)."""
    slice_s: float = 0.0
    """Seconds between slices."""
    cut: Collection[str] = ()
    """The directions in which nothing arrives."""


FAIR = Weather()


class Proxy:
    """`async with Proxy(to(port))`, or `Proxy(to(path of a Unix socket))`; clients connect to `port` on 127.0.0.1."""

    def __init__(self, dial: Dial, *, port: int = 0, seed: int = 0) -> None:
        self.port = port
        self.connections = 0
        """How many connections there have ever been."""
        self.resets = 0
        self._dial = dial
        self._chance = random.Random(seed)
        self._weather = FAIR
        self._of: Collection[str] | None = None
        self._changed = asyncio.Event()
        self._mute: list[list[asyncio.StreamWriter]] = []
        self._open: dict[asyncio.Task[None], list[asyncio.StreamWriter]] = {}

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *exception: object) -> None:
        self._server.close()
        tasks = list(self._open)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._server.wait_closed()

    def set(self, weather: Weather, of: Collection[str] | None = None) -> None:
        """Change the weather, also for what is in flight; for connections from `of`, or for all."""
        self._weather, self._of = weather, of
        self._changed.set()
        self._changed = asyncio.Event()

    def mute_all(self) -> None:
        """Swallow what is sent over the current connections from now on, in both directions, and close none of them."""
        self._mute = list(self._open.values())

    def reset_all(self) -> None:
        """Reset all current connections once."""
        for writers in self._open.values():
            self._reset(writers)

    def _of_whom(self, source: str) -> Weather:
        return self._weather if self._of is None or source in self._of else FAIR

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.CancelledError):  # asyncio 3.11 would log it with a traceback
            await self._connect(reader, writer)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection, until both directions have ended or it is reset."""
        task = asyncio.current_task()
        assert task
        self.connections += 1
        writers = self._open[task] = [writer]
        source = writer.get_extra_info("peername")[0]
        try:
            there, back = await self._dial()
            writers.append(back)
            async with asyncio.TaskGroup() as both:
                both.create_task(self._carry(reader, back, THERE, source, writers))
                both.create_task(self._carry(there, writer, BACK, source, writers))
        except* OSError:
            pass  # one end is gone, so the other goes too
        finally:
            del self._open[task]
            for each in writers:
                each.transport.abort()

    async def _carry(
        self,
        incoming: asyncio.StreamReader,
        outgoing: asyncio.StreamWriter,
        way: str,
        source: str,
        writers: list[asyncio.StreamWriter],
    ) -> None:
        """Pass on the bytes of one direction, in order. Raises OSError when an end is reset."""
        under_way: asyncio.Queue[tuple[float, bytes | OSError]] = asyncio.Queue(_UNDER_WAY)
        taking = asyncio.create_task(_take(incoming, under_way))
        try:
            while True:
                sent, data = await under_way.get()
                await self._arrival(sent, way, source)
                if isinstance(data, OSError):
                    raise data
                if any(each is writers for each in self._mute):
                    continue
                weather = self._of_whom(source)
                if data and self._chance.random() < weather.resets:
                    self._reset(writers)
                    raise ConnectionResetError
                await _hand_over(data, outgoing, weather)
                if not data:
                    return
        finally:
            taking.cancel()

    async def _arrival(self, sent: float, way: str, source: str) -> None:
        """Wait until what was sent at that loop time arrives, given the weather as it changes."""
        loop = asyncio.get_running_loop()
        while True:
            weather, changed = self._of_whom(source), self._changed
            if way in weather.cut:
                await changed.wait()
                continue
            left = sent + weather.latency_s - loop.time()
            if left <= 0:
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await changed.wait()

    def _reset(self, writers: list[asyncio.StreamWriter]) -> None:
        self.resets += 1
        for writer in writers:
            end: socket.socket | None = writer.get_extra_info("socket")
            if end is not None and not writer.transport.is_closing():
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_AT_ONCE)
            writer.transport.abort()


async def _take(incoming: asyncio.StreamReader, under_way: asyncio.Queue[tuple[float, bytes | OSError]]) -> None:
    loop = asyncio.get_running_loop()
    data: bytes | OSError = b"-"
    while isinstance(data, bytes) and data:
        try:
            data = await incoming.read(_CHUNK)
        except OSError as error:
            data = error
        await under_way.put((loop.time(), data))


async def _hand_over(data: bytes, outgoing: asyncio.StreamWriter, weather: Weather) -> None:
    size = weather.slice_bytes or len(data) or 1
    for begin in range(0, len(data), size):
        if begin:
            await asyncio.sleep(weather.slice_s)
        _check(outgoing)
        outgoing.write(data[begin : begin + size])
        await outgoing.drain()
    if not data:
        _check(outgoing)
        outgoing.write_eof()


def _check(outgoing: asyncio.StreamWriter) -> None:
    """Raise if the end is gone: uvloop treats writing to it as a mistake."""
    if outgoing.is_closing():
        raise ConnectionResetError


def to(place: int | str, host: str = "127.0.0.1") -> Dial:
    """Dial a port of a host, or the path of a Unix socket."""

    def dial() -> Awaitable[Streams]:
        return asyncio.open_connection(host, place) if isinstance(place, int) else _dial_path(place)

    return dial


async def _dial_path(path: str) -> Streams:
    return await asyncio.open_unix_connection(path)
