"""How the Python worker stops when a handler does not: the cases that only asyncio makes possible."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

from jobqueue_client import AsyncClient, Job, Worker

from tests.kit.service import ServiceProcess


async def test_a_handler_that_swallows_its_cancellation_does_not_keep_the_worker(tmp_path: Path) -> None:
    async with ServiceProcess("--data", str(tmp_path / "data")) as service, AsyncClient(service.url) as client:
        events: list[str] = []
        worker = Worker(service.url, grace_s=0, keep_alive_s=0, on_event=lambda name, fields: events.append(name))
        clean: list[bool] = []

        @worker.job("deaf")
        async def handle(job: Job) -> None:
            while job.lost is None:  # noqa: ASYNC110  # as a user's handler does
                await asyncio.sleep(0.01)
            worker.stop()
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                await asyncio.sleep(0.1)  # and returns when nothing is left to send its end

        await client.add("deaf", 1, id="deaf:1", ttr=0.1, backoff=[60])
        thread = threading.Thread(target=lambda: clean.append(worker.run()), daemon=True)
        thread.start()
        await asyncio.to_thread(thread.join, 20)
        assert clean == [False]
        assert events.count("job.expired") == 1 and "job.finished" not in events
        assert (await client.get("deaf:1"))["state"] == "delayed"
