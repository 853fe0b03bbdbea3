"""Jobs that ended, brought back as new lives: by their ids only."""

from __future__ import annotations

from collections.abc import Sequence

from buckets.errors import JobQueueError, TryLater
from buckets.events.restoring import PAGE, Restoring
from buckets.job import DEFAULT_RETENTION_MS, NewJob, Tag
from buckets.pages import chunks
from buckets.pool.pool import Pool
from buckets.record import unpack_optional
from buckets.shards import ACTOR
from jobqueue.journal.restoring.choice import ENDED, Choice, Report, Stopped, Sums
from jobqueue.journal.restoring.passing import Passing
from jobqueue.journal.restoring.reading import JobRow, Reading
from jobqueue.journal.restoring.restore import RATE, Restore
from jobqueue.journal.restoring.runs import Run


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
    """Bring back jobs that ended as new ones, and those that Redis has lost as they were. `run`: None: only tell.
    Raises as `bring_back` and Restore do."""
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
    """Add those that ended again, due when they were or now; what was done, and the ids of the others. Raises Stopped,
    and JobQueueError for what Redis refuses."""
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
    return NewJob(
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
        # Of a live job, which may have been added since, it changes nothing.
        if_exists="renew",
        note=fields.get(Tag.NOTE, b""),
        keeps_body=bool(row.keeps_body),
    )


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
