"""Attacks that are programs of their own, with load and judgement of their own: exit code 1 for a finding."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass

from tests.acceptance.service import ROOT


@dataclass(frozen=True)
class Program:
    """`options` and `short` are its arguments in the long and in the short form."""

    module: str
    options: tuple[str, ...] = ()
    short: tuple[str, ...] = ()

    async def run(self, short: bool) -> tuple[bool, str]:
        """Whether it found nothing, and what it printed."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", self.module, *(self.short if short else self.options)),
            cwd=ROOT,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        said, _ = await process.communicate()
        return process.returncode == 0, said.decode().strip()


PROGRAMS = {
    "slow-clients": Program(
        "tests.chaos.slow_clients",
        short=("--half-open", "500", "--dripping", "500", "--seconds", "12", "--client-timeout", "5"),
    ),
    "fault-points": Program("tests.chaos.fault_points", short=("--every", "29")),
}
"""2,000 half-open and 2,000 slow clients; a kill and a cut before and after each command to Redis."""
