"""The forecast of the service: the delayed jobs that fall due, and what schedules are going to add."""

from __future__ import annotations

import asyncio
import heapq
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from buckets import Bin, Forecast, Topics, read_forecast
from jobqueue.engine.new_jobs import Policies
from jobqueue.engine.schedules.scheduling import Scheduling
from jobqueue.schema import params

_HOUR_MS, _MINUTE_MS = 3_600_000, 60_000
_DAY_MS = 24 * _HOUR_MS  # occurrences within it are told to the minute, later ones to the hour, like delayed jobs
_HOURS = 24  # unless the command says otherwise
_KEPT_MS = 5000  # that an answer is given again, by Redis's clock; or
_SHARE = 20  # times as long as it took to make, so that those who look all the time cost a twentieth of a process
_MOST_KEPT = 100
_MOST_TIMES = 20_000  # of occurrences; a time takes up to 0.1 ms
_AT_ONCE = 200  # of them, between two rests


@dataclass(slots=True)
class Outlook:
    """The forecast of jobs, and the occurrences by bin, which are counted until a time (ms since the epoch; None: to
    the end)."""

    jobs: Forecast
    occurrences: Counter[Bin] = field(default_factory=Counter)
    counted_until: int | None = None


class _Upcoming(NamedTuple):
    """The next occurrence of a schedule: its time, a number that no other has, the jobs that it becomes, and the times
    behind it."""

    at: int
    number: int
    jobs: int
    later: Iterator[int]


class Forecasting:
    """Makes forecasts, and gives each again for some seconds."""

    def __init__(self, topics: Topics, scheduling: Scheduling, policies: Callable[[], Policies]) -> None:
        self._topics = topics
        self._scheduling = scheduling
        self._policies = policies
        self._kept: dict[tuple[str | None, int, str], tuple[range, Outlook]] = {}  # with the ms in which it is given

    async def forecast(self, command: params.Forecast, within: str = "") -> Outlook:
        """What falls due in the next hours, of a topic or of all that are within."""
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
        """Count occurrences in the order of their times, of all schedules together, as far as that goes."""
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
            if counted % _AT_ONCE == 0:
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
