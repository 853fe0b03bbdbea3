"""The dialect of queue_server: its connections over TCP, and its datagrams over UDP.

The objects on a connection follow each other directly, or with blanks between them. Over UDP, an object is one
datagram, and so is its answer. A datagram that is not an object gets no answer, so forged sender addresses cannot be
used to flood a victim.
"""

from __future__ import annotations

import asyncio
import re
import socket
from functools import partial
from typing import Any, cast

import orjson

from jobqueue.dialect_settings import QueueServer
from jobqueue.errors import BadJson, BadRequest, TooLarge
from jobqueue.protocols import Dialect, SocketDialect, Tools
from jobqueue.protocols.queue_server.actions import FIELD_ERROR, TOO_LARGE, Actions, Asker, Request, hands_out, refusal
from jobqueue.wires.stream import Stream, Streams, allows

_STRING = rb'"(?:[^"\\]++|\\.)*+"'
_TO_BRACE = re.compile(
    rb'(?:[^"{}]++|' + _STRING + rb'|\{(?:[^"{}]++|' + _STRING + rb")*+\})*+",
    re.DOTALL,
)
"""Bytes that do not change the depth, including complete objects that hold no other object."""
_TO_QUOTE = re.compile(rb'(?:[^"\\]++|\\.)*+', re.DOTALL)
"""The rest of a string that came in pieces; a lone backslash at the end is not matched, because the character that it
escapes has not come yet."""
_BLANKS = re.compile(rb"[ \t\r\n]*+")
_QUOTE, _OPEN, _BACKSLASH = b'"{\\'
_DEEPEST = 500  # objects within each other; no real request is deeper


class NoObject(BadJson):
    """a request is a JSON object."""


class Framing:
    """Cuts the bytes of a connection into objects. The time that this takes grows only with the number of bytes,
    however many pieces they come in."""

    def __init__(self, received: bytearray, most: int) -> None:
        """`received`: the buffer where the bytes arrive, and from which objects are removed. `most`: the most bytes of
        an object."""
        self._bytes = received
        self._most = most
        self._at = 0  # the bytes before this index have been scanned
        self._depth = 0
        self._in_string = False

    def take(self) -> bytes | None:
        """The next object, or None until all of it has come. Raises NoObject if the bytes do not begin with an object,
        BadJson for an object that is too deep, and TooLarge for one that is too long."""
        if not self._at and not self._begin():
            return None
        while self._step():
            if self._depth == 0:
                return self._cut()
        if len(self._bytes) > self._most:
            raise TooLarge(f"an object has at most {self._most} bytes")
        return None

    def _begin(self) -> bool:
        """Drop the blanks before an object and move past its first brace; returns whether the brace has come."""
        blanks = _BLANKS.match(self._bytes)
        del self._bytes[: blanks.end() if blanks else 0]
        if not self._bytes:
            return False
        if self._bytes[0] != _OPEN:
            raise NoObject
        self._at = self._depth = 1
        return True

    def _step(self) -> bool:
        """Move past the next quote or brace that counts; returns whether it has come."""
        found = (_TO_QUOTE if self._in_string else _TO_BRACE).match(self._bytes, self._at)
        self._at = found.end() if found else self._at
        if self._at == len(self._bytes) or (self._in_string and self._bytes[self._at] == _BACKSLASH):
            return False
        mark = self._bytes[self._at]
        self._at += 1
        if mark == _QUOTE:
            self._in_string = not self._in_string
            return True
        self._depth += 1 if mark == _OPEN else -1
        if self._depth > _DEEPEST:
            raise BadJson(f"a request holds at most {_DEEPEST} objects within each other")
        return True

    def _cut(self) -> bytes:
        end, self._at = self._at, 0
        if end > self._most:
            raise TooLarge(f"an object has at most {self._most} bytes")
        taken = bytes(self._bytes[:end])
        del self._bytes[:end]
        return taken


_ROOM = 16 << 10  # bytes of a request besides a body


class Connection(Stream[Request | BadRequest]):
    """Answers the requests of a client in their order."""

    __slots__ = ("_actions", "_framing", "_is_refused", "_tools")

    def __init__(self, streams: Streams, actions: Actions, tools: Tools) -> None:
        super().__init__(streams)
        self._actions = actions
        self._tools = tools
        self._framing = Framing(self.received, tools.settings.max_body_bytes + _ROOM)
        self._is_refused = False  # whether nothing more is read

    def data_received(self, data: bytes) -> None:
        """Bytes from the client. After a refusal they are dropped: closing at once could make a client that is still
        sending lose the refusal."""
        if not self._is_refused:
            super().data_received(data)

    def take(self) -> Request | BadRequest | None:
        """The next request, or the error after which nothing more is read; None if neither has come yet."""
        try:
            taken = None if self._is_refused else self._framing.take()
            return None if taken is None else Request(taken)
        except BadRequest as error:
            self._is_refused = True
            self.received.clear()
            return error

    async def answer(self, request: Request | BadRequest) -> None:
        """Answer a request with a single write, because clients read only once."""
        if isinstance(request, BadRequest):
            self._refuse(request)
            return
        asker = Asker(self._reached, self.host, check=self.check_client)
        self.is_waiting = hands_out(request)
        try:
            if self.is_waiting:
                asker.check()
            answer = await self._actions.answer(request, asker)
            if asker.reserved:
                asker.check()
            self.write(answer)
            asker.reserved.clear()
        finally:
            self.is_waiting = False
            if asker.reserved:
                self._tools.give_back(asker.reserved)

    def _refuse(self, error: BadRequest) -> None:
        self._tools.commands.refuse(error)
        if isinstance(error, NoObject) or self.transport is None:
            self.close()
            return
        reason = TOO_LARGE if isinstance(error, TooLarge) else FIELD_ERROR
        self.write(orjson.dumps(refusal(reason, error.message)))
        self.transport.write_eof()

    def _reached(self) -> tuple[str, int]:
        """The host and port that the client has connected to."""
        if self.transport is None:
            raise ConnectionResetError("the client is gone")
        host, port = self.transport.get_extra_info("sockname")[:2]
        return plain_host(host), port


def plain_host(host: str) -> str:
    """An address as people write it: an IPv4 address may come in the form of IPv6."""
    return host.removeprefix("::ffff:") if "." in host else host


_MOST_AT_ONCE = 1_000  # requests being answered; others are dropped, as a full socket buffer would


class Datagrams(asyncio.DatagramProtocol):
    """Answers the datagrams that come to a port."""

    def __init__(self, dialect: Dialect[QueueServer], actions: Actions) -> None:
        self._dialect = dialect
        self._actions = actions
        self._transport: asyncio.DatagramTransport | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_draining = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The port is open."""
        self._transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, addr: tuple[Any, ...]) -> None:
        """A datagram has come."""
        if self._is_draining or len(self._tasks) >= _MOST_AT_ONCE or not allows(self._dialect.options.allow, addr):
            return
        try:
            request = Request(data)
        except BadJson as error:
            self._dialect.tools.commands.refuse(error)
            return
        task = asyncio.get_running_loop().create_task(self._answer(request, addr))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, request: Request, addr: tuple[Any, ...]) -> None:
        asker = Asker(partial(self._reached, addr), plain_host(addr[0]), by_datagram=True)
        try:
            answer = await self._actions.answer(request, asker)
            if self._transport is not None and not self._transport.is_closing():
                self._transport.sendto(answer, addr)
                asker.reserved.clear()
        finally:
            if asker.reserved:
                self._dialect.tools.give_back(asker.reserved)

    def _reached(self, addr: tuple[Any, ...]) -> tuple[str, int]:
        """The host and port that a client has sent to. A socket that is open on all addresses does not know the host:
        then the host is the local address from which an answer goes to that client."""
        assert self._transport is not None
        own: socket.socket = self._transport.get_extra_info("socket")
        host, port = own.getsockname()[:2]
        if host in ("0.0.0.0", "::"):  # noqa: S104
            with socket.socket(own.family, socket.SOCK_DGRAM) as probe:
                probe.connect(addr)
                host = probe.getsockname()[0]
        return plain_host(host), port

    def drain(self) -> None:
        """Accept no more requests."""
        self._is_draining = True

    async def close(self, grace_s: float) -> None:
        """Wait until the requests that have come are answered; cancel those left after `grace_s`."""
        self.drain()
        if not self._tasks:
            return
        left = (await asyncio.wait(self._tasks, timeout=grace_s))[1]
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)


class QueueServerDialect(SocketDialect[QueueServer]):
    """queue_server on a port, over TCP and UDP."""

    def __init__(self, tools: Tools, options: QueueServer) -> None:
        super().__init__(tools, options)
        self._actions = Actions(self)
        self._streams = Streams(tools.limits, lambda: self.options.allow)
        self._datagrams = Datagrams(self, self._actions) if options.udp else None

    def connection(self) -> asyncio.Protocol:
        """A new connection."""
        return Connection(self._streams, self._actions, self.tools)

    def datagrams(self) -> asyncio.DatagramProtocol | None:
        """The UDP side, or None if the settings turn it off."""
        return self._datagrams

    def drain(self) -> None:
        """Answer the requests that have come, then close."""
        self._streams.drain()
        if self._datagrams is not None:
            self._datagrams.drain()

    async def close(self, grace_s: float) -> None:
        """Wait until the connections are closed and the datagrams answered; end what is left after `grace_s`."""
        ends = [self._streams.close(grace_s)]
        if self._datagrams is not None:
            ends.append(self._datagrams.close(grace_s))
        await asyncio.gather(*ends)
