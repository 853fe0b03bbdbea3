"""The work of a run: page by page, in the four steps of the package's docstring. Jobs that ended come back as new
lives, and only if their ids are named."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple, Protocol

from buckets.errors import JobQueueError, TryLater, Unavailable
from buckets.events.restoring import PAGE, Asked, Restoring
from buckets.job import DEFAULT_RETENTION_MS, KeyOf, NewJob, Tag
from buckets.pages import chunks
from buckets.pool.pool import Pool
from buckets.record import unpack_optional
from buckets.shards import ACTOR
from jobqueue.journal.restoring.candidates import Candidate, Cursor, Gaps, Listing, Named, Page, Past
from jobqueue.journal.restoring.fates import Fate, Judging
from jobqueue.journal.restoring.lost import LostSchedules, is_among, is_schedule
from jobqueue.journal.restoring.reading import ENDED, Choice, JobRow, Progress, Reading, Report, Stopped, Sums
from jobqueue.journal.restoring.runs import Passing, Run

RATE = 2_000
_AHEAD_S = 1.5  # the reader of an idle shard reports every second how far it is
_MOST_AHEAD = 100  # pages
_AGAIN_S = 0.2


class _Pages(Protocol):
    async def total(self) -> int: ...

    def pages(self, cursor: Cursor | None = None) -> AsyncIterator[Page]: ...


class _AskedPage(NamedTuple):
    page: Page
    asked: list[Asked]


class Restore:
    """One run of a choice.

    `run`: the run as the journal records it, or None for a dry run, which puts nothing. `stale`: True to skip waiting
    for the journal. `rate`: the most jobs per second.
    """

    def __init__(
        self,
        reading: Reading,
        restoring: Restoring,
        choice: Choice,
        run: Run | None,
        *,
        rate: float = RATE,
        stale: bool = False,
        report: Report = lambda progress: None,
    ) -> None:
        self._reading, self._restoring, self._choice, self._run = reading, restoring, choice, run
        self._rate, self._stale, self._report = rate, stale, report
        self._passing = Passing(reading)
        self._free_at = 0.0  # loop time at which the rate allows the next page
        self.sums = Sums()

    async def carry_out(self, cursor: Cursor | None = None, sums: Sums | None = None) -> Sums:
        """Bring the jobs back, from a cursor on and with the sums so far. Raises Stopped if the run was cut short:
        `sums` has what was done; Unavailable and NotBegun if nothing was done."""
        self.sums = self.sums if sums is None else sums
        begun_ms = await self._catch_up()
        pages, past = self._pages(begun_ms)
        gaps = Gaps({}) if self._stale else await Gaps.read(self._reading)
        self._judging = Judging(self._reading, self._choice, self.sums, gaps, past, begun_ms)
        self._schedules = LostSchedules(self._reading, self._choice.topics, gaps)
        total = await pages.total() + (await self._schedules.total() if self._choice.has_schedules else 0)
        async for asked in self._ahead(self._all_pages(pages, cursor)):
            await self._work(asked)
            if self._run:
                await self._run.note(asked.page.behind, self.sums)
            self._report(Progress(self.sums, total))
        if self._run:
            await self._run.end(self.sums)
        return self.sums

    async def _catch_up(self) -> int:
        """Wait for the journal; returns the time of Redis, in ms. From then on, nothing older is drained: any change in
        the journal has happened in this Redis since."""
        asked = await self._restoring.ask(())
        if not self._stale:
            await self._passing.begin(asked)
        return max(each.at for each in asked) // 1000

    def _pages(self, now_ms: int) -> tuple[_Pages, Past | None]:
        as_of = self._choice.as_of
        past = None if as_of is None else Past(self._reading, self._choice, as_of)
        if self._choice.ids:
            return Named(self._reading, self._choice.ids), past
        return past or Listing(self._reading, self._choice, now_ms), past

    async def _all_pages(self, pages: _Pages, cursor: Cursor | None) -> AsyncIterator[Page]:
        """The pages of jobs, then of schedules."""
        if not is_among(cursor):
            async for page in pages.pages(cursor):
                yield page
        if self._choice.has_schedules:
            async for page in self._schedules.pages(cursor):
                yield page

    async def _ahead(self, pages: AsyncIterator[Page]) -> AsyncIterator[_AskedPage]:
        """The pages, each with what Redis answered about it. Redis is asked about some pages ahead of the one that is
        worked on, because the wait for the journal is long compared with the work."""
        most = min(max(int(self._rate * _AHEAD_S / PAGE), 1), _MOST_AHEAD)
        asked: deque[_AskedPage] = deque()
        async for page in pages:
            ids = [*(each.id for each in page.candidates), *page.strangers]
            asked.append(_AskedPage(page, await self._ask(ids) if ids else []))
            if len(asked) > most:
                yield asked.popleft()
        while asked:
            yield asked.popleft()

    async def _ask(self, ids: Sequence[str]) -> list[Asked]:
        """Step 1. Waits while Redis cannot be reached, or a shard records no events. Raises Stopped."""
        loop = asyncio.get_running_loop()
        end = loop.time() + self._reading.patience_s
        while True:
            try:
                asked = await self._restoring.ask(ids)
            except Unavailable as error:
                why = f"Redis cannot be reached: {error.message}"
            else:
                deaf = [each.shard for each in asked if not each.stream]
                if not deaf or self._stale:
                    return asked
                why = f"events are off in shard {deaf[0]} of this Redis"
            if loop.time() > end:
                raise Stopped(why)
            await asyncio.sleep(_AGAIN_S)

    async def _work(self, asked: _AskedPage) -> None:
        """Steps 2 to 4 for a page. Before jobs that Redis refused are tried again, Redis is asked about them again:
        they may be there by now, and even have been finished. Raises Stopped if Redis refuses them for too long."""
        candidates = {each.id: each for each in asked.page.candidates}
        self._look(asked)
        left = await self._bring_back(candidates, asked.asked)
        loop = asyncio.get_running_loop()
        end = loop.time() + self._reading.patience_s
        while left:
            if loop.time() > end:
                raise Stopped(next(iter(left.values())).message)
            await asyncio.sleep(_AGAIN_S)
            candidates = {job_id: candidates[job_id] for job_id in left}
            left = await self._bring_back(candidates, await self._ask(list(candidates)))

    def _look(self, asked: _AskedPage) -> None:
        self.sums.counts["looked"] += len(asked.page.candidates) + len(asked.page.strangers)
        unknown = {job_id for each in asked.asked for job_id in each.unknown}
        for job_id in asked.page.strangers:
            if job_id in unknown:
                self.sums.name("unknown", job_id)
            else:
                self.sums.counts["known"] += 1

    async def _bring_back(self, candidates: dict[str, Candidate], asked: Sequence[Asked]) -> dict[str, JobQueueError]:
        """Steps 2 to 4 for jobs that Redis was asked about; returns those that Redis refused for now, with the
        errors."""
        unknown = {job_id for each in asked for job_id in each.unknown}
        wanted = [each for each in candidates.values() if each.id in unknown]
        self.sums.counts["known"] += len(candidates) - len(wanted)
        if not wanted:
            return {}
        if not self._stale:
            await self._passing.wait(asked)
        loop = asyncio.get_running_loop()
        if self._run:
            await asyncio.sleep(max(self._free_at - loop.time(), 0))  # before judging, as fates must not be outdated
        fates = await self._judge(wanted, max(each.at for each in asked) // 1000)
        if not self._run:
            return self._judge_all(fates, [True] * len(fates))
        self._free_at = max(self._free_at, loop.time()) + len(fates) / self._rate
        return self._judge_all(fates, await self._put(fates))

    async def _judge(self, wanted: Sequence[Candidate], now_ms: int) -> dict[str, Fate]:
        """Step 3. A page has only jobs, or only schedules."""
        if is_schedule(wanted[0].id):
            return self._judging.coming(await self._schedules.fates(wanted))
        return await self._judging.judge(wanted, now_ms)

    async def _put(self, fates: dict[str, Fate]) -> list[bool | JobQueueError]:
        if is_schedule(next(iter(fates), "")):
            return await self._restoring.put_schedules(await self._schedules.lost(fates))
        return await self._restoring.put([(job_id, fate.record) for job_id, fate in fates.items()])

    def _judge_all(self, fates: dict[str, Fate], results: Sequence[bool | JobQueueError]) -> dict[str, JobQueueError]:
        """Count the results; returns the jobs that Redis refused for now, with the errors. Raises Stopped for any other
        error."""
        refused: dict[str, JobQueueError] = {}
        for (job_id, fate), result in zip(fates.items(), results, strict=True):
            if isinstance(result, TryLater):
                refused[job_id] = result
            elif isinstance(result, JobQueueError):
                raise Stopped(result.message)
            else:
                self._count(fate, was_put=result)
        return refused

    def _count(self, fate: Fate, *, was_put: bool) -> None:
        self.sums.counts["put" if was_put else "known"] += 1
        if was_put and fate.counted:
            self.sums.counts[fate.counted] += 1


async def carry_out(
    reading: Reading,
    pool: Pool,
    ids: Sequence[str],
    run: Run | None,
    sums: Sums,
    *,
    stale: bool = False,
    rate: float = RATE,
    report: Report = lambda progress: None,
) -> None:
    """Bring back ended jobs as new ones, and jobs that Redis has lost as they were. `run`: None to only report. Raises
    the errors of `bring_back` and `Restore.carry_out`."""
    actor = run.actor if run else ""
    done, others = await bring_back(reading, pool, ids, actor, stale=stale, dry=run is None)
    sums.counts.update(done.counts)
    sums.named.update(done.named)
    if others:
        restoring, choice = Restoring(pool, actor), Choice(ids=tuple(others))
        rest = Restore(reading, restoring, choice, run, rate=rate, stale=stale, report=report)
        await rest.carry_out(None, sums)
    elif run:
        await run.end(sums)


async def bring_back(
    reading: Reading, pool: Pool, ids: Sequence[str], actor: str, *, stale: bool = False, dry: bool = False
) -> tuple[Sums, list[str]]:
    """Add the ended jobs again, due at their earlier due time, or now if that has passed. Returns what was done, and
    the ids of the other jobs. Raises Stopped, and JobQueueError for what Redis refuses."""
    sums, others = Sums(), list[str]()
    restoring, passing = Restoring(pool, actor), Passing(reading)
    if not stale:
        await passing.begin(await restoring.ask(()))
    for some in chunks(list(dict.fromkeys(ids)), PAGE):
        asked = await restoring.ask(some)
        if not stale:
            await passing.wait(asked)
        rows, now_ms = await reading.jobs(some), max(each.at for each in asked) // 1000
        ended = [rows[job_id] for job_id in some if job_id in rows and rows[job_id].state in ENDED]
        others += [job_id for job_id in some if job_id not in rows or rows[job_id].state not in ENDED]
        sums.counts["looked"] += len(ended)
        jobs = [job for row in ended if (job := _new_life(row, now_ms, sums))]
        await _add(pool, [] if dry else jobs, actor, sums)
        sums.counts["put"] += len(jobs) if dry else 0
    return sums, others


def _new_life(row: JobRow, now_ms: int, sums: Sums) -> NewJob | None:
    if row.body is None or row.options is None:
        sums.name("without_body", row.id)
        return None
    fields = unpack_optional(row.options)
    ladder = fields.get(Tag.BACKOFF, b"")
    job = NewJob(
        *(row.id, row.topic, row.body.encode()),
        due_ms=row.due if row.due > now_ms else 0,
        ttr_ms=int.from_bytes(fields[Tag.TTR], "big") if Tag.TTR in fields else row.ttr,
        priority=row.priority,
        tries=row.tries,
        backoff_ms=tuple(int.from_bytes(ladder[at : at + 6], "big") for at in range(0, len(ladder), 6)),
        ttl_ms=int.from_bytes(fields[Tag.TTL], "big") if Tag.TTL in fields else None,
        retention_ms=int.from_bytes(fields[Tag.RETENTION], "big") if Tag.RETENTION in fields else DEFAULT_RETENTION_MS,
        headers=fields.get(Tag.HEADERS, b""),
        tags=fields.get(Tag.TAGS, b""),
        # A live job, which may have been added since, is not changed.
        if_exists="renew",
        note=fields.get(Tag.NOTE, b""),
        keeps_body=bool(row.keeps_body),
    )
    if key := KeyOf.among(fields):
        job.key, job.key_concurrency, job.key_gap_us = key
    return job


async def _add(pool: Pool, jobs: Sequence[NewJob], actor: str, sums: Sums) -> None:
    token = ACTOR.set(actor)
    try:
        results = await pool.add(jobs)
    finally:
        ACTOR.reset(token)
    for result in results:
        if isinstance(result, TryLater):
            raise Stopped(result.message)
        if isinstance(result, JobQueueError):
            raise result
        sums.counts["known" if result.result == "existing" else "put"] += 1
