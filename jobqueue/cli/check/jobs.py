"""The part of `jobqueue check` that is about jobs: why some may be late or dead, and what to type next.

It looks twice, two seconds apart, to see what grows. It asks the service like any other client, and changes nothing.
"""

from __future__ import annotations

import asyncio
import shlex
import time
from collections.abc import Iterator
from typing import Any

from jobqueue.cli import humanize
from jobqueue.cli.ask import topic_pages
from jobqueue.cli.check.findings import Finding, Findings
from jobqueue.cli.client import Client, Refusal, Unreachable

Topic = dict[str, Any]

_LOOK_S = 2.0  # between the two looks
_LATE_S = 5.0  # for which a job may be ready before it is worth a line
_ALONE_S = 1.0  # the same, where nobody polls
_NEARLY = 0.9  # of a limit
_MOST = 20  # topics whose dead letters are looked at


async def check_jobs(client: Client) -> Findings:
    """All findings about the jobs of a service."""
    try:
        async with client:
            async for finding in _looked(client):
                yield finding
    except (Refusal, Unreachable) as error:
        yield Finding("bad", "jobs", str(error))


async def _looked(client: Client) -> Findings:
    before = {topic["topic"]: topic for topic in await _topics(client)}
    begun = time.monotonic()
    await asyncio.sleep(_LOOK_S)
    topics = sorted(await _topics(client), key=lambda each: -(each["oldest_ready_s"] or 0))
    polling = (await client.ask("workers")).fields
    passed = time.monotonic() - begun
    found = False
    for topic in topics:
        for sentence in _of_topic(topic, before.get(topic["topic"]), polling, passed):
            found = True
            yield Finding("warn", f"topic {topic['topic']}", sentence)
    deadly = [topic["topic"] for topic in topics if topic["counts"]["dead"]]
    for name in deadly[:_MOST]:
        yield await _deaths(client, name)
    if len(deadly) > _MOST:
        yield Finding("warn", "topics", f"more topics with dead letters: {len(deadly) - _MOST}: jobqueue topics")
    if not (found or deadly):
        yield Finding("ok", "jobs", f"topics: {len(topics)}; none waits for workers, is full, or has dead letters")


async def _topics(client: Client) -> list[Topic]:
    pages = [page.fields["topics"] async for page in topic_pages(client, {})]
    return [topic for page in pages for topic in page]


def _of_topic(topic: Topic, before: Topic | None, polling: Topic, passed_s: float) -> Iterator[str]:
    name, ready, oldest = shlex.quote(topic["topic"]), topic["counts"]["ready"], topic["oldest_ready_s"]
    waiting = f"{humanize.jobs(ready)} ready" + ("" if oldest is None else f", the oldest for {_span(oldest)}")
    if topic["paused"]:
        until = topic["paused_until"]
        end = f"until {humanize.when(until)}" if until else "until it is resumed"
        if ready:
            yield f"paused {end}; {waiting}: jobqueue resume {name}"
    elif ready and not topic["workers"]:
        if oldest is None or oldest >= _ALONE_S:
            nobody = "none of the listed workers polls it" if polling["others"]["parked"] else "no worker polls it"
            yield f"{nobody}; {waiting}. Start its workers; who polls: jobqueue workers {name}"
    elif ready and oldest is not None and oldest >= _LATE_S:
        yield f"{waiting}; {_at_work(topic, polling['workers'])}: jobqueue workers {name}"
    grown = ready - before["counts"]["ready"] if before else 0
    if grown > 0 and (oldest or 0) >= _ALONE_S:
        yield f"the backlog grows, by {grown / passed_s:,.1f} ready jobs a second: jobqueue stats {name} --watch"
    yield from _limits(topic, name)


def _at_work(topic: Topic, workers: list[Topic]) -> str:
    own = [worker for worker in workers if topic["topic"] in worker["topics"]]
    in_hand = humanize.jobs(sum(worker["jobs"] for worker in own))
    parked = sum(worker["state"] == "parked" for worker in own)
    return f"workers: {topic['workers']}, waiting for a job: {parked}, with {in_hand} in hand"


def _limits(topic: Topic, name: str) -> Iterator[str]:
    counts, most = topic["counts"], topic.get("max_pending", 0)
    pending = counts["delayed"] + counts["ready"]
    if most and pending >= _NEARLY * most:
        yield (
            f"{pending:,} of at most {most:,} pending jobs (max_pending); "
            f"beyond that add answers TOPIC_FULL: jobqueue stats {name}"
        )
    if topic.get("max_dead") and counts["dead"] >= topic["max_dead"]:
        yield (
            f"as many dead letters as it may have (max_dead {topic['max_dead']:,}); "
            f"the oldest are being deleted: jobqueue peek {name} --state dead"
        )


async def _deaths(client: Client, topic: str) -> Finding:
    figures = (await client.ask("stats", topic=topic)).fields
    number, newest = figures["counts"]["dead"], figures.get("newest_dead")
    sentence = "1 dead letter" if number == 1 else f"{number:,} dead letters"
    death = humanize.death(newest) if newest else ""
    if newest:
        sentence += f"; the newest died {humanize.ahead(newest['dead_since'])}: {death}"
    return Finding("warn", f"topic {topic}", f"{sentence}: jobqueue peek {shlex.quote(topic)} --state dead", death)


def _span(seconds: float) -> str:
    return humanize.span(round(seconds, 1))
