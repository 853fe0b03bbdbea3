"""Topics as camellia's clients see them: how many messages wait, and for how long."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

from buckets import Stats
from buckets.topics.topics import RANGES
from jobqueue.commands.answers import Answer
from jobqueue.protocols.camellia.space import Space
from jobqueue.schema import inner

Shown = dict[str, Any]
Ask = Callable[[inner.Stats], Awaitable[Answer]]

_SIZES = (
    "sizeOf0To1min",
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
    sizes = {size: figures.due[name] for size, (name, _) in zip(_SIZES, RANGES, strict=True)}
    return {
        "topic": topic,
        "waitingQueueSize": counts["delayed"],
        "waitingQueueInfo": sizes,
        "readyQueueSize": counts["ready"],
        "ackQueueSize": counts["reserved"],
    }


class Failure(NamedTuple):
    """Why figures could not be read."""

    answer: Answer


async def read(ask: Ask, space: Space) -> dict[str, Stats] | Failure:
    """The figures of each topic below a prefix."""
    answer = await ask(inner.Stats(within=space.prefix, each=True))
    if not answer["success"]:
        return Failure(answer)
    return {name: figures for name, figures in answer["topics"].items() if name != space.prefix}


def listed(figures: Mapping[str, Stats], space: Space) -> list[Shown]:
    """Topics with their figures."""
    return [shown(space.their_topic(topic), each) for topic, each in figures.items()]


def rows(topics: list[Shown]) -> tuple[list[Shown], list[Shown]]:
    """The sizes, and the ranges of what waits, in lists of their own."""
    sizes = ("topic", "waitingQueueSize", "ackQueueSize", "readyQueueSize")
    return (
        [{name: topic[name] for name in sizes} for topic in topics],
        [{**topic["waitingQueueInfo"], "topic": topic["topic"]} for topic in topics],
    )
