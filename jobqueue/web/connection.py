"""A connection with a quick way for plain requests (fast_path.py); all others are aiohttp's, as is the connection.

Bytes belong to one of the two readers. They are ours until something comes that is not plain; from there on all are
aiohttp's, for nobody can ask its parser whether it stands between two requests. Only a plain GET is lent: it ends where
its head ends, so behind its answer the bytes are ours again. Thus the health checks of a proxy do not cost the requests
that come by the same connection their quick way.

One request of a connection is in flight at a time; what a client sends ahead is kept, within bounds, until it is
answered. Who does not read the answers gets no further requests taken. Who keeps us waiting is dropped: see `visit`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Protocol, cast

from aiohttp import web

from buckets.errors import JobQueueError, NoRoom
from jobqueue.access.connections import Limits
from jobqueue.errors import TooSlow
from jobqueue.protocols.command.handler import Reply
from jobqueue.web import fast_path
from jobqueue.web.refusals import Refusing, refusal

MOST_AHEAD = 64 << 10  # bytes kept behind a request in flight; beyond them, and what was read at once, nothing is read

_LOOKS = (b"GET ", b"HEAD ")  # the requests of who watches over us

Send = Callable[[Reply, str], Awaitable[None]]
"""Writes the answer to a request, and its id. Raises ConnectionError when the client is gone."""


class Answerer(Protocol):
    """Who answers the plain requests."""

    closing: bool
    """No more of them are taken; the answers to those in flight are the last of their connections."""
    most_bytes: int
    """Longer bodies are not plain."""

    async def answer(self, data: bytes, given_id: str, send: Send) -> None:
        """Answer a request by its body and the id that its client gave. Cancelled when the client is gone."""


class Connection(Refusing):
    """One connection of a client."""

    __slots__ = (
        *(
            "_answerer",
            "_charged",
            "_half_read",
            "_held",
            "_kept",
            "_late_since",
            "_lent",
            "_limits",
            "_needed",
            "_ours",
        ),
        *("_answers", "_surplus", "_task", "_unread_since", "_visited", "_wire"),
    )

    def __init__(self, server: web.Server, answerer: Answerer, limits: Limits, **options: Any) -> None:
        super().__init__(server, **options)
        self._answerer = answerer
        self._limits = limits
        self._charged = 0  # bytes of a request that is not complete
        self._surplus = False  # whether it is one too many
        self._wire: asyncio.Transport | None = None  # until the connection is lost; aiohttp forgets it when it closes
        self._late_since = 0.0  # loop time from when on we wait for a request; 0: we do not
        self._unread_since = 0.0  # and for the client to take its answer
        self._answers = 0  # of ours that were begun
        self._visited = 0  # how many there were at the last visit, aiohttp's with them
        self._half_read = False  # whether aiohttp has a part of a head
        self._ours = True
        self._lent = False
        self._task: asyncio.Task[None] | None = None  # answers the request in flight
        self._kept = bytearray()  # received, but not taken
        self._needed = 0  # bytes of the request in front of them, once its head is known
        self._held = False  # whether we stopped the reading

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client is there."""
        super().connection_made(transport)
        wire = self._wire = cast(asyncio.Transport, transport)
        self._late_since = self._loop.time()
        self._surplus = self._limits.is_full
        if not self._limits.join(self):
            wire.abort()

    def data_received(self, data: bytes) -> None:
        """Bytes from the client."""
        if self._lent and self._ours:
            self._lent, self._ours = False, self._idle()
        if not self._ours or self._close or self._force_close:
            self._lend(data)
        elif self._task is None and not self._kept:
            taken = self._take(data)
            if taken < len(data):
                self._kept += data[taken:]
                self._charge(len(self._kept))
        else:
            self._kept += data
            self._charge(len(self._kept))
            if self._task is None:
                self._go_on()
            elif len(self._kept) > MOST_AHEAD and self.transport is not None:
                self._held = True
                self.transport.pause_reading()

    def _idle(self) -> bool:
        """Whether aiohttp waits for a request."""
        waits = self._waiter is not None and not self._waiter.done()
        return waits and not self._messages and not self._upgraded and self._payload_parser is None

    def _take(self, received: bytes | bytearray) -> int:
        """Begin with the request in front; how many bytes were taken, 0 where some of it is still to come."""
        end = received.find(b"\r\n\r\n", 0, fast_path.LONGEST_HEAD) + 4
        if end < 4:
            return 0 if fast_path.begun(bytes(received)) else self._hand_over(received)
        head = fast_path.read(bytes(received[:end]))
        if head is None or self._answerer.closing or (head.length or 0) > self._answerer.most_bytes:
            return self._hand_over(received)
        if head.length is None:
            self._lent = end == len(received)
            return self._lend(received) if self._lent else self._hand_over(received)
        needed = end + head.length
        if len(received) < needed:
            self._needed = needed
            return 0
        if self._surplus:
            return self._turn_away(received)
        self._needed = 0
        self._late_since = 0.0
        self._task = self._loop.create_task(self._serve(bytes(received[end:needed]), head.request_id))
        return needed

    def _lend(self, received: bytes | bytearray) -> int:
        before = self._request_count
        super().data_received(bytes(received))
        self._half_read = self._request_count == before and not self._messages and not self._request_in_progress
        if self._request_count != before:
            self._late_since = 0.0
            self._close |= self._surplus
            self._charge(0)
        elif not (self._ours or self._half_read or self._close or self._force_close):
            self._charge(self._charged + len(received))
        return len(received)

    def _charge(self, size: int) -> None:
        """Keep account of what is kept of a request; one that is too much for all together is refused."""
        has_room = self._limits.charge(size - self._charged)
        self._charged = size
        if not has_room and size > MOST_AHEAD and self._task is None:
            self._refuse(NoRoom("this process has as many large requests on their way as it may have"))

    def _turn_away(self, received: bytes | bytearray) -> int:
        """There are too many connections already."""
        self._refuse(NoRoom("this process has as many connections as it may have"))
        return len(received)

    def _refuse(self, error: JobQueueError) -> None:
        """Answer before there is a request, and close the connection."""
        self._kept.clear()
        self._charge(0)
        self.close()
        request = self._current_request
        if request is None or request.writer.output_size == 0:
            with suppress(ConnectionError):
                self._write(refusal(error), "")
        self.force_close()

    def _hand_over(self, received: bytes | bytearray) -> int:
        """From here on all is aiohttp's."""
        if self._surplus and not received.startswith(_LOOKS):
            return self._turn_away(received)
        self._ours = False
        self._needed = 0
        self._read_again()  # before aiohttp may hold the reading itself
        return self._lend(received)

    def _read_again(self) -> None:
        if self._held and self.transport is not None and not self.transport.is_closing():
            self._held = False
            self.transport.resume_reading()

    def _go_on(self) -> None:
        """With the next request, if it is there."""
        if len(self._kept) >= self._needed:
            taken = self._take(self._kept)
            del self._kept[:taken]
            self._charge(len(self._kept))
        if self._task is None or len(self._kept) <= MOST_AHEAD:
            self._read_again()

    async def _serve(self, data: bytes, given_id: str) -> None:
        try:
            await self._answerer.answer(data, given_id, self._send)
        except Exception as error:  # a bug of ours
            self.close()
            with suppress(ConnectionError):
                self._write(refusal(error), "")
        except BaseException:
            self.close()
            raise
        finally:
            self._task = None
            self._answered()

    def _answered(self) -> None:
        # A closed transport may have much to write before it tells that the connection is lost.
        if self._close or self._force_close or self.transport is None or self.transport.is_closing():
            self._kept.clear()
            self._charge(0)
            self.force_close()
            return
        self._next_keepalive_close_time = self._loop.time() + self._keepalive_timeout
        if self._kept:
            self._go_on()

    async def _send(self, reply: Reply, request_id: str) -> None:
        if self._answerer.closing:
            self.close()
        self._write(reply, request_id)
        if self._paused:
            await self._drain_helper()

    def _write(self, reply: Reply, request_id: str) -> None:
        if self.transport is None or self.transport.is_closing():
            raise ConnectionResetError("the client is gone")
        self._answers += 1
        self.transport.write(fast_path.written(reply, request_id, last=self._close))

    def connection_lost(self, exc: BaseException | None) -> None:
        """The client is gone, or we closed the connection."""
        super().connection_lost(exc)
        self._limits.leave(self)
        self._wire = None
        self._kept.clear()
        self._charge(0)
        if self._task is not None:
            self._task.cancel()

    def visit(self, now: float, timeout_s: float) -> None:
        """Drop a client that has kept us waiting for `timeout_s`: 408 where a request had begun."""
        wire = self._wire
        if wire is None:
            return
        visited, self._visited = self._visited, self._answers + self._request_count
        if self._visited != visited:  # who has another answer has taken the one before
            self._unread_since = 0.0
        self._unread_since = (self._unread_since or now) if wire.get_write_buffer_size() else 0.0
        self._late_since = (self._late_since or now) if self._is_late() else 0.0
        if not self._ours and self._charged and self._idle():
            self._charge(0)
        if self._unread_since and now - self._unread_since >= timeout_s:
            wire.abort()
        elif self._late_since and now - self._late_since >= timeout_s:
            self._give_up()

    def _is_late(self) -> bool:
        """Whether the client has a request to send, or the rest of one."""
        if self._task is not None or self.transport is None:
            return False
        if self._kept or self._half_read:
            return True
        if self._request_count == 0 and self._late_since:
            return True  # it never said a thing
        request = self._current_request
        return request is not None and not request.content.is_eof()

    def _give_up(self) -> None:
        if self._kept or self._half_read or self._current_request is not None:
            self._refuse(TooSlow(f"the request was not complete within {self._limits.timeout_s:g} s"))
        else:
            self.force_close()

    def _process_keepalive(self) -> None:
        """To aiohttp a connection is idle while a request of ours is in flight, or its body on the way."""
        if self._task is not None or self._needed:
            self._next_keepalive_close_time = self._loop.time() + self._keepalive_timeout
        super()._process_keepalive()

    async def shutdown(self, timeout: float | None = 15.0) -> None:  # noqa: ASYNC109 - aiohttp's
        """Let the request in flight end within `timeout` (s), else cancel it; and close the connection."""
        self.close()
        task = self._task
        if task is not None and (await asyncio.wait({task}, timeout=timeout))[1]:
            task.cancel()
            await asyncio.wait({task}, timeout=timeout)
        await super().shutdown(timeout)
