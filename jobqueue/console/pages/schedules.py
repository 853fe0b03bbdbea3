"""The schedules with their next times."""

from __future__ import annotations

import math

from aiohttp import web

from jobqueue.console.pages.topics import as_pattern
from jobqueue.console.visit import Visit


async def show(visit: Visit) -> web.StreamResponse:
    """Those whose names match; the one that comes next is on top of its page."""
    pattern, cursor = visit.text("pattern"), visit.text("cursor", 500)
    asked = {"pattern": as_pattern(pattern)} if pattern else {}
    page = await visit.ask("schedules", body=False, **asked, **({"cursor": cursor} if cursor else {}))
    found = sorted(page["schedules"], key=lambda each: (each["next"] or [math.inf], each["name"]))
    return visit.page(
        "schedules", "Schedules", schedules=found, pattern=pattern, cursor=cursor, following=page["cursor"]
    )
