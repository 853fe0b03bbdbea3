"""Times, spans and counts in words, for sentences that people read. Times are in the local zone."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from jobqueue.journal.explaining.words import jobs, largest_units

__all__ = ["ahead", "clock", "death", "jobs", "span", "when"]


def span(seconds: float) -> str:
    """A time span in its two largest units: `2 h 5 min`."""
    if seconds < 60:
        return f"{seconds:.3f}".rstrip("0").rstrip(".") + " s"
    return largest_units(round(seconds))


def when(unix_s: float, now: float | None = None) -> str:
    """A time in the local zone, and how far it is from now."""
    local = clock(unix_s, now)
    return f"{local} ({ahead(unix_s, now)})" if ":" in local else local


def clock(unix_s: float, now: float | None = None) -> str:
    """A time in the local zone, without the date if that is today."""
    try:
        local = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(unix_s))
        return local.removeprefix(time.strftime("%Y-%m-%d ", time.localtime(now)))
    except (ValueError, OverflowError, OSError):
        return str(unix_s)


def ahead(unix_s: float, now: float | None = None) -> str:
    """How far a time is from now: `in 5 s`, `3 min ago`."""
    distance = unix_s - (time.time() if now is None else now)
    far = abs(distance)
    words = span(round(far, 1) if far < 10 else round(far))
    return f"in {words}" if distance >= 0 else f"{words} ago"


def death(newest: Mapping[str, Any]) -> str:
    """The newest dead letter of a topic in a few words: `order-7 (tries, no connection)`."""
    reason = f", {newest['reason']}" if newest["reason"] else ""
    return f"{newest['id']} ({newest['cause']}{reason})"
