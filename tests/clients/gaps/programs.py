"""The worker program of each client."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import IO, Any, NamedTuple

WORKERS = Path(__file__).parent / "workers"


class Program(NamedTuple):
    """A worker, as a program that takes the addresses and the topic (workers/worker.py)."""

    name: str
    command: list[str]

    def lacks(self) -> str | None:
        """What this machine lacks to run it; None if nothing."""
        return None if shutil.which(self.command[0]) else f"{self.command[0]} is not installed; .ci/run installs it"

    @contextlib.asynccontextmanager
    async def running(
        self, *arguments: str, log: IO[bytes] | int | None, heard: Callable[[Any], None]
    ) -> AsyncIterator[Process]:
        """Its process; `heard` gets what each line that it prints says. Behind the block it is to end in order; it is
        killed when the block fails."""
        process = await asyncio.create_subprocess_exec(*self.command, *arguments, stdout=PIPE, stderr=log)
        reading = asyncio.create_task(_read(process, heard))
        try:
            yield process
            process.terminate()
            await process.wait()
            await reading
        finally:
            reading.cancel()
            if process.returncode is None:
                process.kill()
                await process.wait()


async def _read(process: Process, heard: Callable[[Any], None]) -> None:
    assert process.stdout
    async for line in process.stdout:
        heard(json.loads(line))


PROGRAMS = [
    Program("python", [sys.executable, str(WORKERS / "worker.py")]),
    Program("node", ["node", str(WORKERS / "worker.mjs")]),
    Program("php", ["php", str(WORKERS / "worker.php")]),
]
