"""The first page: how many jobs exist, how many fall due in the next hour, and what needs attention."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from aiohttp import web

from jobqueue.console import formatting
from jobqueue.console.charts import bars, curves
from jobqueue.console.pages.jobs import STATES
from jobqueue.console.questions import Away
from jobqueue.console.visit import Visit, look_aside, together

_MOST_PAGES = 20  # of a hundred topics each; for more, `stats` is asked, which gets slower with each topic
_MOST_SHOWN = 10
_MOST_FINDINGS = 20
_LATELY_S = 300
_ON_TIME_S, _OBJECTIVE = 0.025, 0.999  # the objective "on time" of deploy/prometheus/rules.yaml
_GOING_ON = ("waiting", "running", "paused")


class OnTime(NamedTuple):
    """The share of jobs that were ready on time, and whether that is enough."""

    share: str
    is_met: bool


async def show(visit: Visit) -> web.StreamResponse:
    """Figures of all topics together, and the topics that wait, are paused, or have dead letters."""
    forecast, working, (pages, cursor), findings, past, lately, operations = await together(
        visit.ask("forecast", hours=1),
        visit.ask("workers"),
        visit.pages("topics", _MOST_PAGES),
        _findings(visit),
        look_aside(visit),
        look_aside(visit, since=time.time() // 60 * 60 + 60 - _LATELY_S),
        _operations(visit),
    )
    topics = [topic for page in pages for topic in page["topics"]]
    figures = _summed(topics) if cursor is None else await visit.ask("stats")
    return visit.page(
        "overview",
        "Overview",
        figures=figures,
        chart=bars.forecast(forecast["bins"], time.time(), 1, 60),
        due=forecast["total"],
        pollers=len(working["workers"]),
        parked=_parked(working),
        waiting=_most(topics, lambda topic: topic["oldest_ready_s"] or 0),
        dead=_most(topics, lambda topic: topic["counts"]["dead"]),
        paused=[topic for topic in topics if topic["paused"]],
        is_whole=cursor is None,
        findings=findings,
        most_findings=_MOST_FINDINGS,
        rates=curves.rates(past.found) if past.found else None,
        why_not=past.why_not,
        lately=_lately(lately.found) if lately.found else {},
        on_time=_on_time(lately.found) if lately.found else None,
        objective=f"{_ON_TIME_S * 1000:g} ms, objective {_OBJECTIVE * 100:g} %",
        operations=operations,
    )


def _summed(topics: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The counts of all topics together. The command `stats` returns them too, but to do so reads the due times of all
    jobs, which takes a second with a thousand topics."""
    counts = Counter[str](dict.fromkeys(STATES, 0))
    for topic in topics:
        counts.update(topic["counts"])
    ages = [topic["oldest_ready_s"] for topic in topics if topic["oldest_ready_s"] is not None]
    blocked = sum(topic.get("blocked", 0) for topic in topics)
    return {"counts": dict(counts), "blocked": blocked, "oldest_ready": max(ages, default=None)}


async def _operations(visit: Visit) -> list[Mapping[str, Any]]:
    """The unfinished operations, or none if the person may not see operations."""
    if not visit.person.may("operation"):
        return []
    found = (await visit.ask("operation", do="list"))["operations"]
    return [each for each in found if each["state"] in _GOING_ON]


async def _findings(visit: Visit) -> list[Mapping[str, Any]] | None:
    """What is wrong, or may go wrong, worst first; None if the service takes too long to check."""
    try:
        found = (await visit.ask("health"))["findings"]
    except Away:
        return None
    return sorted((each for each in found if each["level"] != "ok"), key=lambda each: str(each["level"]))


def _lately(found: Mapping[str, Any]) -> dict[str, str]:
    """How late jobs were ready and delivered: the median, and the limit that 99 of 100 did not exceed. Empty without
    jobs."""
    words = {"due_to_ready": "due to ready", "due_to_delivered": "due to delivered"}
    late = {words[kind]: found["total"][kind] for kind in words}
    return {
        word: f"{formatting.late(each['p50'])}, {formatting.late(each['p99'])}" for word, each in late.items() if each
    }


def _on_time(found: Mapping[str, Any]) -> OnTime | None:
    """The share of jobs that were ready on time; None without jobs."""
    late = found["total"]["due_to_ready"]
    if not late:
        return None
    share = sum(late["counts"][: found["bounds"].index(_ON_TIME_S) + 1]) / sum(late["counts"])
    return OnTime(f"{math.floor(share * 10_000) / 100:g} %", share >= _OBJECTIVE)  # 100 % means all jobs


def _parked(working: Mapping[str, Any]) -> int:
    """How many pops wait for a job."""
    own = [worker for worker in working["workers"] if worker["state"] == "parked"]
    return len(own) + int(working["others"].get("parked", 0))


def _most(topics: Iterable[Mapping[str, Any]], weight: Any) -> list[Mapping[str, Any]]:
    """The topics with the greatest weight, without those whose weight is 0."""
    return sorted((topic for topic in topics if weight(topic)), key=weight, reverse=True)[:_MOST_SHOWN]
