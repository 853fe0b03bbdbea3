"""Celery as producer: adds what lines of JSON on stdin ask for."""

from __future__ import annotations

import itertools
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

from asked import BODY, due_of, job_id, serve  # type: ignore[import-not-found, unused-ignore]  # beside it
from celery_app import app, job  # type: ignore[import-not-found, unused-ignore]


def _add(producer: Any, number: int, due: float | None) -> None:
    eta = None if due is None else datetime.fromtimestamp(due / 1000, UTC)
    job.apply_async((BODY,), task_id=job_id(number), eta=eta, producer=producer)


def add(seconds: float, connections: int, size: int, first: int, due: float) -> dict[str, Any]:
    """Add for about this many seconds, with one thread per connection; in batches if size is more than 1."""
    begun, starts = time.perf_counter(), itertools.count(first, size)  # next() on it is atomic, and so thread-safe

    def adding(_: int) -> int:
        done = 0
        with app.producer_pool.acquire(block=True) as producer:
            while time.perf_counter() < begun + seconds:
                start = next(starts)
                _add_all(producer, {start + each: due for each in range(size)})
                done += size
        return done

    with ThreadPoolExecutor(connections) as threads:
        jobs = sum(threads.map(adding, range(connections)))
    return {"jobs": jobs, "seconds": time.perf_counter() - begun}


def _add_all(producer: Any, dues: dict[int, float | None]) -> None:
    if len(dues) == 1:
        _add(producer, *next(iter(dues.items())))
        return
    with producer.batch(len(dues)):  # one pipeline
        for number, due in dues.items():
            _add(producer, number, due)


def fill(jobs: int, first: int, size: int, **when: Any) -> dict[str, Any]:
    """Add the jobs first..first+jobs in batches."""
    with app.producer_pool.acquire(block=True) as producer:
        for start in range(first, first + jobs, size):
            numbers = range(start, min(start + size, first + jobs))
            _add_all(producer, {number: due_of(number, **when) for number in numbers})
    return {}


if __name__ == "__main__":
    serve({"add": add, "fill": fill})
