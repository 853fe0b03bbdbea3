"""The meaning of the terms, and the keyboard shortcuts."""

from __future__ import annotations

from aiohttp import web

from jobqueue.console.visit import Visit


async def show(visit: Visit) -> web.StreamResponse:
    """The page of help, which asks the service nothing."""
    return visit.page("guide", "Help", refresh=False)
