"""Finds a job, or a topic, by its exact name."""

from __future__ import annotations

from aiohttp import web

from jobqueue.cli.client import Refusal
from jobqueue.console.visit import Visit, together


async def show(visit: Visit) -> web.StreamResponse:
    """Redirect to the job if it exists, else to the topic if it exists, else say that neither exists."""
    typed = visit.text("q")
    if typed:
        job, topic = await together(_is_job(visit, typed), _is_topic(visit, typed))
        links = visit.place.links
        if job:
            raise web.HTTPSeeOther(links.to("job", id=typed))
        if topic:
            raise web.HTTPSeeOther(links.to("topic", name=typed))
    return visit.page("find", "Find", typed=typed, refresh=False)


async def _is_job(visit: Visit, job_id: str) -> bool:
    return await _is_known(visit, "get", id=job_id, body=False)


async def _is_topic(visit: Visit, topic: str) -> bool:
    return await _is_known(visit, "stats", topic=topic)


async def _is_known(visit: Visit, command: str, **fields: object) -> bool:
    """Whether the job or topic exists. An invalid or forbidden name counts as unknown."""
    try:
        return bool((await visit.ask(command, **fields)).get("known", True))
    except Refusal as refusal:
        if refusal.answer.fields.get("code") in ("NOT_FOUND", "BAD_FIELD", "FORBIDDEN"):
            return False
        raise
