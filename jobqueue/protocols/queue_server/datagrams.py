"""The side by UDP: one object in a datagram, one answer. What is no object gets none, so nobody can be flooded by
requests that carry another's address."""

from __future__ import annotations

import asyncio
import socket
from functools import partial
from typing import Any, cast

from jobqueue.dialect_settings import QueueServer
from jobqueue.errors import BadJson
from jobqueue.protocols import Dialect
from jobqueue.protocols.queue_server.actions import Actions, Asker
from jobqueue.protocols.queue_server.connection import plain_host
from jobqueue.protocols.queue_server.request import Request
from jobqueue.wires.stream import allows

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
        """The host and port that a client has sent to. A socket open on all addresses does not know; then it is the
        one from which an answer goes to that client."""
        assert self._transport is not None
        own: socket.socket = self._transport.get_extra_info("socket")
        host, port = own.getsockname()[:2]
        if host in ("0.0.0.0", "::"):  # noqa: S104
            with socket.socket(own.family, socket.SOCK_DGRAM) as probe:
                probe.connect(addr)
                host = probe.getsockname()[0]
        return plain_host(host), port

    def drain(self) -> None:
        """Take no more requests."""
        self._is_draining = True

    async def close(self, grace_s: float) -> None:
        """Wait until what has come is answered; end what is left after `grace_s`."""
        self.drain()
        if not self._tasks:
            return
        left = (await asyncio.wait(self._tasks, timeout=grace_s))[1]
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
