"""Dead letters: by topic; and of one topic by cause and reason, to be kicked, deleted or exported."""

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
_LOOKED = 1000  # dead letters that a page looks at
_MOST_SHOWN = 200
_MOST_GROUPS = 12
_EXPORTED = 100  # a request


async def show(visit: Visit) -> web.StreamResponse:
    """Those of the topic that the address names, or the topics that have any."""
    topic = visit.text("topic")
    if not topic:
        return await _topics(visit)
    cause, reason, prefix = visit.choice("cause", CAUSES), visit.text("reason", 1000), visit.text("prefix")
    cursor, begin = visit.text("cursor", 500), visit.moment("from")
    page = await visit.ask("peek", topic=topic, state="dead", count=_LOOKED, body=False, **place_of(cursor, begin))
    found = [job for job in page["jobs"] if matches(job, cause, reason, prefix)]
    groups = Counter((job.get("cause", ""), job.get("reason") or "") for job in page["jobs"])
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
        looked=len(page["jobs"]),
        matching=len(found),
        found=found[:_MOST_SHOWN],
        cursor=cursor,
        following=page["cursor"],
    )


async def _topics(visit: Visit) -> web.StreamResponse:
    pages, cursor = await visit.pages("topics", _MOST_PAGES)
    topics = [topic for page in pages for topic in page["topics"] if topic["counts"]["dead"]]
    topics.sort(key=lambda topic: (-topic["counts"]["dead"], topic["topic"]))
    return visit.page("dead_topics", "Dead letters", topics=topics, is_whole=cursor is None)


def matches(job: Mapping[str, Any], cause: str, reason: str, prefix: str) -> bool:
    """Whether a dead letter is one that was asked for. The text of a reason is looked for as it is, in any case."""
    return (
        cause in ("", job.get("cause"))
        and reason.lower() in (job.get("reason") or "").lower()
        and str(job["id"]).startswith(prefix)
    )


class _Page(msgspec.Struct):
    jobs: list[msgspec.Raw]
    cursor: str | None


async def export(visit: Visit) -> web.StreamResponse:
    """All of them as lines of JSON, each as the service gave it, body included."""
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
    """End an answer in its middle, so that the browser does not take it for whole."""
    if request.transport:
        request.transport.close()


def _line(job: bytes) -> bytes:
    """Line ends stand between the tokens of a body only; there a space means the same."""
    return job.replace(b"\r", b" ").replace(b"\n", b" ") + b"\n"


def download(name: str) -> dict[str, str]:
    """The headers of what a browser keeps in a file, and never shows."""
    return {
        "Content-Type": "application/octet-stream",
        "Content-Disposition": f'attachment; filename="{name}"',
        "Content-Security-Policy": "sandbox; default-src 'none'",
    }
