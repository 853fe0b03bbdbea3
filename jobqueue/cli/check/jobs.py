"""The part of `jobqueue check` that is about jobs: it asks the service like any other client, and changes nothing.

It looks twice, two seconds apart, to see what grows.
"""

from __future__ import annotations

import asyncio
import time

from jobqueue.cli.ask import listing_pages
from jobqueue.cli.client import Client, Refusal, Unreachable
from jobqueue.health import jobs
from jobqueue.health.findings import Finding, Findings
from jobqueue.health.jobs import Fields, Look

_LOOK_S = 2.0  # between the two looks


async def check_jobs(client: Client, *, judges_schedules: bool) -> Findings:
    """All findings about the jobs of a service, and about its schedules, by the time of this host."""
    try:
        async with client:
            async for finding in _looked(client, judges_schedules):
                yield finding
    except (Refusal, Unreachable) as error:
        yield Finding("bad", "jobs", str(error))


async def _looked(client: Client, judges_schedules: bool) -> Findings:
    before = jobs.ready_jobs(await _listed(client, "topics"))
    begun = time.monotonic()
    await asyncio.sleep(_LOOK_S)
    look = Look(await _listed(client, "topics"), (await client.ask("workers")).fields)
    passed_s = time.monotonic() - begun
    schedules = await _listed(client, "schedules", body=False) if judges_schedules else []
    late = {
        each["name"]: each["next"][0]
        for each in schedules
        if each["next"] and each["next"][0] < time.time() - jobs.SCHEDULE_LATE_S
    }
    found = [*jobs.judge_topics(look, before, passed_s), *jobs.judge_schedules(late)]
    for finding in found:
        yield finding
    deadly = jobs.deadly(look)
    for name in deadly[: jobs.MOST_DEADLY]:
        figures = (await client.ask("stats", topic=name)).fields
        yield jobs.deaths(name, figures["counts"]["dead"], figures.get("newest_dead"))
    if len(deadly) > jobs.MOST_DEADLY:
        yield jobs.more_deadly(len(deadly) - jobs.MOST_DEADLY)
    if not (found or deadly):
        yield jobs.no_trouble(look)


async def _listed(client: Client, name: str, **fields: object) -> list[Fields]:
    """All rows of a listing."""
    pages = [page.fields[name] async for page in listing_pages(client, name, fields)]
    return [row for page in pages for row in page]
