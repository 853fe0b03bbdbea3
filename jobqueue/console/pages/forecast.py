"""When jobs fall due, in the next hours to a month; by topic, compared with the highest delivery rate."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from aiohttp import web

from jobqueue.console.charts import bars
from jobqueue.console.visit import Visit, look_aside, together

_SPANS = {"day": (24, 600), "hours": (3, 60), "week": (168, 3600), "month": (744, 10_800)}
_DRAWN = 4  # topics that are drawn separately
_DAY_S, _PAST_STEP_S = 86_400, 600
_REFRESH_S = 10


async def show(visit: Visit) -> web.StreamResponse:
    """The forecast of one topic, or of all topics."""
    topic, period = visit.text("topic"), visit.choice("period", tuple(_SPANS))
    hours, step_s = _SPANS[period]
    of_topic = {"topic": topic} if topic else {}
    forecast, most = await together(visit.ask("forecast", hours=hours, **of_topic), _most_delivered(visit, topic))
    topics = {} if topic else await _by_topic(visit, forecast, hours)
    return visit.page(
        "forecast",
        f"Forecast of {topic}" if topic else "Forecast",
        topic=topic,
        period=period,
        periods=tuple(_SPANS),
        hours=hours,
        step_s=step_s,
        forecast=forecast,
        most_delivered=most,
        chart=bars.forecast(
            forecast["bins"], time.time(), hours, step_s, topics, None if most is None else most * step_s
        ),
        every_s=_REFRESH_S,
    )


async def _by_topic(visit: Visit, forecast: Mapping[str, Any], hours: int) -> dict[str, bars.Bins]:
    """The forecasts of the topics with the most jobs."""
    names = [each["topic"] for each in forecast["largest"][:_DRAWN]]
    found = await together(*(visit.ask("forecast", hours=hours, topic=name) for name in names))
    return {name: own["bins"] for name, own in zip(names, found, strict=True)}


async def _most_delivered(visit: Visit, topic: str) -> float | None:
    """The highest delivery rate of the last 24 hours (2 hours for one topic), in jobs per second over ten minutes; None
    if it is unknown, or nothing was delivered."""
    span_s = 7200 if topic else _DAY_S
    since = time.time() // _PAST_STEP_S * _PAST_STEP_S + _PAST_STEP_S - span_s
    past = await look_aside(visit, topic, since=since, step=_PAST_STEP_S)
    most = max((each["deliveries"] for each in past.found["bins"]), default=0) if past.found else 0
    return most / _PAST_STEP_S if most else None
