"""Figures over time: the past of the service, in bins, and its forecast.

The forecast counts the delayed jobs that fall due, and the jobs that schedules will add.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import NamedTuple

from buckets import Bin, Figures, Forecast, Pollers, Topics, read_forecast
from buckets.topics.figures import ALL, MINUTE_MS
from jobqueue.engine.new_jobs import Policies
from jobqueue.engine.schedules.scheduling import Scheduling
from jobqueue.errors import BadField, Forbidden
from jobqueue.metrics import history
from jobqueue.metrics.process import LATENESS_S
from jobqueue.schema import fields, params

_SPAN_MINUTES = 60  # unless the command says otherwise
_STEP_S = 60
_BINS_AT_ONCE = 20  # bins, between two rests


class Lateness(NamedTuple):
    """How late jobs were: how many in each bucket of LATENESS_S and beyond, the median, and the 99th percentile, in
    s."""

    counts: Sequence[int]
    p50: float
    p99: float


@dataclass(slots=True)
class Happened:
    """What happened in a span of time that begins at `begin` (ms since the epoch)."""

    begin: int
    adds: int
    deliveries: int
    finishes: int
    deaths: dict[str, int]
    refusals: dict[str, int]
    due_to_ready: Lateness | None
    due_to_delivered: Lateness | None


class Found(NamedTuple):
    """The figures from one time to another (ms since the epoch), in bins of `step_s`, without empty ones."""

    since: int
    until: int
    step_s: int
    bins: list[Happened]
    total: Happened
    parked: int


class Past:
    """Reads the figures of one namespace. `has_own`: returns whether this process counts a topic under its own name.
    `settle`: adds what this process has counted, if each answer must include it."""

    def __init__(
        self,
        figures: Figures,
        pollers: Pollers,
        has_own: Callable[[str], bool],
        settle: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._figures = figures
        self._pollers = pollers
        self._has_own = has_own
        self._settle = settle

    async def settle(self) -> None:
        """Add what was counted until now; only on a test service."""
        if self._settle:
            await self._settle()

    async def read(self, command: params.Past, within: str = "") -> Found:
        """The figures that a command asks for. Raises BadField, and Forbidden if the command asks for all topics but
        `within` limits them."""
        if command.topic is None and within:
            raise Forbidden(
                "figures without a topic are those of all topics, and the token reaches only some; name one"
            )
        if command.topic is not None:
            await self._check_topic(command.topic)
        await self.settle()
        step_s = command.step or _STEP_S
        first, last = _span(command, await self._figures.now_ms(), self._hours(command.topic))
        _check_bins(first, last, step_s)
        width = step_s // 60
        numbers: dict[int, Counter[str]] = {}
        async for minute, own in self._figures.read(command.topic or ALL, first, last):
            numbers.setdefault(minute // width * width, Counter()).update(own)
        bins, total = [], Counter[str]()
        for begin, own in numbers.items():
            bins.append(_happened(begin, own))
            total.update(own)
            if len(bins) % _BINS_AT_ONCE == 0:
                await asyncio.sleep(0)
        parked = (await self._pollers.read()).parked(command.topic)
        return Found(first * MINUTE_MS, (last + 1) * MINUTE_MS, step_s, bins, _happened(first, total), parked)

    async def _check_topic(self, topic: str) -> None:
        """Raises BadField if the topic has no figures of its own: empty figures would not mean that nothing
        happened."""
        if not self._has_own(topic) or await self._figures.leaves_out(topic):
            most = self._figures.most_topics
            raise BadField(
                f"this topic has no figures of its own: only the first {most} topics have (metrics_topics)",
                field="topic",
            )

    def _hours(self, topic: str | None) -> int:
        return self._figures.hours if topic is None else self._figures.topic_hours


def _span(command: params.Past, now_ms: int, hours: int) -> tuple[int, int]:
    """The first and the last minute since the epoch. Raises BadField."""
    until_ms = now_ms if command.until is None else min(params.at_ms(command.until), now_ms)
    last = -(-until_ms // MINUTE_MS) - 1
    if command.since is None:
        return last - min(_SPAN_MINUTES, hours * 60) + 1, last
    since_ms = params.at_ms(command.since)
    if since_ms < now_ms - hours * 60 * MINUTE_MS - MINUTE_MS:  # the client's clock may be behind
        whose = "all topics together" if command.topic is None else "a topic"
        raise BadField(f"since is too long ago: figures of {whose} are kept for {hours} h", field="since")
    if since_ms >= until_ms:
        raise BadField("since must be before until, and in the past", field="since")
    return since_ms // MINUTE_MS, last


def _check_bins(first: int, last: int, step_s: int) -> None:
    width = step_s // 60
    number = last // width - first // width + 1
    if number > fields.MOST_BINS:
        raise BadField(
            f"there would be {number} bins, and {fields.MOST_BINS} are allowed; choose a longer step", field="step"
        )


def _happened(minute: int, numbers: Mapping[str, int]) -> Happened:
    return Happened(
        minute * MINUTE_MS,
        adds=numbers.get(history.ADDS, 0),
        deliveries=numbers.get(history.DELIVERIES, 0),
        finishes=numbers.get(history.FINISHES, 0),
        deaths=_behind(history.DIED, numbers),
        refusals=_behind(history.REFUSED, numbers),
        due_to_ready=_lateness(history.READY, numbers),
        due_to_delivered=_lateness(history.DELIVERED, numbers),
    )


def _behind(prefix: str, numbers: Mapping[str, int]) -> dict[str, int]:
    """The numbers whose names begin with a prefix, by the rest of their names."""
    return {name.removeprefix(prefix): numbers[name] for name in sorted(numbers) if name.startswith(prefix)}


def _lateness(prefix: str, numbers: Mapping[str, int]) -> Lateness | None:
    counts = [numbers.get(f"{prefix}{place}", 0) for place in range(len(LATENESS_S) + 1)]
    return Lateness(counts, quantile(counts, 0.5), quantile(counts, 0.99)) if any(counts) else None


def quantile(counts: Sequence[int], share: float) -> float:
    """The lateness in s that this share of jobs did not exceed, estimated like `histogram_quantile` of Prometheus:
    values are assumed to be evenly spread within their bucket, and those beyond the last bound to be equal to it."""
    wanted = share * sum(counts)
    for place, upto in enumerate(accumulate(counts)):
        if upto >= wanted and counts[place]:
            break
    if place == len(LATENESS_S):
        return LATENESS_S[-1]
    lower = LATENESS_S[place - 1] if place else 0.0
    part = (wanted - (upto - counts[place])) / counts[place]
    return round(lower + (LATENESS_S[place] - lower) * part, 7)


_HOUR_MS, _MINUTE_MS = 3_600_000, 60_000
_DAY_MS = 24 * _HOUR_MS  # occurrences within a day are counted by the minute, later ones by the hour, like delayed jobs
_HOURS = 24  # unless the command says otherwise
_KEPT_MS = 5000  # how long an answer is reused, by Redis's clock; or
_SHARE = 20  # times as long as it took to make, so that constant requests cost a twentieth of a process
_MOST_KEPT = 100
_MOST_TIMES = 20_000  # of occurrences; computing one takes up to 0.1 ms
_COUNTED_AT_ONCE = 200  # of them, between two rests


@dataclass(slots=True)
class Outlook:
    """The forecast of jobs, and the number of occurrences by bin. `counted_until`: the time up to which they are
    counted (ms since the epoch), or None if all are counted."""

    jobs: Forecast
    occurrences: Counter[Bin] = field(default_factory=Counter)
    counted_until: int | None = None


class _Upcoming(NamedTuple):
    """The next occurrence of a schedule: its time, a unique number, how many jobs it becomes, and the times after
    it."""

    at: int
    number: int
    jobs: int
    later: Iterator[int]


class Forecasting:
    """Makes forecasts, and reuses each for some seconds."""

    def __init__(self, topics: Topics, scheduling: Scheduling, policies: Callable[[], Policies]) -> None:
        self._topics = topics
        self._scheduling = scheduling
        self._policies = policies
        self._kept: dict[tuple[str | None, int, str], tuple[range, Outlook]] = {}  # with the ms in which it is valid

    async def forecast(self, command: params.Forecast, within: str = "") -> Outlook:
        """What falls due in the next hours, for one topic or for all topics within reach."""
        hours = command.hours or _HOURS
        asked = (command.topic, hours, within)
        now = await self._topics.pool.now_ms()
        kept = self._kept.get(asked)
        if kept and now in kept[0]:
            return kept[1]
        loop = asyncio.get_running_loop()
        begun = loop.time()
        end = now + hours * _HOUR_MS
        outlook = Outlook(await read_forecast(self._topics, command.topic, end, within))
        await self._add_occurrences(outlook, command.topic, now, end, within)
        if len(self._kept) >= _MOST_KEPT:
            self._kept.clear()
        lasts_ms = max(_KEPT_MS, int(_SHARE * (loop.time() - begun) * 1000))
        self._kept[asked] = (range(now, now + lasts_ms), outlook)
        return outlook

    async def _add_occurrences(self, outlook: Outlook, topic: str | None, now: int, end: int, within: str) -> None:
        """Count the occurrences of all schedules in the order of their times, up to _MOST_TIMES of them."""
        upcoming = await self._upcoming(topic, within)
        for counted in range(_MOST_TIMES):
            if not upcoming or upcoming[0].at >= end:
                return
            next_one = upcoming[0]
            outlook.occurrences[_bin(next_one.at, now)] += next_one.jobs
            at = next(next_one.later, None)
            if at is None:
                heapq.heappop(upcoming)
            else:
                heapq.heapreplace(upcoming, next_one._replace(at=at))
            if counted % _COUNTED_AT_ONCE == 0:
                await asyncio.sleep(0)
        outlook.counted_until = upcoming[0].at if upcoming else None

    async def _upcoming(self, topic: str | None, within: str) -> list[_Upcoming]:
        """The next occurrence of each schedule, as a heap."""
        upcoming: list[_Upcoming] = []
        async for schedule, definition in self._scheduling.all(within):
            targets = self._policies().targets(definition.topic) or (definition.topic,)
            jobs = len(targets) if topic is None else targets.count(topic)
            if schedule.next and jobs:
                later = definition.times(schedule.start).after(schedule.next)
                upcoming.append(_Upcoming(schedule.next, len(upcoming), jobs, later))
        heapq.heapify(upcoming)
        return upcoming


def _bin(at: int, now: int) -> Bin:
    width = _MINUTE_MS if at - now < _DAY_MS else _HOUR_MS
    return Bin(at // width * width, width)
