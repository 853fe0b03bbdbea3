"""When the Python worker wakes up for its leases."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from jobqueue_client import AsyncClient, Job
from jobqueue_client.worker.lease import Leases
from jobqueue_client.worker.report import Contact, Report


async def test_a_lease_that_is_not_kept_any_longer_is_waited_for_asleep() -> None:
    async with AsyncClient("http://localhost:1") as client:  # never used
        report = Report()
        leases = Leases(client, Contact(report), report, keep_alive_s=0.1)
        job = Job("1", "t", None, lease=1, attempt=1, tries=1, due=0, ttr=0.6)
        leases.hold(job)
        turns = 0
        with suppress(TimeoutError):
            async with asyncio.timeout(0.8):  # longer than the TTR
                while True:
                    await leases.tick()
                    turns += 1
        assert job.lost == "expired" and turns <= 3
