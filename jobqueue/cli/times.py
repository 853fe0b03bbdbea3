"""Durations and times as people type them: `30m`, `1h30m`, `09:00`, `tomorrow 09:00`, `2026-11-23`.

A time without an offset is in the local zone. A time that could mean two moments is refused.
"""

from __future__ import annotations

import math
import re
from datetime import datetime, time, timedelta

_UNITS = {
    "ms": 0.001,
    **dict.fromkeys(("s", "sec"), 1),
    **dict.fromkeys(("m", "min"), 60),
    "h": 3600,
    "d": 86_400,
    "w": 604_800,
}
_PART = r"(\d+(?:\.\d+)?)\s*(" + "|".join(sorted(_UNITS, key=len, reverse=True)) + r")(?![a-z])"
_PART_OF = re.compile(_PART)
_PARTS = re.compile(rf"(?:{_PART}\s*)+")
_DAYS = {"today": 0, "tomorrow": 1}

DURATIONS = "seconds, or such as 90s, 30m, 1h30m, 2d"
TIMES = "such as 09:00, tomorrow 09:00, 2026-11-23, '2026-11-23 09:00', 2026-11-23T09:00:00+01:00, or unix seconds"


def number(typed: str) -> float | int:
    """A finite number, the only kind that JSON has. Raises ValueError."""
    value = float(typed)
    if not math.isfinite(value):
        raise ValueError(typed)
    return int(value) if value.is_integer() else value


def duration(typed: str) -> float | int:
    """A duration in seconds. Raises ValueError, whose message is a sentence."""
    try:
        return number(typed)
    except ValueError:
        text = typed.strip().lower()
    if not _PARTS.fullmatch(text):
        raise ValueError(f"{typed!r} is not a duration; give {DURATIONS}")
    parts = _PART_OF.findall(text)
    sizes = [_UNITS[unit] for _, unit in parts]
    if sizes != sorted(set(sizes), reverse=True):
        raise ValueError(f"{typed!r} names a unit twice, or a larger one after a smaller; give {DURATIONS}")
    return number(str(round(sum(float(count) * _UNITS[unit] for count, unit in parts), 6)))


def shift(typed: str) -> float | int:
    """A duration in seconds, below 0 for `-2h`. Raises ValueError, whose message is a sentence."""
    text = typed.strip()
    length = duration(text.lstrip("+-"))
    return -length if text.startswith("-") else length


def moment(typed: str, now: datetime | None = None) -> float | int | str:
    """Unix seconds, or an RFC 3339 time, which the service parses. `now`: a local time, for tests. Raises ValueError,
    whose message is a sentence."""
    try:
        return number(typed)
    except ValueError:
        text = typed.strip()
    now = now or datetime.now()
    named = _named(text, now)
    if named is None:
        raise ValueError(f"{typed!r} is not a time; give one {TIMES}")
    if named.tzinfo:
        return text
    return number(str(_unix_s(named, typed)))


def past(typed: str, now: datetime | None = None) -> float:
    """A past moment, in Unix seconds: a duration is how long ago it was, and `09:00` is the last time it was 09:00.
    Raises ValueError, whose message is a sentence."""
    now = now or datetime.now()
    text = typed.strip()
    if _PARTS.fullmatch(text.lower()):
        return _since_1970(now.timestamp() - duration(text), typed)
    day = text.partition(" ")[0].lower()
    try:
        found = moment(text, now if day in _DAYS else now - timedelta(days=1))
    except ValueError:
        raise ValueError(f"{typed!r} is not a time; give one {TIMES}, or how long ago, such as 7d") from None
    seconds = datetime.fromisoformat(found).timestamp() if isinstance(found, str) else float(found)
    if seconds > now.timestamp():
        raise ValueError(f"{typed!r} is not over yet")
    return _since_1970(seconds, typed)


def _since_1970(seconds: float, typed: str) -> float:
    if seconds < 0:
        raise ValueError(f"{typed!r} is before 1970")
    return seconds


def _named(text: str, now: datetime) -> datetime | None:
    """The moment that a text names, or None if it names none. Without a date, it is the next such time; without a time,
    it is the beginning of that day."""
    day, _, rest = text.partition(" ")
    if day.lower() in _DAYS:
        clock = _clock(rest.strip())
        return datetime.combine(now + timedelta(days=_DAYS[day.lower()]), clock) if clock else None
    clock = _clock(text)
    if clock:
        today = datetime.combine(now, clock)
        return today if today > now else datetime.combine(now + timedelta(days=1), clock)
    try:
        return datetime.fromisoformat(text) if re.match(r"\d{4}-\d\d-\d\d", text) else None
    except ValueError:
        return None


def _clock(text: str) -> time | None:
    try:
        return (
            time.fromisoformat(text.zfill(5) if text[1:2] == ":" else text) if re.match(r"\d\d?:\d\d", text) else None
        )
    except ValueError:
        return None


def _unix_s(local: datetime, typed: str) -> float:
    """The moment of a local time. Raises ValueError for a time that is skipped, or comes twice, because the clocks are
    changed."""
    first, second = (local.replace(fold=fold).timestamp() for fold in (0, 1))
    if first != second:
        raise ValueError(f"{typed!r} is when the clocks are changed; give the offset, as in {local.isoformat()}+01:00")
    return first
