"""The examples of every client print what their comments promise. Their half hours pass at once: they run on the clock
of a test service."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.conformance.participants import Participant
from tests.kit.service import ROOT, Client, ServiceProcess
from tests.kit.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

PROGRAMS = {"python": (sys.executable, "py"), "php": ("php", "php"), "node": ("node", "mjs")}

SAID = {
    "close_unpaid_orders": [
        "order 1002 paid: its time-out is cancelled",
        "order 1001 closed: not paid in time",
        "order 1003 closed: not paid in time",
    ],
    "poll_payment": ["payment 7 paid after 3 asks", "payment 8 given up after 5 asks"],
}
STEP_S = {"close_unpaid_orders": 1800, "poll_payment": 1}
"""How long all jobs of an example wait at most: not longer, or those that have ended would be forgotten."""
CANCELLED = {"close_unpaid_orders": 1, "poll_payment": 0}
"""How many jobs it deletes before their time."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client() -> AsyncIterator[Client]:
    """A client of a test service."""
    async with ServiceProcess("--test", workers=None) as service, Client(service.url) as client:
        yield client


async def pass_time(client: Client, example: str, process: asyncio.subprocess.Process) -> None:
    """Let time pass whenever all jobs are waiting for it, until the program has ended."""

    async def all_wait() -> bool:
        figures = await client.ask("stats")
        counts = figures["counts"]
        idle = counts["delayed"] and not counts["ready"] and not counts["reserved"]
        return process.returncode is not None or bool(
            idle and figures["totals"].get("deleted", 0) >= CANCELLED[example]
        )

    while process.returncode is None:
        await until(all_wait, within_s=30)
        await client.ask("clock", advance=STEP_S[example])


@pytest.mark.parametrize("example", SAID)
async def test_the_example_runs_and_ends(participant: Participant, client: Client, example: str) -> None:
    await client.ask("reset")
    language = participant.name.removesuffix("-async")
    program, ending = PROGRAMS[language]
    file = ROOT / "clients" / language / "examples" / f"{example}.{ending}"
    process = await asyncio.create_subprocess_exec(
        *(program, str(file), *(["1800"] if example == "close_unpaid_orders" else [])),
        stdout=asyncio.subprocess.PIPE,
        env=os.environ | {"JOBQUEUE_URL": client.url},
    )
    async with asyncio.timeout(30):
        said, _ = (await asyncio.gather(process.communicate(), pass_time(client, example, process)))[0]
    assert process.returncode == 0
    # Not line by line: two handlers in threads may both print before either prints its line end.
    assert all(line in said.decode() for line in SAID[example]), said.decode()
