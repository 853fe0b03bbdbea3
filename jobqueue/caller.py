"""The caller: the connection over which the request came that is being answered."""

from __future__ import annotations

from contextvars import ContextVar

from buckets.pollers import Client

CALLER: ContextVar[Client | None] = ContextVar("caller", default=None)
