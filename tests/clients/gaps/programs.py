"""The worker program of each client."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import NamedTuple

WORKERS = Path(__file__).parent / "workers"


class Program(NamedTuple):
    """A worker, as a program that takes the addresses and the topic (workers/worker.py)."""

    name: str
    command: list[str]

    def lacks(self) -> str | None:
        """What this machine lacks to run it; None if nothing."""
        return None if shutil.which(self.command[0]) else f"{self.command[0]} is not installed; .ci/run installs it"


PROGRAMS = [
    Program("python", [sys.executable, str(WORKERS / "worker.py")]),
    Program("node", ["node", str(WORKERS / "worker.mjs")]),
    Program("php", ["php", str(WORKERS / "worker.php")]),
]
