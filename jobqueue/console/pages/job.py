"""One job: the sentence that explains it, its facts and options, its body, and what happened to it."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from typing import Any

from aiohttp import web

from jobqueue.cli import humanize
from jobqueue.cli.client import Answer, Refusal
from jobqueue.console import formatting
from jobqueue.console.pages import dead
from jobqueue.console.questions import Away
from jobqueue.console.visit import Visit, body_of, together

_ADDED_AS = ("key", "priority", "ttr", "tries", "ttl", "retention", "backoff", "headers", "tags")
_MOST_COPIED = 8 << 10  # bytes of a body in a command to copy
_MOST_EDITED = 256 << 10
ENDED = ("finished", "deleted")
_ACTS = {
    "delayed": ("run", "update", "delete"),
    "ready": ("update", "delete"),
    "reserved": ("release", "bury", "delete"),
    "dead": ("kick", "delete"),
}
"""The commands that a job in each state allows."""


async def show(visit: Visit) -> web.StreamResponse:
    """The job in the URL."""
    job_id = visit.text("id")
    # A page that refreshes itself keeps the body that it already shows.
    is_refresh = "HX-Request" in visit.request.headers
    is_folded = visit.place.options.hides_bodies and visit.choice("body", ("hidden", "shown")) == "hidden"
    with_body = not (is_folded or is_refresh)
    explained, record = await together(_explained(visit, job_id), _record(visit, job_id, with_body))
    if explained is None and record is None:
        raise Away("the service has not answered yet")
    job, body = (record.fields, body_of(record.raw)) if record else (None, None)
    return visit.page(
        "job",
        f"Job {job_id}",
        id=job_id,
        explained=explained,
        job=job,
        facts=_facts(explained),
        body=None if body is None or (job and job["state"] in ENDED and body == "null") else Body(body),
        is_folded=is_folded,
        as_add=_as_add(job, body),
        acts=_ACTS,
    )


async def _explained(visit: Visit, job_id: str) -> dict[str, Any] | None:
    """The answer to `explain`, or None if it is late, such as when `explain` waits for a journal. Raises Refusal."""
    try:
        return await visit.ask("explain", id=job_id)
    except Away:
        return None


async def _record(visit: Visit, job_id: str, with_body: bool) -> Answer | None:
    """The answer to `get`, or None if Redis has no record: only a journal may know the job. Raises Refusal, Away."""
    try:
        return (await visit.see("get", id=job_id, **({} if with_body else {"body": False}))).answer
    except Refusal as refusal:
        if refusal.answer.fields.get("code") == "NOT_FOUND":
            return None
        raise


_FACTS = {
    "shard": "shard",
    "bucket": "bucket",
    "timer": "timer held by",
    "late": "late by (s)",
    "behind": "due with it or before",
    "before": "jobs before it",
    "above": "of higher priorities",
    "waiting": "pops that wait",
    "limited": "kept back by",
    "newer": "died later",
    "max_dead": "dead letters kept",
}


def _facts(explained: Mapping[str, Any] | None) -> list[tuple[str, Any]]:
    """The facts behind the sentence, in addition to those in the record."""
    facts = explained["facts"] if explained else {}
    return [(words, facts[name]) for name, words in _FACTS.items() if facts.get(name) is not None]


class Body:
    """A body as a page shows it."""

    def __init__(self, text: str) -> None:
        self.bytes = len(text.encode())
        self.is_whole = self.bytes <= formatting.MOST_SHOWN
        self.tree = formatting.tree(text) if self.is_whole else None
        self.beginning = "" if self.is_whole else formatting.one_line(text[: formatting.MOST_SHOWN])
        self.edited = formatting.one_line(text) if self.bytes <= _MOST_EDITED else ""
        sealed = re.match(r'"jqe1\.([A-Za-z0-9_-]{1,64})\.', text)
        self.key = sealed[1] if sealed else ""


def _as_add(job: Mapping[str, Any] | None, body: str | None) -> dict[str, str] | None:
    """Commands to copy that would add the same job again, or None without a body that is short enough."""
    if job is None or body is None or len(body) > _MOST_COPIED:
        return None
    options = {name: job[name] for name in _ADDED_AS if job.get(name) not in (None, [], {})}
    start = json.dumps({"command": "add", "topic": job["topic"], "id": job["id"], **options})
    add = f'{start[:-1]}, "body": {formatting.one_line(body)}}}'
    return {"add": add, "curl": f"curl $JOBQUEUE_URL/command -d {shlex.quote(humanize.clean(add))}"}


async def download(visit: Visit) -> web.StreamResponse:
    """The body of a job as a file."""
    job_id = visit.text("id")
    body = body_of((await visit.see("get", id=job_id)).answer.raw)
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", job_id).strip(".-")[:100] or "body"
    return web.Response(body=(body or "null").encode(), headers=dead.download(f"{name}.json"))
