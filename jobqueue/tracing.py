"""The trace of a request and of a job: W3C Trace Context, in the header `traceparent` of either.

The spans of commands are in `commands.spans`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any

import orjson

HEADER, STATE = "traceparent", "tracestate"
TRACE: ContextVar[str] = ContextVar("trace", default="")
"""The context of the request that is being answered, as its header has it; empty without a valid one."""

_CONTEXT = re.compile(r"[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")


def traceparent(given: str | None) -> str:
    """The value of a header `traceparent` if it is valid, otherwise an empty string."""
    return given if given and _CONTEXT.fullmatch(given) else ""


def trace_id(given: str | None) -> str | None:
    """The trace that the value of a header `traceparent` names, as 32 hex digits; None without a valid one."""
    found = _CONTEXT.fullmatch(given) if given else None
    return found[1] if found else None


def log_field(trace: str | None) -> dict[str, str]:
    """The field of a log line about a trace; none without one."""
    return {"trace_id": trace} if trace else {}


def trace_of(headers: bytes | None) -> str | None:
    """The trace in which a job was added, by its headers as JSON; None without a valid one."""
    named: Mapping[str, Any] = orjson.loads(headers) if headers else {}
    return trace_id(str(named.get(HEADER, "")))
