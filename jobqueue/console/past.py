"""The past: figures as pages ask for them, and why there are none where that is no fault of who asks."""

from __future__ import annotations

from typing import Any, NamedTuple

from jobqueue.cli.client import Refusal
from jobqueue.console.questions import Away
from jobqueue.console.visit import Visit


class Past(NamedTuple):
    """What `figures` answered; or, in sentences, why there is nothing to show, and what would fill it."""

    found: dict[str, Any] | None
    why_not: str


async def look_back(visit: Visit, topic: str = "", **period: float) -> Past:
    """The figures of a topic, or of all, by the minute: of the last hour, or from `since` until `until` (unix seconds).
    Raises Away, and Refusal for what is wrong with the question."""
    of_topic = {"topic": topic} if topic else {}
    try:
        return Past(await visit.ask("figures", **of_topic, **period), "")
    except Refusal as refusal:
        return Past(None, _why_not(refusal))


async def look_aside(visit: Visit, topic: str = "", **period: float) -> Past:
    """As `look_back`, for a page about something else, which is shown without figures where they take too long."""
    try:
        return await look_back(visit, topic, **period)
    except Away as error:
        return Past(None, str(error))


def _why_not(refusal: Refusal) -> str:
    """Raises the refusal where the question is wrong, or the token may not ask it."""
    fields = refusal.answer.fields
    code, field = fields.get("code"), fields.get("field")
    if code == "FORBIDDEN" and "right" not in fields and "topic" not in fields:
        return "Your token reaches some topics only: name one of them to see its figures."
    if code != "BAD_FIELD" or field not in (None, "since", "topic"):
        raise refusal
    sentence = str(fields.get("error"))
    more = " With history_hours = 48, the last two days are shown here." if field is None else ""
    return f"{sentence[:1].upper()}{sentence[1:]}.{more}"
