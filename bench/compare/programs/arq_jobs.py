"""arq as producer and worker: does what lines of JSON on stdin ask. `python arq_jobs.py SOCKET`."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from typing import Any

import uvloop  # type: ignore[import-not-found, unused-ignore]  # of the environment of arq, as those below
from arq import Worker, create_pool  # type: ignore[import-not-found, unused-ignore]
from arq.connections import ArqRedis, RedisSettings  # type: ignore[import-not-found, unused-ignore]
from arq.worker import func  # type: ignore[import-not-found, unused-ignore]
from asked import BODY, due_of, job_id, number_of, serve  # type: ignore[import-not-found, unused-ignore]  # beside it

Answer = dict[str, Any]

_FILLERS = 16  # concurrent adds when only speed counts
_POLL_S = 0.001


async def _add(pool: ArqRedis, number: int, due: float | None) -> None:
    until = None if due is None else datetime.fromtimestamp(due / 1000, UTC)
    if not await pool.enqueue_job("job", BODY, _job_id=job_id(number), _defer_until=until):
        raise RuntimeError(f"job {number} is there already")


class Program:
    """One pool, and one worker at a time."""

    def __init__(self, pool: ArqRedis) -> None:
        self._pool = pool
        self._running: asyncio.Task[None] | None = None

    async def add(self, seconds: float, connections: int, size: int, first: int, due: float) -> Answer:
        """Add for about this many seconds, with this many concurrent calls."""
        assert size == 1
        begun, jobs = time.perf_counter(), 0

        async def adding() -> None:
            nonlocal jobs
            while time.perf_counter() < begun + seconds:
                jobs += 1
                await _add(self._pool, first + jobs - 1, due)

        await asyncio.gather(*(adding() for _ in range(connections)))
        return {"jobs": jobs, "seconds": time.perf_counter() - begun}

    async def fill(self, jobs: int, first: int, size: int, **when: Any) -> Answer:
        """Add the jobs first..first+jobs."""
        numbers = iter(range(first, first + jobs))

        async def adding() -> None:
            for number in numbers:
                await _add(self._pool, number, due_of(number, **when))

        await asyncio.gather(*(adding() for _ in range(_FILLERS)))
        return {}

    async def prepare(self, jobs: int, concurrency: int, kept_s: int) -> Answer:
        """Prepare to handle this many jobs at this concurrency; the result of a finished one is kept for `kept_s`."""
        self._numbers, self._at, self._left = list[int](), list[float](), jobs
        self._done: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        self._worker = Worker(
            [func(self._handle, name="job")],
            redis_pool=self._pool,
            max_jobs=concurrency,
            queue_read_limit=concurrency,
            poll_delay=_POLL_S,
            keep_result=kept_s,
            log_results=False,
            after_job_end=self._finished,
            handle_signals=False,
        )
        return {}

    async def _handle(self, context: dict[str, Any], body: str) -> None:
        self._at.append(time.time() * 1000)
        self._numbers.append(number_of(context["job_id"]))

    async def _finished(self, context: dict[str, Any]) -> None:
        self._left -= 1
        if self._left == 0:
            self._done.set_result(time.time() * 1000)

    async def run(self) -> Answer:
        """Handle them. Returns when the last one was finished, and the number and time of each, in ms since the
        epoch."""
        self._running = asyncio.create_task(self._worker.async_run())
        either: list[asyncio.Future[Any]] = [self._running, self._done]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if self._running.done():
            self._running.result()  # raises the error that ended it
        return {"end": self._done.result(), "numbers": self._numbers, "at": self._at}

    async def close(self) -> Answer:
        assert self._running is not None
        self._running.cancel()
        await asyncio.gather(self._running, return_exceptions=True)
        return {}


def main(socket: str) -> None:
    loop = uvloop.new_event_loop()
    asyncio.set_event_loop(loop)
    program = Program(loop.run_until_complete(create_pool(RedisSettings(unix_socket_path=socket))))

    def blocking(work: Callable[..., Coroutine[Any, Any, Answer]]) -> Callable[..., Answer]:
        return lambda **options: loop.run_until_complete(work(**options))

    works = (program.add, program.fill, program.prepare, program.run, program.close)
    serve({work.__name__: blocking(work) for work in works})


if __name__ == "__main__":
    main(sys.argv[1])
