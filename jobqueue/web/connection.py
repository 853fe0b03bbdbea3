"""A connection: serves simple requests on the fast path (fast_path.py) and passes all others to aiohttp.

The bytes of a connection belong to one of two readers. They belong to the fast path until something comes that is not
simple; from there on all belong to aiohttp, for its parser cannot be asked whether it stands between two requests. Only
a simple GET is an exception: it ends where its head ends, so after its answer the bytes belong to the fast path again.
Thus the health checks of a proxy do not cost the requests on the same connection their fast path.

One request of a connection is in flight at a time; what a client sends ahead is kept, within bounds, until that one is
answered. A client that does not read its answers gets no more requests served, and one that keeps us waiting is
disconnected: see `visit`.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any, Protocol, cast

from aiohttp import web

from buckets.errors import JobQueueError, NoRoom
from jobqueue.access.connections import ConnectionLimits
from jobqueue.access.hang_ups import close_if_hung_up
from jobqueue.caller import CALLER
from jobqueue.errors import TooSlow
from jobqueue.protocols import Reply
from jobqueue.web import fast_path
from jobqueue.web.refusals import Refusing, refusal

MOST_AHEAD = 64 << 10  # bytes kept behind a request in flight; beyond these, and one read more, nothing is read

_PROBES = (b"GET ", b"HEAD ")  # the requests of monitoring


class Client(Protocol):
    """Where the answer to a request goes."""

    async def send(self, reply: Reply, request_id: str, *, has_jobs: bool) -> None:
        """Write the answer to the request, and its id. Raises ConnectionError when the client is gone. `has_jobs`: the
        answer hands out jobs, so make sure that the client has not hung up unnoticed."""


class Answerer(Protocol):
    """Answers the simple requests."""

    closing: bool
    """It takes no more of them; the answers to those in flight are the last of their connections."""
    most_bytes: int
    """A request with a longer body is not simple."""

    async def answer(self, data: bytes, given_id: str, client: Client) -> None:
        """Answer a request by its body and the id that its client gave. Cancelled when the client is gone."""


class Connection(Refusing):
    """One connection of a client."""

    __slots__ = (
        *("_answerer", "_answers", "_answers_at_visit", "_charged", "_has_part_of_head", "_is_fast", "_is_get_passed"),
        *("_is_held", "_is_surplus", "_late_since", "_limits", "_needed", "_peer", "_pending", "_task"),
        "_unread_since",
        "_wire",
    )

    def __init__(self, server: web.Server, answerer: Answerer, limits: ConnectionLimits, **options: Any) -> None:
        super().__init__(server, **options)
        self._answerer = answerer
        self._limits = limits
        self._peer: Any = None  # the address of the client, as the socket has it
        self._charged = 0  # bytes of an incomplete request
        self._is_surplus = False  # whether it is one connection too many
        self._wire: asyncio.Transport | None = None  # until the connection is lost; aiohttp forgets it when it closes
        self._late_since = 0.0  # loop time since when a request is awaited; 0: none is
        self._unread_since = 0.0  # loop time since when the client has not taken its answer
        self._answers = 0  # begun on the fast path
        self._answers_at_visit = 0  # including those of aiohttp
        self._has_part_of_head = False  # whether aiohttp has received a part of a head
        self._is_fast = True  # whether the bytes belong to the fast path
        self._is_get_passed = False  # whether aiohttp has a simple GET, and nothing else
        self._task: asyncio.Task[None] | None = None  # answers the request in flight
        self._pending = bytearray()  # received, but not begun with
        self._needed = 0  # bytes of the first request in `_pending`, once its head is known
        self._is_held = False  # whether this class has paused reading

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected."""
        super().connection_made(transport)
        wire = self._wire = cast(asyncio.Transport, transport)
        self._peer = wire.get_extra_info("peername")
        self._late_since = self._loop.time()
        self._is_surplus = self._limits.is_full
        if not self._limits.join(self):
            wire.abort()

    @property
    def is_surplus(self) -> bool:
        """Whether it is one connection too many, which may only ask for the health of the service."""
        return self._is_surplus

    @property
    def is_connected(self) -> bool:
        """Whether the client is still there, as far as is known."""
        return self._wire is not None

    @property
    def address(self) -> str:
        """The client's address and port."""
        host, port = self._peer[:2] if isinstance(self._peer, tuple) else ("", 0)
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def data_received(self, data: bytes) -> None:
        """Bytes from the client."""
        if self._is_get_passed and self._is_fast:
            self._is_get_passed, self._is_fast = False, self._is_aiohttp_idle()
        if not self._is_fast or self._close or self._force_close:
            self._pass_to_aiohttp(data)
        elif self._task is None and not self._pending:
            taken = self._begin_next(data)
            if taken < len(data):
                self._pending += data[taken:]
                self._charge(len(self._pending))
        else:
            self._pending += data
            self._charge(len(self._pending))
            if self._task is None:
                self._continue()
            elif len(self._pending) > MOST_AHEAD and self.transport is not None:
                self._is_held = True
                self.transport.pause_reading()

    def _is_aiohttp_idle(self) -> bool:
        """Whether aiohttp is waiting for a request."""
        waits = self._waiter is not None and not self._waiter.done()
        return waits and not self._messages and not self._upgraded and self._payload_parser is None

    def _begin_next(self, received: bytes | bytearray) -> int:
        """Begin with the first request; returns how many bytes were used, 0 if some of it is still to come."""
        end = received.find(b"\r\n\r\n", 0, fast_path.LONGEST_HEAD) + 4
        if end < 4:
            return 0 if fast_path.begun(bytes(received)) else self._leave_to_aiohttp(received)
        head = fast_path.read(bytes(received[:end]))
        if head is None or self._answerer.closing or (head.length or 0) > self._answerer.most_bytes:
            return self._leave_to_aiohttp(received)
        if head.length is None:
            self._is_get_passed = end == len(received)
            return self._pass_to_aiohttp(received) if self._is_get_passed else self._leave_to_aiohttp(received)
        needed = end + head.length
        if len(received) < needed:
            self._needed = needed
            return 0
        if self._is_surplus:
            return self._refuse_surplus(received)
        self._needed = 0
        self._late_since = 0.0
        self._task = self._loop.create_task(self._serve(bytes(received[end:needed]), head.request_id))
        return needed

    def _pass_to_aiohttp(self, received: bytes | bytearray) -> int:
        """Let aiohttp read these bytes; returns how many they are."""
        before = self._request_count
        super().data_received(bytes(received))
        self._has_part_of_head = self._request_count == before and not self._messages and not self._request_in_progress
        if self._request_count != before:
            self._late_since = 0.0
            self._close |= self._is_surplus
            self._charge(0)
        elif not (self._is_fast or self._has_part_of_head or self._close or self._force_close):
            self._charge(self._charged + len(received))
        return len(received)

    def _charge(self, size: int) -> None:
        """Account for the kept bytes of a request; refuse it if they are too many for all connections together."""
        has_room = self._limits.charge(size - self._charged)
        self._charged = size
        if not has_room and size > MOST_AHEAD and self._task is None:
            self._refuse(NoRoom("this process is receiving as many large requests as it may"))

    def _refuse_surplus(self, received: bytes | bytearray) -> int:
        """Refuse a request because there are too many connections."""
        self._refuse(NoRoom("this process has as many connections as it may have"))
        return len(received)

    def _refuse(self, error: JobQueueError) -> None:
        """Answer with an error, before there is a whole request, and close the connection."""
        self._pending.clear()
        self._charge(0)
        self.close()
        request = self._current_request
        if request is None or request.writer.output_size == 0:
            with suppress(ConnectionError):
                self._write(refusal(error), "")
        self.force_close()

    def _leave_to_aiohttp(self, received: bytes | bytearray) -> int:
        """Pass these bytes and all that follow to aiohttp."""
        if self._is_surplus and not received.startswith(_PROBES):
            return self._refuse_surplus(received)
        self._is_fast = False
        self._needed = 0
        self._resume_reading()  # before aiohttp may pause it itself
        return self._pass_to_aiohttp(received)

    def _resume_reading(self) -> None:
        if self._is_held and self.transport is not None and not self.transport.is_closing():
            self._is_held = False
            self.transport.resume_reading()

    def _continue(self) -> None:
        """Begin with the next request, if all of it is there."""
        if len(self._pending) >= self._needed:
            taken = self._begin_next(self._pending)
            del self._pending[:taken]
            self._charge(len(self._pending))
        if self._task is None or len(self._pending) <= MOST_AHEAD:
            self._resume_reading()

    async def _serve(self, data: bytes, given_id: str) -> None:
        CALLER.set(self)
        try:
            await self._answerer.answer(data, given_id, self)
        except Exception as error:  # a bug
            self.close()
            with suppress(ConnectionError):
                self._write(refusal(error), "")
        except BaseException:
            self.close()
            raise
        finally:
            self._task = None
            self._after_answer()

    def _after_answer(self) -> None:
        # A closed transport may have much to write before it reports the connection as lost.
        if self._close or self._force_close or self.transport is None or self.transport.is_closing():
            self._pending.clear()
            self._charge(0)
            self.force_close()
            return
        self._next_keepalive_close_time = self._loop.time() + self._keepalive_timeout
        if self._pending:
            self._continue()

    async def send(self, reply: Reply, request_id: str, *, has_jobs: bool) -> None:
        """Write the answer to the request in flight: see `Client`."""
        if has_jobs:
            close_if_hung_up(self.transport)
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
        """The client is gone, or the connection was closed here."""
        super().connection_lost(exc)
        self._limits.leave(self)
        self._wire = None
        self._pending.clear()
        self._charge(0)
        if self._task is not None:
            self._task.cancel()

    def visit(self, now: float, timeout_s: float) -> None:
        """Disconnect a client that has kept us waiting for `timeout_s`; it gets 408 if its request had begun."""
        wire = self._wire
        if wire is None:
            return
        visited, self._answers_at_visit = self._answers_at_visit, self._answers + self._request_count
        if self._answers_at_visit != visited:  # a further answer means that the one before was taken
            self._unread_since = 0.0
        self._unread_since = (self._unread_since or now) if wire.get_write_buffer_size() else 0.0
        self._late_since = (self._late_since or now) if self._is_late() else 0.0
        if not self._is_fast and self._charged and self._is_aiohttp_idle():
            self._charge(0)
        if self._unread_since and now - self._unread_since >= timeout_s:
            wire.abort()
        elif self._late_since and now - self._late_since >= timeout_s:
            self._disconnect()

    def _is_late(self) -> bool:
        """Whether the client still has to send a request, or the rest of one."""
        if self._task is not None or self.transport is None:
            return False
        if self._pending or self._has_part_of_head:
            return True
        if self._request_count == 0 and self._late_since:
            return True  # it has sent nothing at all
        request = self._current_request
        return request is not None and not request.content.is_eof()

    def _disconnect(self) -> None:
        if self._pending or self._has_part_of_head or self._current_request is not None:
            self._refuse(TooSlow(f"the request was not complete within {self._limits.timeout_s:g} s"))
        else:
            self.force_close()

    def _process_keepalive(self) -> None:
        """Keep aiohttp from taking a connection as idle while the fast path has a request in flight or incomplete."""
        if self._task is not None or self._needed:
            self._next_keepalive_close_time = self._loop.time() + self._keepalive_timeout
        super()._process_keepalive()

    async def shutdown(self, timeout: float | None = 15.0) -> None:  # noqa: ASYNC109 - aiohttp's
        """Let the request in flight end within `timeout` (s), else cancel it; then close the connection."""
        self.close()
        task = self._task
        if task is not None and (await asyncio.wait({task}, timeout=timeout))[1]:
            task.cancel()
            await asyncio.wait({task}, timeout=timeout)
        await super().shutdown(timeout)
