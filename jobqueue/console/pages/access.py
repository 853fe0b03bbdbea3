"""The tokens: what each may do and until when, never a secret. Also the log of actions, newest first."""

from __future__ import annotations

from aiohttp import web

from jobqueue.console.visit import Visit


async def show_tokens(visit: Visit) -> web.StreamResponse:
    """All tokens that the person's own token may see, sorted by state and name; an open service has none."""
    tokens = [] if visit.person.is_open else (await visit.ask("token", action="list"))["tokens"]
    order = {"live": 0, "expired": 1, "revoked": 2}
    listed = sorted(tokens, key=lambda token: (order.get(token["state"], 3), token["name"]))
    return visit.page("tokens", "Tokens", tokens=listed, refresh=False)


_COUNT = 100


async def show_actions(visit: Visit) -> web.StreamResponse:
    """The actions of everybody, or of one person."""
    by, cursor = visit.text("by", 200), visit.text("cursor", 500)
    asked = {name: value for name, value in (("by", by), ("cursor", cursor)) if value}
    page = await visit.ask("actions", count=_COUNT, **asked)
    return visit.page("action_log", "Actions", actions=page["actions"], by=by, cursor=cursor, following=page["cursor"])
