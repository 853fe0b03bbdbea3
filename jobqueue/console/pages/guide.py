"""What the words mean, and the keyboard's shortcuts."""

from __future__ import annotations

from aiohttp import web

from jobqueue.console.visit import Visit


async def show(visit: Visit) -> web.StreamResponse:
    """It asks the service nothing."""
    return visit.page("guide", "Help", refresh=False)
