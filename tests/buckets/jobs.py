"""Shorthands that do one thing with one job; a refusal is raised."""

from __future__ import annotations

from typing import Any

from buckets.errors import JobQueueError
from buckets.job import Job, NewJob
from buckets.pool.add_codec import Added
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


async def finish(pool: Pool, job_id: str, lease: int | None = None) -> str:
    (result,) = await pool.finish([(job_id, lease)])
    if isinstance(result, JobQueueError):
        raise result
    return result


async def delete(pool: Pool, job_id: str) -> str:
    (result,) = await pool.delete([job_id])
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


async def kick(pool: Pool, job_id: str) -> str:
    (result,) = await pool.kick([job_id])
    if isinstance(result, JobQueueError):
        raise result
    return result
