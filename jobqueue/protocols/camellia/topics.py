"""Topics as camellia's clients see them: how many messages wait, and for how long."""

from __future__ import annotations

from typing import Any

from buckets import Stats
from buckets.topics import RANGES

Shown = dict[str, Any]

_FIRST = "sizeOf0To1min"
_SIZES = (
    _FIRST,
    "sizeOf1minTo10min",
    "sizeOf10minTo30min",
    "sizeOf30minTo1hour",
    "sizeOf1hourTo6hour",
    "sizeOf6hourTo1day",
    "sizeOf1dayTo7day",
    "sizeOf7dayTo30day",
    "sizeOf30dayToInfinite",
)


def shown(topic: str, figures: Stats) -> Shown:
    """A topic with its figures."""
    counts = figures.counts
    sizes = {size: figures.due.get(name, 0) for size, (name, _) in zip(_SIZES, RANGES, strict=True)}
    sizes[_FIRST] = max(sizes[_FIRST] - counts["ready"], 0)  # due ones count there
    return {
        "topic": topic,
        "waitingQueueSize": counts["delayed"],
        "waitingQueueInfo": sizes,
        "readyQueueSize": counts["ready"],
        "ackQueueSize": counts["reserved"],
    }


def rows(topics: list[Shown]) -> tuple[list[Shown], list[Shown]]:
    """The sizes, and the ranges of what waits, in lists of their own."""
    sizes = ("topic", "waitingQueueSize", "ackQueueSize", "readyQueueSize")
    return (
        [{name: topic[name] for name in sizes} for topic in topics],
        [{**topic["waitingQueueInfo"], "topic": topic["topic"]} for topic in topics],
    )
