"""Who polls which topics."""

from __future__ import annotations

from aiohttp import web

from jobqueue.console.visit import Visit


async def show(visit: Visit) -> web.StreamResponse:
    """The workers of one topic, or of all, sorted by name."""
    topic = visit.text("topic")
    answer = await visit.ask("workers", **({"topic": topic} if topic else {}))
    workers = sorted(answer["workers"], key=lambda worker: (worker["worker"], worker["topics"]))
    return visit.page("workers", "Workers", workers=workers, others=answer["others"], topic=topic)
