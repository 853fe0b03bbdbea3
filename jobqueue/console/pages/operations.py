"""Operations: the newest ones, the form that plans an operation, and the page of one operation."""

from __future__ import annotations

from aiohttp import web

from jobqueue.cli.client import Refusal
from jobqueue.console.pages.dead import CAUSES
from jobqueue.console.pages.jobs import STATES
from jobqueue.console.visit import Visit

KINDS = ("kick", "delete", "run", "reschedule")
RIGHTS = {"reschedule": "update"}
"""The command whose right a kind needs, if the command has a different name."""
ANY_STATE = ("", *STATES)
TEXTS = ("topic", "prefix", "reason", "tag")
TIMES = ("due_from", "due_to", "died_from", "died_to", "created_from", "created_to")
TYPED_ABOVE = 1000
"""Above this many jobs, the person who starts a plan must type the number of jobs that they expect."""


async def show(visit: Visit) -> web.StreamResponse:
    """The newest operations. Values in the URL are filled into the form."""
    filled = {name: visit.text(name) for name in (*TEXTS, *TIMES)}
    filled |= {"kind": visit.choice("kind", KINDS), "state": visit.choice("state", ANY_STATE)}
    filled |= {"cause": visit.choice("cause", CAUSES)}
    found = (await visit.ask("operation", do="list"))["operations"]
    return visit.page(
        "operations",
        "Operations",
        operations=found,
        filled=filled,
        kinds=[kind for kind in KINDS if visit.person.may(RIGHTS.get(kind, kind))],
        states=ANY_STATE,
        causes=CAUSES,
        times=TIMES,
    )


async def one(visit: Visit) -> web.StreamResponse:
    """The operation in the URL. Raises HTTPNotFound."""
    try:
        found = await visit.ask("operation", do="get", operation=visit.text("id"))
    except Refusal as refusal:
        if refusal.answer.fields.get("code") in ("NOT_FOUND", "BAD_FIELD"):
            raise web.HTTPNotFound(reason="There is no such operation. A plan is kept for 15 minutes.") from None
        raise
    title = f"{found['kind'].capitalize()} of {_in_short(found)}"
    return visit.page("operation", title, operation=found, typed_above=TYPED_ABOVE)


def _in_short(operation: dict[str, object]) -> str:
    """The jobs of an operation, in a few words."""
    wanted = operation["filter"]
    assert isinstance(wanted, dict)
    return f"jobs of {wanted['topic']}" if "topic" in wanted else f"ids that begin with {wanted.get('prefix', '')}"
