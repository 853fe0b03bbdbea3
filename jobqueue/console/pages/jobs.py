"""The jobs of a topic in one state, a page at a time."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from jobqueue.console.formatting import rfc3339
from jobqueue.console.visit import Visit

COUNT = 100
STATES = ("delayed", "ready", "reserved", "dead")
_ORDERS = {
    "delayed": "by due time",
    "ready": "in the order in which pops get them",
    "reserved": "by the end of their leases",
    "dead": "in the order in which they died",
}
TIMES = {"delayed": "Due from", "reserved": "Lease ends from", "dead": "Died from"}
"""The states whose jobs are listed by time, and what a form calls the time to begin at."""
_FILTERS = {"delayed": "due_from", "dead": "died_from"}
"""What the filter of an operation calls that time."""
_ACTS = {"delayed": ("run", "delete"), "ready": ("delete",), "reserved": ("delete",), "dead": ("kick", "delete")}


async def show(visit: Visit) -> web.StreamResponse:
    """A page of jobs, without their bodies: from the start, from a time on, or behind another page."""
    topic, state, cursor = visit.text("topic"), visit.choice("state", STATES), visit.text("cursor", 500)
    begin = visit.moment("from")
    page = await visit.ask("peek", topic=topic, state=state, count=COUNT, body=False, **place_of(cursor, begin))
    return visit.page(
        "jobs",
        f"{state.capitalize()} jobs of {topic}",
        topic=topic,
        state=state,
        states=STATES,
        order=_ORDERS[state],
        acts=_ACTS[state],
        times=TIMES,
        begin=begin,
        planned=_planned(topic, state, begin),
        found=page["jobs"],
        known=page.get("known", True),
        cursor=cursor,
        following=page["cursor"],
    )


def _planned(topic: str, state: str, begin: float | None) -> dict[str, str] | None:
    """The filter of an operation on all that a list has; None: operations have none for the ends of leases."""
    if begin is None:
        return {"topic": topic, "state": state}
    return {"topic": topic, "state": state, _FILTERS[state]: rfc3339(begin)} if state in _FILTERS else None


def place_of(cursor: str, begin: float | None) -> dict[str, Any]:
    """Where a walk goes on, and the time (unix seconds) from which on it lists jobs, as fields of `peek`."""
    return ({"cursor": cursor} if cursor else {}) | ({} if begin is None else {"from": begin})
