"""Conditions on the topics that a caller may reach, in the form for scripts (see lua/include/within.lua).

A condition is a text: a list of patterns, separated by blanks, of which a topic must match one; or several such lists,
one per line, each of which a topic must match. In a pattern, `*` matches any characters and `?` one character. An empty
text matches any topic.
"""

from __future__ import annotations

import functools
import re


def both(first: str, second: str) -> str:
    """The condition that both of two conditions are met."""
    return f"{first}\n{second}" if first and second else first or second


def is_pattern(text: str) -> bool:
    """Whether a text is a pattern, which may match several topics."""
    return "*" in text or "?" in text


def reaches(within: str, topic: str) -> bool:
    """Whether a topic meets the condition `within`."""
    return not within or all(pattern.fullmatch(topic) for pattern in _compiled(within))


@functools.lru_cache(maxsize=1024)
def _compiled(within: str) -> list[re.Pattern[str]]:
    return [re.compile("|".join(map(_expression, line.split(" "))), re.DOTALL) for line in within.split("\n")]


def _expression(pattern: str) -> str:
    """A regular expression that never backtracks, as a pattern with many stars could otherwise take seconds: the text
    between two stars is matched where it first occurs."""
    first, *others = [re.escape(part).replace(r"\?", ".") for part in pattern.split("*")]
    if not others:
        return first
    return first + "".join(f"(?>.*?{part})" for part in others[:-1]) + ".*" + others[-1]
