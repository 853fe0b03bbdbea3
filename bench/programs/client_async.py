"""The asyncio Python client; arguments as in `bare.py`. Its worker has `async def` handlers."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

from jobqueue_client import AsyncClient, Job, Worker

from bench.programs.client import BATCH, fields


async def work(url: str, topic: str, count: int) -> float:
    """Seconds from the start of a worker to its last finish."""
    done = 0

    def told(event: str, _: dict[str, Any]) -> None:
        nonlocal done
        done += event == "job.finished"
        if done == count:
            worker.stop()

    worker = Worker(url, on_event=told)

    @worker.job(topic)
    async def handle(job: Job) -> None:
        pass

    begun = time.perf_counter()
    await worker.serve()
    return time.perf_counter() - begun


async def add(url: str, kind: str, topic: str, count: int) -> float:
    """Seconds that the adds took, one after another or in batches."""
    async with AsyncClient(url) as client:
        await client.stats()  # opens the connection
        begun = time.perf_counter()
        if kind == "batch":
            for start in range(0, count, BATCH):
                await client.batch([{"command": "add", **fields(topic, each)} for each in range(start, start + BATCH)])
        else:
            for each in range(count):
                await client.add(**fields(topic, each))
        return time.perf_counter() - begun


def main(url: str, kind: str, count: str, topic: str) -> None:
    number = int(count)
    took = asyncio.run(work(url, topic, number) if kind == "work" else add(url, kind, topic, number))
    print(json.dumps({"seconds": took}))


if __name__ == "__main__":
    main(*sys.argv[1:])
