"""Conditions on the topics that a caller may reach, as scripts take them (see lua/include/within.lua).

A condition is a text: patterns, separated by blanks, of which a topic must match one; several such lists, one a line,
of which it must match each. In a pattern, `*` stands for any characters and `?` for one. An empty text lets any topic
pass.
"""

from __future__ import annotations

import functools
import re


def both(first: str, second: str) -> str:
    """The condition that two conditions hold."""
    return f"{first}\n{second}" if first and second else first or second


def is_pattern(text: str) -> bool:
    """Whether it may stand for several topics."""
    return "*" in text or "?" in text


def reaches(within: str, topic: str) -> bool:
    """Whether a topic is within."""
    return not within or all(pattern.fullmatch(topic) for pattern in _compiled(within))


@functools.lru_cache(maxsize=1024)
def _compiled(within: str) -> list[re.Pattern[str]]:
    return [re.compile("|".join(map(_expression, line.split(" "))), re.DOTALL) for line in within.split("\n")]


def _expression(pattern: str) -> str:
    """An expression that never goes back, as one with many stars could otherwise take seconds: what is between two
    stars is sought where it comes first."""
    first, *others = [re.escape(part).replace(r"\?", ".") for part in pattern.split("*")]
    if not others:
        return first
    return first + "".join(f"(?>.*?{part})" for part in others[:-1]) + ".*" + others[-1]
