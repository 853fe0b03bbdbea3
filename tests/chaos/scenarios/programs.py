"""Attacks that are programs with their own load and their own judgement; exit code 1 means a finding.

They belong to the long form. Their short forms are tests (test_slow_clients.py, test_fault_points.py).
"""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass

from tests.kit.service import ROOT


@dataclass(frozen=True)
class Program:
    """A module to run."""

    module: str

    async def run(self) -> tuple[bool, str]:
        """Run it. Returns whether it found nothing, and its output."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", self.module),
            cwd=ROOT,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        said, _ = await process.communicate()
        return process.returncode == 0, said.decode().strip()


PROGRAMS = {
    "slow-clients": Program("tests.chaos.slow_clients"),
    "fault-points": Program("tests.chaos.fault_points"),
}
"""2,000 half-open and 2,000 slow clients; a kill and a cut before and after each command to Redis."""
