"""The caller: the connection over which the request came that is being answered."""

from __future__ import annotations

from collections.abc import Coroutine
from contextvars import ContextVar
from typing import Any, Protocol

from buckets.waiting.pollers import Client

CALLER: ContextVar[Client | None] = ContextVar("caller", default=None)


class Cancellable(Protocol):
    """A request in flight."""

    def cancel(self) -> object:
        """Give it up: its client is gone."""


class Caller(Client, Protocol):
    """The client of a request that may be answered without a task."""

    @property
    def is_behind(self) -> bool:
        """Whether it has not taken all that was written to it. Then jobs are handed out by a task, which waits until it
        reads: they go back if it never does."""

    def has_hung_up(self) -> bool:
        """Whether it is gone. Asks the socket, for what the event loop has not read yet; to be used before an answer
        that hands out jobs. A client that is gone is sent nothing more, and the request in flight is cancelled."""

    def answer(self, body: bytes, request_id: str) -> None:
        """Answer with 200 and this JSON. Never raises; does nothing when the client is gone."""

    def complete(self, work: Coroutine[Any, Any, None]) -> None:
        """Go on with a task; it is cancelled when the client is gone. It always begins, so what the work holds goes
        back by its own handlers."""
