"""The examples of every client print what their comments promise."""

from __future__ import annotations

import asyncio
import os
import sys

import pytest

from tests.acceptance.service import ROOT
from tests.conformance.participants import Participant
from tests.conformance.stage import Stage

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


@pytest.mark.parametrize("example", SAID)
async def test_the_example_runs_and_ends(participant: Participant, stage: Stage, example: str) -> None:
    language = participant.name.removesuffix("-async")
    program, ending = PROGRAMS[language]
    file = ROOT / "clients" / language / "examples" / f"{example}.{ending}"
    process = await asyncio.create_subprocess_exec(
        *(program, str(file), *(["1"] if example == "close_unpaid_orders" else [])),
        stdout=asyncio.subprocess.PIPE,
        env=os.environ | {"JOBQUEUE_URL": stage.service.url},
    )
    async with asyncio.timeout(30):
        said, _ = await process.communicate()
    assert process.returncode == 0
    # Not line by line: two handlers in threads may both print before either prints its line end.
    assert all(line in said.decode() for line in SAID[example]), said.decode()
