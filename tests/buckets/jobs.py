"""Shorthands that do one thing with one job; a refusal is raised."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from buckets.durable import DurablePool
from buckets.errors import JobQueueError
from buckets.job import Job, NewJob, State, Tag
from buckets.pool.codec import Added
from buckets.pool.pool import Pool


async def add(pool: Pool, job_id: str, topic: str = "t", body: bytes = b'"body"', **fields: Any) -> Added:
    (result,) = await pool.add([NewJob(job_id, topic, body, **fields)])
    if isinstance(result, JobQueueError):
        raise result
    return result


async def pop(pool: Pool, *topics: str, count: int = 1, **fields: Any) -> list[Job]:
    return (await pool.pop(topics or ("t",), count, **fields)).jobs


async def pop_one(pool: Pool, topic: str = "t", **fields: Any) -> Job:
    (job,) = await pop(pool, topic, **fields)
    return job


async def popped_ids(pool: Pool, *topics: str, count: int = 1000) -> list[str]:
    return [job.id for job in await pop(pool, *topics, count=count)]


async def is_stored(pool: Pool, popped: Job) -> bool:
    """Whether the pool holds a job as a pop returned it, but for the time at which it became ready again."""
    return _facts(await get(pool, popped.id)) == _facts(popped)


def _facts(job: Job) -> tuple[object, ...]:
    kind = job.kind
    optional = {tag: value for tag, value in kind.optional.items() if tag != Tag.READY}
    numbers = (job.bucket, kind.ttr, kind.tries, kind.attempts, kind.deliveries, kind.step, job.number, job.lease)
    return job.topic, job.state, job.priority, job.cause, job.created, job.due, job.next, numbers, optional, job.body


async def finish(
    pool: Pool | DurablePool, job_id: str, lease: int | None = None, within: str = "", *, settles: bool = False
) -> str:
    (result,) = await pool.finish([(job_id, lease)], within=within, settles=settles)
    if isinstance(result, JobQueueError):
        raise result
    return result


async def delete(pool: Pool | DurablePool, job_id: str, within: str = "", spares: Sequence[State] = ()) -> str:
    (result,) = await pool.delete([job_id], within, spares)
    if isinstance(result, JobQueueError):
        raise result
    return result


async def get(pool: Pool, job_id: str) -> Job:
    job = await pool.get(job_id)
    assert job is not None, f"{job_id} is not there"
    return job


async def state(pool: Pool, job_id: str) -> str:
    job = await pool.get(job_id)
    return job.state.word if job else "unknown"


async def kick(pool: Pool, job_id: str, within: str = "") -> str:
    (result,) = await pool.kick([job_id], within)
    if isinstance(result, JobQueueError):
        raise result
    return result
