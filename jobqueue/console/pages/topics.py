"""The topics with their counts; and the schedules with their next times."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from aiohttp import web

from jobqueue.console.charts.curves import Spark, spark
from jobqueue.console.visit import Past, Visit, look_aside

_MOST_PAGES = 2
_MOST_SPARKS = 50
_SPARK_S = 1800
_SPARKS_WITHIN_S = 0.3
_SPARKS_AT_ONCE = 4  # fifty requests at once would delay everybody else's by some milliseconds


_MOST_FIRST: dict[str, Callable[[Mapping[str, Any]], float]] = {
    "delayed": lambda topic: topic["counts"]["delayed"],
    "ready": lambda topic: topic["counts"]["ready"],
    "reserved": lambda topic: topic["counts"]["reserved"],
    "dead": lambda topic: topic["counts"]["dead"],
    "oldest ready": lambda topic: topic["oldest_ready_s"] or 0,
    "workers": lambda topic: topic["workers"],
}
"""The orders of topics other than by name: each is the highest number first."""


async def show(visit: Visit) -> web.StreamResponse:
    """Topics whose names match, sorted within the page: by name, or by a number with the highest first."""
    pattern, cursor = visit.text("pattern"), visit.text("cursor", 500)
    asked = {"pattern": as_pattern(pattern)} if pattern else {}
    pages, following = await visit.pages("topics", _MOST_PAGES, **asked, **({"cursor": cursor} if cursor else {}))
    order = visit.choice("order", ("topic", *_MOST_FIRST))
    topics = sorted((topic for page in pages for topic in page["topics"]), key=lambda topic: str(topic["topic"]))
    if order in _MOST_FIRST:
        topics.sort(key=_MOST_FIRST[order], reverse=True)
    return visit.page(
        "topics",
        "Topics",
        topics=topics,
        sparks=await _sparks(visit, [topic["topic"] for topic in topics[:_MOST_SPARKS]]),
        order=order,
        pattern=pattern,
        cursor=cursor,
        following=following,
    )


async def _sparks(visit: Visit, topics: Sequence[str]) -> dict[str, Spark]:
    """Adds and deliveries of the last half hour, for topics whose figures arrive in time. The next request gets the
    others: a question continues even if nobody waits for it."""
    since, turns = time.time() // 60 * 60 + 60 - _SPARK_S, asyncio.Semaphore(_SPARKS_AT_ONCE)

    async def figures(topic: str) -> Past:
        async with turns:
            return await look_aside(visit, topic, since=since)

    looks = {topic: asyncio.create_task(figures(topic)) for topic in topics}
    if looks:
        await asyncio.wait(looks.values(), timeout=_SPARKS_WITHIN_S)
    sparks = {}
    for topic, look in looks.items():
        if not look.done():
            look.cancel()
        elif look.exception() is None and (found := look.result().found) and found["bins"]:
            sparks[topic] = spark(found)
    return sparks


def as_pattern(typed: str) -> str:
    """The pattern for typed text, which is usually the start of a name."""
    return typed if "*" in typed or "?" in typed else f"{typed}*"


async def show_schedules(visit: Visit) -> web.StreamResponse:
    """Schedules whose names match; within the page, the next one to run is first."""
    pattern, cursor = visit.text("pattern"), visit.text("cursor", 500)
    asked = {"pattern": as_pattern(pattern)} if pattern else {}
    page = await visit.ask("schedules", body=False, **asked, **({"cursor": cursor} if cursor else {}))
    found = sorted(page["schedules"], key=lambda each: (each["next"] or [math.inf], each["name"]))
    return visit.page(
        "schedules", "Schedules", schedules=found, pattern=pattern, cursor=cursor, following=page["cursor"]
    )
