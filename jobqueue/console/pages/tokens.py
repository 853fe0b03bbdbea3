"""The tokens: what each may do and until when. Never a secret."""

from __future__ import annotations

from aiohttp import web

from jobqueue.console.visit import Visit


async def show(visit: Visit) -> web.StreamResponse:
    """All that the person's own token lets them see, sorted by name; an open service has none."""
    tokens = [] if visit.person.is_open else (await visit.ask("token", action="list"))["tokens"]
    order = {"live": 0, "expired": 1, "revoked": 2}
    listed = sorted(tokens, key=lambda token: (order.get(token["state"], 3), token["name"]))
    return visit.page("tokens", "Tokens", tokens=listed, refresh=False)
