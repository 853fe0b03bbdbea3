"""Values as people read them on a terminal: text without control characters, time spans, times.

Bodies, headers and reasons were written by strangers. A terminal obeys some characters (it clears its screen, renames
its window, writes from right to left), so none of them reaches it unescaped.
"""

from __future__ import annotations

import json
import time
import unicodedata
from collections.abc import Mapping
from typing import Any

_OBEYED = {"Cc", "Cf", "Co", "Cs", "Zl", "Zp"}  # Unicode categories that print nothing, and are not merely a space
_LONGEST_BODY = 200  # characters that reach a table; the width of the terminal cuts off more
_UNITS = ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def clean(text: str) -> str:
    """Text with each character that a terminal may obey escaped: `\\u001b`. In JSON that means the same."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_escaped(each) if unicodedata.category(each) in _OBEYED else each for each in text)


def _escaped(character: str) -> str:
    return json.dumps(character)[1:-1] if character != "\x7f" else "\\u007f"


def body(value: Any, longest: int | None = _LONGEST_BODY) -> str:
    """A body on one line, shortened."""
    text = clean(json.dumps(value, ensure_ascii=False))
    return text if longest is None or len(text) <= longest else text[: longest - 1] + "…"


def number(count: int) -> str:
    """A count with commas."""
    return f"{count:,}"


def jobs(count: int) -> str:
    """`1 job`, `2,000 jobs`."""
    return "1 job" if count == 1 else f"{count:,} jobs"


def span(seconds: float) -> str:
    """A time span in its two largest units: `2 h 5 min`."""
    if seconds < 60:
        return f"{seconds:.3f}".rstrip("0").rstrip(".") + " s"
    left = round(seconds)
    parts: list[str] = []
    for size, unit in _UNITS:
        count, left = divmod(left, size)
        if count or parts:
            parts.append(f"{count} {unit}" if count else "")
        if len(parts) == 2:
            break
    return " ".join(part for part in parts if part)


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


def unknown(topic: str) -> str:
    """The sentence about a topic that does not exist."""
    return f"there is no topic {clean(topic)}; those that exist: jobqueue topics"


def death(newest: Mapping[str, Any]) -> str:
    """The newest dead letter of a topic in a few words: `order-7 (tries, no connection)`."""
    reason = f", {newest['reason']}" if newest["reason"] else ""
    return f"{newest['id']} ({newest['cause']}{reason})"
