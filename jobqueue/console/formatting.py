"""Values as people read them on a page. All text was written by others: none of it may control the browser, hide, or
reverse its direction.

JSON is shown as it was received. White space is added between its tokens, but no number or string is ever decoded and
encoded again: an integer of 23 digits, `1.10` and `1e2` stay unchanged.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from markupsafe import Markup

from jobqueue.cli import humanize

MOST_SHOWN = 64 << 10
"""How many bytes of a body a page shows; the rest can be downloaded."""
MOMENTS = "a time such as 2026-11-23T09:00, in UTC unless it has an offset such as +01:00, or unix seconds"
_LATEST = 253_402_300_799  # the end of the year 9999, the last one that datetime supports
_FOLDED_FROM = 2
_DEEPEST = 24  # levels that are shown as a tree; deeper values are on one line
_SHORT = 72  # the most characters of a list or an object that stays on one line
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]:,]|[^\s{}\[\]:,"]+')


def shown(value: Any) -> Any:
    """A value as a page shows it: text has its control characters escaped."""
    if isinstance(value, Markup) or not isinstance(value, str):
        return value
    return humanize.clean(value)


def rfc3339(unix_s: float) -> str:
    """A time in UTC, to the millisecond; as a number if the calendar does not reach that far."""
    try:
        return datetime.fromtimestamp(unix_s, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):
        return str(unix_s)


def minute(unix_s: float) -> str:
    """A time in UTC, to the minute, as `moment` reads it."""
    return rfc3339(unix_s)[:16] + "Z"


def moment(typed: str) -> float:
    """Unix seconds to the millisecond, parsed from unix seconds or from an RFC 3339 time, in UTC unless it has an
    offset. Raises ValueError."""
    try:
        seconds = float(typed)
    except ValueError:
        at = datetime.fromisoformat(typed)
        seconds = (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
    if not 0 <= seconds <= _LATEST:
        raise ValueError(typed)
    return round(seconds, 3)


def utc(unix_s: float) -> str:
    """A time in UTC, to the second, without the date if it is today."""
    text = rfc3339(unix_s)
    if "T" not in text:
        return text
    day, _, clock = text.partition("T")
    today = rfc3339(time.time()).partition("T")[0]
    return f"{clock[:8]} UTC" if day == today else f"{day} {clock[:8]} UTC"


def size(count: int) -> str:
    """Bytes in a unit that keeps the number short."""
    return f"{count:,} bytes" if count < 10_000 else f"{count / 1024:,.0f} KiB"


def late(seconds: float) -> str:
    """How late a job was, in milliseconds below a second."""
    return f"{seconds * 1000:.3g} ms" if seconds < 1 else humanize.span(round(seconds, 1))


def rate(number: float) -> str:
    """A rate per second, with two significant digits if it is a fraction below 10."""
    return f"{number:,.0f}" if number >= 10 or number == round(number) else f"{number:.2g}"


def one_line(text: str) -> str:
    """JSON on one line. Line ends and tabs occur only between its tokens, where a space means the same."""
    return humanize.clean(re.sub(r"[\r\n\t]+", " ", text))


@dataclass(slots=True)
class Node:
    """A JSON value: a leaf's `text`, or the members between two brackets, each with its key (empty in a list)."""

    text: str = ""
    kind: str = "other"
    closing: str = ""
    members: list[tuple[str, Node]] = field(default_factory=list)
    is_short: bool = True
    depth: int = 0

    @property
    def is_folded(self) -> bool:
        return self.depth >= _FOLDED_FROM


def tree(text: str) -> Node:
    """The parts of a JSON value, all exactly as written."""
    tokens = _TOKEN.findall(text)
    node, _ = _node(tokens, 0, 0)
    return node


def _node(tokens: list[str], at: int, depth: int) -> tuple[Node, int]:
    """The value that begins at a token, and the index of the token after the value."""
    first = tokens[at] if at < len(tokens) else ""
    if first not in ("{", "["):
        return Node(first, _kind(first), depth=depth), at + 1
    if depth >= _DEEPEST:
        return _flat(tokens, at, depth)
    node, begin = Node(first, "list", closing="]" if first == "[" else "}", depth=depth), at
    at += 1
    while at < len(tokens) and tokens[at] != node.closing:
        key = ""
        if first == "{":
            key, at = tokens[at], at + 2
        member, at = _node(tokens, at, depth + 1)
        node.members.append((key, member))
        if at < len(tokens) and tokens[at] == ",":
            at += 1
    is_flat = all(not member.closing or not member.members for _, member in node.members)
    node.is_short = is_flat and sum(map(len, tokens[begin : at + 1])) <= _SHORT
    return node, at + 1


def _flat(tokens: list[str], at: int, depth: int) -> tuple[Node, int]:
    """A list or an object as a leaf."""
    begin, open_ones = at, 0
    while at < len(tokens):
        open_ones += {"{": 1, "[": 1, "}": -1, "]": -1}.get(tokens[at], 0)
        at += 1
        if open_ones == 0:
            break
    return Node("".join(tokens[begin:at]), "other", depth=depth), at


def _kind(token: str) -> str:
    if token.startswith('"'):
        return "string"
    return "word" if token in ("true", "false", "null") else "number"
