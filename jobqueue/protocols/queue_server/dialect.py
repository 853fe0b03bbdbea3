"""The dialect of queue_server: its connections by TCP, and its datagrams."""

from __future__ import annotations

import asyncio

from jobqueue.dialect_settings import QueueServer
from jobqueue.protocols import SocketDialect, Tools
from jobqueue.protocols.queue_server.actions import Actions
from jobqueue.protocols.queue_server.connection import Connection, Datagrams
from jobqueue.wires.stream import Streams


class QueueServerDialect(SocketDialect[QueueServer]):
    """queue_server on a port, by TCP and by UDP."""

    def __init__(self, tools: Tools, options: QueueServer) -> None:
        super().__init__(tools, options)
        self._actions = Actions(self)
        self._streams = Streams(tools.limits, lambda: self.options.allow)
        self._datagrams = Datagrams(self, self._actions) if options.udp else None

    def connection(self) -> asyncio.Protocol:
        """A new connection."""
        return Connection(self._streams, self._actions, self.tools)

    def datagrams(self) -> asyncio.DatagramProtocol | None:
        """The UDP side, unless the settings close it."""
        return self._datagrams

    def drain(self) -> None:
        """Answer what has come, and close."""
        self._streams.drain()
        if self._datagrams is not None:
            self._datagrams.drain()

    async def close(self, grace_s: float) -> None:
        """Wait until the connections are closed and the datagrams answered; end what is left after `grace_s`."""
        ends = [self._streams.close(grace_s)]
        if self._datagrams is not None:
            ends.append(self._datagrams.close(grace_s))
        await asyncio.gather(*ends)
