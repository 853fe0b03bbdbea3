"""The synchronous Python client; arguments as in `bare.py`. Its worker has plain handlers."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from jobqueue_client import Client, Job, Worker

BATCH = 100
BODY = "x" * 98


def fields(topic: str, number: int) -> dict[str, Any]:
    return {"topic": topic, "id": f"{topic}:{number:0{19 - len(topic)}}", "delay": 3600, "body": BODY}


def work(url: str, topic: str, count: int) -> float:
    """Seconds from the start of a worker to its last finish."""
    done = 0

    def told(event: str, _: dict[str, Any]) -> None:
        nonlocal done
        done += event == "job.finished"
        if done == count:
            worker.stop()

    worker = Worker(url, on_event=told)

    @worker.job(topic)
    def handle(job: Job) -> None:
        pass

    begun = time.perf_counter()
    worker.run()
    return time.perf_counter() - begun


def add(url: str, kind: str, topic: str, count: int) -> float:
    """Seconds that the adds took, one after another or in batches."""
    with Client(url) as client:
        client.stats()  # opens the connection
        begun = time.perf_counter()
        if kind == "batch":
            for start in range(0, count, BATCH):
                client.batch([{"command": "add", **fields(topic, each)} for each in range(start, start + BATCH)])
        else:
            for each in range(count):
                client.add(**fields(topic, each))
        return time.perf_counter() - begun


def main(url: str, kind: str, count: str, topic: str) -> None:
    number = int(count)
    took = work(url, topic, number) if kind == "work" else add(url, kind, topic, number)
    print(json.dumps({"seconds": took}))


if __name__ == "__main__":
    main(*sys.argv[1:])
