"""A connection by TCP."""

from __future__ import annotations

import orjson

from jobqueue.errors import BadRequest, TooLarge
from jobqueue.protocols import Tools
from jobqueue.protocols.queue_server.actions import Actions, Asker, hands_out
from jobqueue.protocols.queue_server.framing import Framing, NoObject
from jobqueue.protocols.queue_server.request import FIELD_ERROR, TOO_LARGE, Request, refusal
from jobqueue.wires.stream import Stream, Streams

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
        """Bytes from the client. Behind a refusal they are dropped: to close at once would take the refusal from a
        client that is still sending."""
        if not self._is_refused:
            super().data_received(data)

    def take(self) -> Request | BadRequest | None:
        """The next request, or why nothing more is read."""
        try:
            taken = None if self._is_refused else self._framing.take()
            return None if taken is None else Request(taken)
        except BadRequest as error:
            self._is_refused = True
            self.received.clear()
            return error

    async def answer(self, request: Request | BadRequest) -> None:
        """Each answer is one write: clients read once."""
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
    """An address as people write it: an IPv4 one may come in the form of IPv6."""
    return host.removeprefix("::ffff:") if "." in host else host
