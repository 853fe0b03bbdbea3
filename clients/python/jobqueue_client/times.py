"""Times: from what users pass (timedelta, datetime) to what the protocol takes (seconds, RFC 3339)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

Seconds = float | timedelta
Moment = datetime | float | str
_LADDER = re.compile(r"\s*\d+(\.\d+)?\s*(,\s*\d+(\.\d+)?\s*)*", re.ASCII)


def seconds(value: Seconds) -> float:
    """A duration in seconds."""
    return value.total_seconds() if isinstance(value, timedelta) else value


def moment(value: Moment) -> float | str:
    """A point in time as unix seconds or RFC 3339 text. Raises ValueError for a naive datetime."""
    if not isinstance(value, datetime):
        return value
    if value.utcoffset() is None:
        raise ValueError("a point in time needs a datetime with a time zone; this one is naive")
    return value.astimezone(UTC).isoformat()  # its own offset may have seconds, which RFC 3339 does not allow


def _ladder(values: Any) -> Any:
    """Seconds; also as text, in the form of the command line and of Spark: `15,30`."""
    if isinstance(values, str) and _LADDER.fullmatch(values):
        return [float(each) for each in values.split(",")]
    return [seconds(value) for value in values] if isinstance(values, list | tuple) else values


_FILTERED = ("died_from", "died_to", "due_from", "due_to", "created_from", "created_to")


def _filter(given: Any) -> Any:
    """The filter of an operation; None means that a member is not sent."""
    if not isinstance(given, Mapping):
        return given
    return {name: moment(value) if name in _FILTERED else value for name, value in given.items() if value is not None}


_PLAIN: dict[str, Callable[[Any], Any]] = {
    "at": moment,
    "from": moment,
    "start": moment,
    "since": moment,
    "until": moment,
    "backoff": _ladder,
    "filter": _filter,
    **dict.fromkeys(
        ("delay", "spread", "ttr", "TTR", "ttl", "retention", "wait", "seconds", "every", "jitter", "shift"), seconds
    ),
}


def plain(fields: Mapping[str, Any]) -> dict[str, Any]:
    """A command's fields with their times in the protocol's form."""
    return {name: _PLAIN[name](value) if name in _PLAIN else value for name, value in fields.items()}
