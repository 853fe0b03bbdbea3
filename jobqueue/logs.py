"""The logs: one line per event (`noun.past_tense`) with its fields; readable on a terminal, JSON elsewhere.

The engine logs with the standard library, the service with structlog; both come out alike. Job bodies are never logged,
and traces carry no local variables.
"""

from __future__ import annotations

import logging
import sys
from contextvars import ContextVar
from typing import Any

import orjson
import structlog

REQUEST: ContextVar[str] = ContextVar("request", default="")
"""The id of the request that is being answered. (structlog's own context variables cost 3 µs a request.)"""


def _with_request(_logger: Any, _method: str, event: Any) -> Any:
    request = REQUEST.get()
    return event | {"request": request} if request else event


_FIRST = ("time", "level", "event")


def _json(event: Any, **_: Any) -> str:
    """Lines begin alike, whatever their fields are."""
    first = {name: event[name] for name in _FIRST if name in event}
    return orjson.dumps(first | event, default=str).decode()


def set_up(level: str, form: str, process: int | str | None = None) -> None:
    """Send all logs to standard error. `form` is text, json, or auto (text on a terminal); `process`: a number that
    each line gets."""
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
    # What aiohttp logs about a request that is not HTTP holds parts of it: header values, bytes of bodies.
    logging.getLogger("aiohttp").setLevel(logging.CRITICAL)
    logging.getLogger("alembic").setLevel(logging.WARNING)  # it tells of each of its plugins
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
