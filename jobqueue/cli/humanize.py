"""Values as people read them on a terminal: text without control characters, time spans, times.

Bodies, headers and reasons were written by strangers. A terminal obeys some characters (it clears its screen, renames
its window, writes from right to left), so none of them reaches it unescaped.
"""

from __future__ import annotations

import json
import unicodedata
from typing import Any

from jobqueue.health.words import ahead, clock, death, jobs, span, when

__all__ = ["ahead", "body", "clean", "clock", "death", "jobs", "number", "span", "unknown", "when"]

_OBEYED = {"Cc", "Cf", "Co", "Cs", "Zl", "Zp"}  # Unicode categories that print nothing, and are not merely a space
_LONGEST_BODY = 200  # characters that reach a table; the width of the terminal cuts off more


def clean(text: str) -> str:
    """Text in which each character that a terminal may obey is escaped, such as `\\u001b`. In JSON, the escape means
    the same character."""
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


def unknown(topic: str) -> str:
    """The sentence about a topic that does not exist."""
    return f"there is no topic {clean(topic)}; those that exist: jobqueue topics"
