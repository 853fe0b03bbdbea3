"""The pool's moves with conditions, as far as the pool has them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from buckets import Job, Moved, Pool, State
from buckets.errors import JobQueueError, NotFound, Reserved, WrongState


class Moves:
    """Looks first, and then moves; the pool is to do both in one script."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self.finish = pool.finish

    async def _check(self, job_id: str, within: str) -> None:
        if within and await self.get(job_id, within) is None:
            raise NotFound

    async def get(self, job_id: str, within: str = "") -> Job | None:
        job = await self._pool.get(job_id)
        fits = job and (job.topic.startswith(within[:-1]) if within.endswith("*") else within in ("", job.topic))
        return job if fits else None

    async def take(self, job_id: str, *, ttr_ms: int | None = None, worker: str = "", within: str = "") -> Job:
        raise NotFound

    async def finish_within(self, job_id: str, lease: int | None, within: str) -> str:
        await self._check(job_id, within)
        return _word((await self._pool.finish([(job_id, lease)]))[0])

    async def delete_within(self, job_id: str, within: str, spares: Sequence[State]) -> str:
        job = await self.get(job_id, within)
        if job and job.state in spares:
            raise (Reserved if job.state is State.RESERVED else WrongState)(state=job.state.word)
        return _word(NotFound() if job is None else (await self._pool.delete([job_id]))[0])

    async def touch(self, job_id: str, lease: int | None, ttr_ms: int | None, within: str = "") -> int:
        await self._check(job_id, within)
        return await self._pool.touch(job_id, lease, ttr_ms)

    async def release(
        self,
        job_id: str,
        lease: int | None,
        *,
        note: bytes | None,
        priority: int | None,
        within: str,
        **options: Any,
    ) -> Moved:
        await self._check(job_id, within)
        return await self._pool.release(job_id, lease, **options)

    async def bury(self, job_id: str, lease: int | None, reason: str, *, note: bytes | None, within: str) -> str:
        await self._check(job_id, within)
        return await self._pool.bury(job_id, lease, reason)

    async def kick_one(self, job_id: str, within: str) -> str:
        await self._check(job_id, within)
        return _word((await self._pool.kick([job_id]))[0])

    async def run(self, job_id: str, within: str) -> int:
        await self._check(job_id, within)
        return await self._pool.run(job_id)


def _word(result: str | JobQueueError) -> str:
    if isinstance(result, JobQueueError):
        raise result
    return result
