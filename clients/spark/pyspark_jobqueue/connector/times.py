"""Times as people type them into options and flags."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from pyspark_jobqueue.errors import BadOption

_SPAN = re.compile(r"(\d{1,6})([smhd])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def moment(text: str, now: float, name: str) -> float:
    """Unix seconds of a time, or of a span ago. A time without an offset is taken as UTC. Raises BadOption, which calls
    the option or flag by its `name`."""
    span = _SPAN.fullmatch(text)
    if span:
        return now - int(span[1]) * _SECONDS[span[2]]
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise BadOption(f"{name} must be like 2026-11-21T10:00Z, or like 90m, 24h or 7d, not {text!r}") from None
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
