"""The health of a running service, examined from inside when somebody asks.

The findings are kept for some seconds, so that many viewers cost no more than one. Topics and schedules are examined
separately for each set of topics that tokens reach; the rest is the same for all.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from buckets import Instance, Pool
from buckets.errors import JobQueueError
from buckets.topics.within import reaches
from jobqueue.commands.answers import died, listed, polling
from jobqueue.engine.engine import Engine
from jobqueue.health import jobs
from jobqueue.health.access import check_access
from jobqueue.health.findings import Finding
from jobqueue.health.jobs import Fields, Look
from jobqueue.health.journal import check_journal
from jobqueue.health.redis import check_redis
from jobqueue.health.start import (
    check_connections,
    check_packages,
    check_start,
    check_workers,
    told_protocols,
    told_settings,
)
from jobqueue.schema import params
from jobqueue.settings import Loaded

_SUBJECT = "instances"


def judge_instances(found: Sequence[Instance], timers: int) -> Iterator[Finding]:
    """All findings about instances. `timers`: how many timers there are."""
    versions = Counter(each.about.version if each.about else "not known" for each in found)
    told = ", ".join(f"{version} ({number})" for version, number in sorted(versions.items()))
    if len(versions) > 1:
        yield Finding("warn", _SUBJECT, f"different versions run: {told}: jobqueue instances")
    else:
        yield Finding("ok", _SUBJECT, f"running: {len(found)}, of version {told.rpartition(' (')[0]}")
    held = sum(len(buckets) for each in found for buckets in each.timers.values())
    if held < timers and all(each.about for each in found):
        yield Finding(
            "warn", _SUBJECT, f"timers that none holds at the moment: {timers - held} of {timers}: jobqueue instances"
        )


_KEPT_S = 5.0  # for which findings are reused
_MOST_KEPT = 20  # sets of topics that tokens reach
_COMPARED_S = 60.0  # an older look says nothing about what grows now
_MOST_TOPICS = 2000
_MOST_PAGES = 200  # of topics, most of which may be out of reach
_MOST_SCHEDULES = 10_000


class _Common(NamedTuple):
    """The findings that are the same for all, and whether Redis can be used."""

    at: float
    """The loop's time."""
    findings: list[Finding]
    has_redis: bool


class _Seen(NamedTuple):
    """The findings for a set of topics that tokens reach, and how many jobs of each topic were ready."""

    at: float
    unix_s: float
    findings: list[Finding]
    ready: dict[str, int]


class Health:
    """Examines the service that this process is a part of."""

    def __init__(
        self,
        engine: Engine,
        pool: Pool,
        loaded: Callable[[], Loaded],
        readiness: Callable[[], Mapping[str, bool]],
    ) -> None:
        """`loaded`: the settings in force; `readiness`: the checks of /readyz."""
        self._engine = engine
        self._pool = pool
        self._loaded = loaded
        self._readiness = readiness
        self._turn = asyncio.Lock()  # callers that wait for it get the same findings
        self._common: _Common | None = None
        self._seen: dict[str, _Seen] = {}

    async def examine(self, within: str = "") -> dict[str, Any]:
        """The findings within the topics that the caller reaches (see within.py), and when they were made."""
        async with self._turn:
            seen = self._seen.get(within)
            if seen is None or self._now() - seen.at >= _KEPT_S:
                seen = await self._look(within, seen)
        return {
            "at": seen.unix_s,
            "findings": [
                {"level": each.level, "subject": each.subject, "words": each.sentence} for each in seen.findings
            ],
        }

    async def _look(self, within: str, before: _Seen | None) -> _Seen:
        common = self._common
        if common is None or self._now() - common.at >= _KEPT_S:
            common = self._common = await self._common_findings()
        findings, ready = list(common.findings), dict[str, int]()
        if common.has_redis:
            try:
                found, ready = await self._of_jobs(within, before)
                findings += found
            except JobQueueError as error:
                findings.append(Finding("bad", "jobs", error.message))
        if len(self._seen) >= _MOST_KEPT:
            self._seen.clear()
        seen = self._seen[within] = _Seen(self._now(), time.time(), findings, ready)
        return seen

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    async def _common_findings(self) -> _Common:
        settings, sources = self._loaded()
        findings = [*await asyncio.to_thread(lambda: list(check_packages()))]
        findings.append(told_settings(sorted(sources)))
        refused = [finding async for finding in check_start(settings, runs=True)]
        findings += refused
        findings += [finding async for finding in check_access(settings)]
        findings += [check_workers(settings), *check_connections(settings), *told_protocols(settings), self._service()]
        has_redis = True
        try:
            findings += [finding async for finding in check_redis(self._pool.redis, settings)]
            timers = len(self._pool.keys) * self._pool.buckets
            findings += judge_instances(await self._engine.instances(), timers)
        except JobQueueError as error:
            why = self._pool.redis.trouble or error.message
            findings.append(Finding("bad", "redis", f"it cannot be used: {why}"))
            has_redis = False
        if "journal" not in {each.subject for each in refused}:
            redis = self._pool.redis if has_redis else None
            findings += [finding async for finding in check_journal(settings, redis)]
        return _Common(self._now(), findings, has_redis)

    def _service(self) -> Finding:
        failed = [name for name, passed in self._readiness().items() if not passed]
        if failed:
            return Finding("bad", "service", f"not ready; failed checks: {', '.join(failed)}")
        return Finding("ok", "service", "ready")

    async def _of_jobs(self, within: str, before: _Seen | None) -> tuple[list[Finding], dict[str, int]]:
        """The findings about topics and schedules, and how many jobs of each topic are ready."""
        topics, are_all = await self._topics(within)
        look = Look(topics, polling(await self._engine.workers(None, partial(reaches, within) if within else None)))
        passed_s = self._now() - before.at if before else 0.0
        earlier = before.ready if before and passed_s < _COMPARED_S else {}
        late_ms = await self._pool.now_ms() - int(jobs.SCHEDULE_LATE_S * 1000)
        late = await self._engine.scheduling.late(late_ms, _MOST_SCHEDULES, within)
        findings = [*jobs.judge_topics(look, earlier, passed_s)]
        findings += jobs.judge_schedules({name: ms / 1000 for name, ms in late.items()})
        findings += await self._deaths(look)
        if not are_all:
            findings.append(Finding("ok", "topics", f"there are more than the {len(topics):,} that were looked at"))
        return findings or [jobs.no_trouble(look)], jobs.ready_jobs(topics)

    async def _topics(self, within: str) -> tuple[list[Fields], bool]:
        """Topics as `topics` lists them, and whether these are all."""
        topics: list[Fields] = []
        command = params.Topics()
        for _ in range(_MOST_PAGES):
            views, cursor = await self._engine.topics(command, within)
            topics += [listed(*view) for view in views]
            if cursor is None:
                return topics, True
            if len(topics) >= _MOST_TOPICS:
                break
            command = params.Topics(cursor=cursor)
        return topics, False

    async def _deaths(self, look: Look) -> list[Finding]:
        deadly = jobs.deadly(look)
        numbers = {topic["topic"]: topic["counts"]["dead"] for topic in look.topics}
        shown = deadly[: jobs.MOST_DEADLY]
        newest = await asyncio.gather(*map(self._engine.newest_dead, shown))
        findings = [
            jobs.deaths(name, numbers[name], died(job) if job else None)
            for name, job in zip(shown, newest, strict=True)
        ]
        return findings + ([jobs.more_deadly(len(deadly) - len(shown))] if len(deadly) > len(shown) else [])
