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
    "ready": "in the order in which pops get them; the blocked ones are last",
    "reserved": "by the end of their leases",
    "dead": "in the order in which they died",
}
TIMES = {"delayed": "Due from", "reserved": "Lease ends from", "dead": "Died from"}
"""The states whose jobs are listed by time, and the label of the time to begin at in a form."""
_FILTERS = {"delayed": "due_from", "dead": "died_from"}
"""The name of that time in the filter of an operation."""
_ACTS = {"delayed": ("run", "delete"), "ready": ("delete",), "reserved": ("delete",), "dead": ("kick", "delete")}


async def show(visit: Visit) -> web.StreamResponse:
    """A page of jobs, without their bodies: from the start, from a time on, or after another page."""
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
    """The filter of an operation on all jobs of a list, or None if filters lack its time, like the end of a lease."""
    if begin is None:
        return {"topic": topic, "state": state}
    return {"topic": topic, "state": state, _FILTERS[state]: rfc3339(begin)} if state in _FILTERS else None


def place_of(cursor: str, begin: float | None) -> dict[str, Any]:
    """The fields of `peek` for where a listing continues, and for the time (unix seconds) from which it lists jobs."""
    return ({"cursor": cursor} if cursor else {}) | ({} if begin is None else {"from": begin})
