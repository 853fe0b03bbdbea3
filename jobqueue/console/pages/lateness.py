"""Lateness: how late jobs were ready and delivered, by minute, for one topic or all topics."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from aiohttp import web

from jobqueue.console import formatting
from jobqueue.console.charts.heatmap import Heatmap, heatmap
from jobqueue.console.visit import BadQuery, Visit, look_back

HOURS = (1, 3, 6, 12, 24, 48)
HOURS_OF_TOPIC = (1, 2)
"""As `HOURS`, for one topic, whose figures are kept for 2 hours at most."""
_MOST_S = HOURS[-1] * 3600
_MINUTE_S = 60
_BY_MINUTE_S = 24 * 3600  # the longest period shown by minute; the service would need a second for a longer one
_COARSE_S = 300
_EVERY_S, _SELDOM_S = 10, 60  # instances add figures every 10 s; for a long period, much is read and little is new
_SELDOM_FROM_S = 6 * 3600
_MOST_SLOWEST = 5
_KINDS = {
    "due_to_ready": ("From due to ready", "became ready"),
    "due_to_delivered": ("From due to delivered", "were delivered for the first time"),
}


class Period(NamedTuple):
    """From one whole minute to another, in unix seconds; `is_live`: True if the period ends now."""

    since: float
    until: float
    is_live: bool

    @property
    def span(self) -> float:
        return self.until - self.since

    @property
    def step(self) -> int:
        """The width of the bins to ask for, in seconds."""
        return _MINUTE_S if self.span <= _BY_MINUTE_S else _COARSE_S


class Part(NamedTuple):
    """The lateness of one kind: a title, a sentence about all of it, the chart, the slowest bins."""

    title: str
    summary: str
    map: Heatmap
    slowest: Sequence[Mapping[str, Any]]


async def show(visit: Visit) -> web.StreamResponse:
    """The lateness of the last hours, or of the period in the URL."""
    topic = visit.text("topic")
    period = _period(visit, HOURS_OF_TOPIC if topic else HOURS)
    past = await look_back(visit, topic, **_asked(period))
    return visit.page(
        "lateness",
        f"Lateness of {topic}" if topic else "Lateness",
        refresh=period.is_live,
        every_s=_EVERY_S if period.span < _SELDOM_FROM_S else _SELDOM_S,
        topic=topic,
        period=period,
        choices=HOURS_OF_TOPIC if topic else HOURS,
        now=time.time(),
        found=past.found,
        why_not=past.why_not,
        parts=parts(past.found) if past.found else [],
        bounds=bounds(past.found) if past.found else [],
    )


def _period(visit: Visit, choices: Sequence[int]) -> Period:
    """The period in the URL. Raises BadQuery."""
    hours = min(visit.whole("hours", 1, HOURS[-1], 1), choices[-1])
    since, until = visit.moment("since"), visit.moment("until")
    if since is None and until is None:
        end = _whole_minute(time.time()) + _MINUTE_S
        return Period(end - hours * 3600, end, is_live=True)
    begin = _whole_minute(until - hours * 3600 if since is None and until is not None else since or 0)
    end = begin + hours * 3600 if until is None else -(-until // _MINUTE_S) * _MINUTE_S
    if not _MINUTE_S <= end - begin <= _MOST_S:
        raise BadQuery("until", f"later than since, by at most {HOURS[-1]} hours")
    if begin >= time.time():
        raise BadQuery("since", "in the past")
    return Period(begin, end, is_live=False)


def _whole_minute(unix_s: float) -> float:
    return unix_s // _MINUTE_S * _MINUTE_S


def _asked(period: Period) -> dict[str, float]:
    """The fields of `figures` for a period. The last hour needs none, so that other pages share its answer."""
    step = {} if period.step == _MINUTE_S else {"step": period.step}
    if not period.is_live:
        return {"since": period.since, "until": period.until, **step}
    return {} if period.span == 3600 else {"since": period.since, **step}


def parts(found: Mapping[str, Any]) -> list[Part]:
    """Both kinds of lateness in an answer to `figures`."""
    return [
        Part(title, _summary(found, kind, verb), heatmap(found, kind), _slowest(found["bins"], kind))
        for kind, (title, verb) in _KINDS.items()
    ]


def _summary(found: Mapping[str, Any], kind: str, verb: str) -> str:
    """What the chart shows, in a sentence."""
    total = found["total"][kind]
    if not total:
        return f"No jobs {verb} in this time."
    number = sum(total["counts"])
    half, most = (formatting.late(total[share]) for share in ("p50", "p99"))
    more = " or more" if total["p99"] >= found["bounds"][-1] else ""
    return f"{number:,} jobs {verb}: half of them within {half} of their due time, 99 of 100 within {most}{more}."


def _slowest(bins: Sequence[Mapping[str, Any]], kind: str) -> Sequence[Mapping[str, Any]]:
    """The bins with the highest p99, each with the time when it began."""
    late = [{"begin": each["begin"], "jobs": sum(each[kind]["counts"]), **each[kind]} for each in bins if each[kind]]
    return sorted(late, key=lambda each: (-each["p99"], -each["p50"]))[:_MOST_SLOWEST]


def bounds(found: Mapping[str, Any]) -> list[str]:
    """The names of the buckets, the least lateness first."""
    ends = [formatting.late(bound) for bound in found["bounds"]]
    return [*(f"≤ {end}" for end in ends), f"> {ends[-1]}"]
