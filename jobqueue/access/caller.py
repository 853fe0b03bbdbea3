"""The caller: the connection over which the current request came."""

from __future__ import annotations

from collections.abc import Coroutine
from contextvars import ContextVar
from typing import Any, Protocol

from buckets.waiting.pollers import Client

CALLER: ContextVar[Client | None] = ContextVar("caller", default=None)


class Cancellable(Protocol):
    """A request in flight."""

    def cancel(self) -> object:
        """Cancel the request because its client is gone."""


class Caller(Client, Protocol):
    """The client of a request that may be answered without a task."""

    @property
    def is_behind(self) -> bool:
        """Whether the client has not yet read everything that was written to it. Jobs are then handed out by a task,
        which waits until the client reads, and returns the jobs if it never does."""

    def has_hung_up(self) -> bool:
        """Whether the client is gone. Asks the socket, because the event loop may not have noticed yet; call this
        before an answer that hands out jobs. If the client is gone, nothing more is sent to it, and the request in
        flight is cancelled."""

    def answer(self, body: bytes, request_id: str) -> None:
        """Answer with 200 and this JSON. Never raises; does nothing when the client is gone."""

    def complete(self, work: Coroutine[Any, Any, None]) -> None:
        """Continue in a task, which is cancelled when the client is gone. The task always starts, so that the work's
        own handlers can release what it holds."""
