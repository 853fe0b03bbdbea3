"""The logs: one line per event (`noun.past_tense`) with its fields; readable on a terminal, JSON elsewhere.

The engine logs with the standard library, the service with structlog; the lines of both look the same. Job bodies are
never logged, and traces carry no local variables.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Hashable
from contextvars import ContextVar
from typing import Any

import orjson
import structlog

from jobqueue.tracing import TRACE, log_field, trace_id

REQUEST: ContextVar[str] = ContextVar("request", default="")
"""The id of the request that is being answered. (structlog's own context variables cost 3 µs a request.)"""


_EVERY_S = 1.0
_MOST_KEYS = 1000  # that are remembered; further keys get no lines in that second


class Sparing:
    """Logs a warning at most once a second for each key: an event that happens a thousand times a second gets one
    line."""

    def __init__(self, event: str, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock`: returns a time in seconds."""
        self._event = event
        self._clock = clock
        self._lines: dict[Hashable, tuple[float, int]] = {}  # by key: when it got a line; events without one since
        self._cleared = clock()

    def note(self, key: Hashable, **fields: Any) -> None:
        """Log the event, or only count it. The field `more` of a line says how many earlier events got no line."""
        now = self._clock()
        last, more = self._lines.get(key, (now - _EVERY_S, 0))
        if now - last < _EVERY_S:
            self._lines[key] = last, more + 1
        elif self._has_room(now) or key in self._lines:
            self._lines[key] = now, 0
            structlog.get_logger().warning(self._event, **fields, **({"more": more} if more else {}))

    def _has_room(self, now: float) -> bool:
        if len(self._lines) >= _MOST_KEYS and now - self._cleared >= _EVERY_S:
            self._cleared = now
            self._lines = {key: line for key, line in self._lines.items() if now - line[0] < _EVERY_S}
        return len(self._lines) < _MOST_KEYS


def _with_request(_logger: Any, _method: str, event: Any) -> Any:
    request, trace = REQUEST.get(), TRACE.get()
    named = {"request": request} if request else {}
    return event | named | log_field(trace_id(trace)) if named or trace else event


_FIRST = ("time", "level", "event")


def _json(event: Any, **_: Any) -> str:
    """A line of JSON. All lines begin with the same fields, whatever their other fields are."""
    first = {name: event[name] for name in _FIRST if name in event}
    return orjson.dumps(first | event, default=str).decode()


def set_up(level: str, form: str, process: int | str | None = None) -> None:
    """Send all logs to standard error. `form` is text, json, or auto (text on a terminal); `process`: a number or a
    name that each line gets."""
    text = form == "text" or (form == "auto" and sys.stderr.isatty())
    shared: list[Any] = [
        _with_request,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
    ]
    if process is not None:
        shared.append(lambda _logger, _method, event: event | {"process": process})
    if not text:
        shared.append(structlog.processors.format_exc_info)
    renderer: Any = (
        structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback, timestamp_key="time")
        if text
        else structlog.processors.JSONRenderer(serializer=_json)
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, structlog.stdlib.ExtraAdder()],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    # aiohttp's logs about a request that is not HTTP contain parts of the request: header values, bytes of bodies.
    logging.getLogger("aiohttp").setLevel(logging.CRITICAL)
    logging.getLogger("alembic").setLevel(logging.WARNING)  # it logs each of its plugins
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
