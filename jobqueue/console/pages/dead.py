"""Dead letters: the topics that have any; and those of one topic by cause and reason, to kick, delete or export."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import msgspec
from aiohttp import web

from jobqueue.cli.client import Refusal, Unreachable
from jobqueue.console.formatting import rfc3339
from jobqueue.console.pages.jobs import place_of
from jobqueue.console.visit import Visit

CAUSES = ("", "tries", "ttl", "buried")
_MOST_PAGES = 10
_LOOKED = 10  # requests of a hundred dead letters each that a page examines
_MOST_SHOWN = 200
_MOST_GROUPS = 12
_EXPORTED = 100  # dead letters per request


async def show(visit: Visit) -> web.StreamResponse:
    """The dead letters of the topic in the URL, or the topics that have any."""
    topic = visit.text("topic")
    if not topic:
        return await _topics(visit)
    cause, reason, prefix = visit.choice("cause", CAUSES), visit.text("reason", 1000), visit.text("prefix")
    cursor, begin = visit.text("cursor", 500), visit.moment("from")
    pages, following = await visit.pages(
        "peek", _LOOKED, topic=topic, state="dead", body=False, **place_of(cursor, begin)
    )
    looked = [job for page in pages for job in page["jobs"]]
    found = [job for job in looked if matches(job, cause, reason, prefix)]
    groups = Counter((job.get("cause", ""), job.get("reason") or "") for job in looked)
    return visit.page(
        "dead_letters",
        f"Dead letters of {topic}",
        topic=topic,
        cause=cause,
        causes=CAUSES,
        reason=reason,
        prefix=prefix,
        begin=begin,
        query={
            **{"topic": topic, "cause": cause, "reason": reason, "prefix": prefix},
            "from": None if begin is None else rfc3339(begin),
        },
        groups=groups.most_common(_MOST_GROUPS),
        looked=len(looked),
        matching=len(found),
        found=found[:_MOST_SHOWN],
        cursor=cursor,
        following=following,
    )


async def _topics(visit: Visit) -> web.StreamResponse:
    pages, cursor = await visit.pages("topics", _MOST_PAGES)
    topics = [topic for page in pages for topic in page["topics"] if topic["counts"]["dead"]]
    topics.sort(key=lambda topic: (-topic["counts"]["dead"], topic["topic"]))
    return visit.page("dead_topics", "Dead letters", topics=topics, is_whole=cursor is None)


def matches(job: Mapping[str, Any], cause: str, reason: str, prefix: str) -> bool:
    """Whether a dead letter matches the filters. `reason` is plain text, and its case is ignored."""
    return (
        cause in ("", job.get("cause"))
        and reason.lower() in (job.get("reason") or "").lower()
        and str(job["id"]).startswith(prefix)
    )


class _Page(msgspec.Struct):
    jobs: list[msgspec.Raw]
    cursor: str | None


async def export(visit: Visit) -> web.StreamResponse:
    """All matching dead letters as lines of JSON, each exactly as received, with its body."""
    topic = visit.text("topic")
    cause, reason, prefix = visit.choice("cause", CAUSES), visit.text("reason", 1000), visit.text("prefix")
    cursor, begin = "", visit.moment("from")
    response: web.StreamResponse | None = None
    while response is None or cursor:
        try:
            answer = await visit.person.client.ask(
                "peek", topic=topic, state="dead", count=_EXPORTED, body=True, **place_of(cursor, begin)
            )
        except (Refusal, Unreachable):
            if response is None:
                raise
            _cut_off(visit.request)
            return response
        if response is None:
            response = web.StreamResponse(headers=download("dead-letters.jsonl"))
            await response.prepare(visit.request)
        page = msgspec.json.decode(answer.raw, type=_Page)
        chosen = [
            bytes(line)
            for line, job in zip(page.jobs, answer.fields["jobs"], strict=True)
            if matches(job, cause, reason, prefix)
        ]
        await response.write(b"".join(_line(line) for line in chosen))
        cursor = page.cursor or ""
    await response.write_eof()
    return response


def _cut_off(request: web.Request) -> None:
    """Abort a response midway, so that the browser does not treat it as complete."""
    if request.transport:
        request.transport.close()


def _line(job: bytes) -> bytes:
    """A job on one line. Line ends occur only between the tokens of its body, where a space means the same."""
    return job.replace(b"\r", b" ").replace(b"\n", b" ") + b"\n"


def download(name: str) -> dict[str, str]:
    """The headers of a response that a browser saves to a file and never shows."""
    return {
        "Content-Type": "application/octet-stream",
        "Content-Disposition": f'attachment; filename="{name}"',
        "Content-Security-Policy": "sandbox; default-src 'none'",
    }
