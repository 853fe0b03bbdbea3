"""One topic: its figures, its limits, when its jobs fall due, its workers, and what can be done to all its jobs."""

from __future__ import annotations

import time
from typing import Any

from aiohttp import web

from jobqueue.console.charts import bars
from jobqueue.console.pages import lateness
from jobqueue.console.pages.settings import in_force
from jobqueue.console.questions import Away
from jobqueue.console.visit import Visit, look_aside, together

_HOURS = 24
_PAST_S = lateness.HOURS_OF_TOPIC[-1] * 3600


async def show(visit: Visit) -> web.StreamResponse:
    """The topic in the URL."""
    topic = visit.text("name")
    figures, forecast, working, listed, settings, past = await together(
        visit.ask("stats", topic=topic),
        visit.ask("forecast", topic=topic, hours=_HOURS),
        visit.ask("workers", topic=topic),
        visit.ask("topics", pattern=topic),
        _settings(visit),
        look_aside(visit, topic, since=time.time() // 60 * 60 + 60 - _PAST_S),
    )
    return visit.page(
        "topic",
        f"Topic {topic}",
        topic=topic,
        figures=figures,
        chart=bars.forecast(forecast["bins"], time.time(), _HOURS, 1800),
        forecast=forecast,
        workers=working["workers"],
        limits=_limits(listed["topics"]),
        policy=in_force(settings, topic) if settings else [],
        virtual=settings["virtual_topics"].get(topic, []) if settings else [],
        past=past,
        parts=lateness.parts(past.found) if past.found else [],
        bounds=lateness.bounds(past.found) if past.found else [],
    )


async def _settings(visit: Visit) -> dict[str, Any] | None:
    """The settings of the service, or None if the token may not see them or they take too long."""
    try:
        return await visit.ask("settings") if visit.person.may("settings") else None
    except Away:
        return None


def _limits(listed: list[dict[str, Any]]) -> list[tuple[str, Any]]:
    """The limits of the topic from the service's settings, with their names in words."""
    words = {
        "max_pending": "most delayed and ready jobs",
        "max_dead": "most dead letters",
        "rate": "deliveries a second",
        "concurrency": "jobs reserved at a time",
    }
    return [(words[name], topic[name]) for topic in listed for name in words if name in topic]
