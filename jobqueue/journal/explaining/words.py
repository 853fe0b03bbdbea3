"""Times and spans in words. Times are UTC."""

from __future__ import annotations

from datetime import UTC, datetime

_UNITS = ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"))
_LONGEST_IN_MS = 120_000  # a longer span is shown in its two largest units
_MOST_US = 253_402_300_799_999_999  # the end of the year 9999


def moment(us: int) -> str:
    """`2026-11-23 12:30:00.000`."""
    return datetime.fromtimestamp(min(max(us, 0), _MOST_US) // 1000 / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]


def clock(us: int, day_of: int) -> str:
    """A time, without its date if that is the date of `day_of`: `12:30:00.000`."""
    words = moment(us)
    return words.removeprefix(moment(day_of)[:11])


def span(us: int) -> str:
    """A time span: `677 ms`, `9.214 s`, `60.677 s`, `2 h 5 min`."""
    ms = round(us / 1000)
    if ms < 1000:
        return f"{ms} ms"
    if ms < _LONGEST_IN_MS:
        return f"{ms / 1000:.3f}".rstrip("0").rstrip(".") + " s"
    return largest_units(round(us / 1e6))


def largest_units(seconds: int) -> str:
    """A time span of at least one second, in its two largest units: `2 h 5 min`."""
    left, parts = seconds, list[str]()
    for size, unit in _UNITS:
        count, left = divmod(left, size)
        if count or parts:
            parts.append(f"{count} {unit}" if count else "")
        if len(parts) == 2:
            break
    return " ".join(part for part in parts if part)


def jobs(count: int) -> str:
    """`1 job`, `2,000 jobs`."""
    return "1 job" if count == 1 else f"{count:,} jobs"
