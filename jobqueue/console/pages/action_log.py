"""The log of actions, the newest first."""

from __future__ import annotations

from aiohttp import web

from jobqueue.console.visit import Visit

_COUNT = 100


async def show(visit: Visit) -> web.StreamResponse:
    """What everybody did, or one of them."""
    by, cursor = visit.text("by", 200), visit.text("cursor", 500)
    asked = {name: value for name, value in (("by", by), ("cursor", cursor)) if value}
    page = await visit.ask("actions", count=_COUNT, **asked)
    return visit.page("action_log", "Actions", actions=page["actions"], by=by, cursor=cursor, following=page["cursor"])
