"""`jobqueue journal …` as a process."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.kit import forked

_PATIENCE_S = 40.0


class JournalProcess:
    """`jobqueue journal run`. `program`: what runs it, for tests with a process that is made to fail."""

    def __init__(
        self,
        redis: str,
        journal: str,
        log: Path,
        *flags: str,
        program: Sequence[str] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._program = program
        self._arguments = ["journal", "run", "--redis", redis, "--to", journal, "--log-format", "json", *flags]
        self._log = log
        self._environment = clean_environment() | dict(environment or {})
        self.process: forked.Process | None = None

    async def start(self) -> JournalProcess:
        """Start it; it may still be on its way to its first read."""
        with self._log.open("ab") as log:
            if self._program is None:
                self.process = await forked.started(self._arguments, self._environment, stdout=log, stderr=log)
            else:
                self.process = await asyncio.create_subprocess_exec(
                    *self._program, *self._arguments, stdout=log, stderr=log, env=self._environment
                )
        return self

    async def stop(self, number: int = signal.SIGTERM) -> int:
        """Send a signal, and wait for the exit code."""
        assert self.process
        if self.process.returncode is None:
            self.process.send_signal(number)
        return await self.ended()

    async def ended(self) -> int:
        """Wait for the exit code."""
        assert self.process
        async with asyncio.timeout(_PATIENCE_S):
            return await self.process.wait()

    async def kill(self) -> None:
        """SIGKILL, if it runs."""
        if self.process and self.process.returncode is None:
            self.process.kill()
            await self.process.wait()

    def logged(self, event: str) -> list[dict[str, Any]]:
        """The lines of an event."""
        lines = (line for line in self._log.read_text().splitlines() if line.startswith("{"))
        return [line for line in map(json.loads, lines) if line["event"] == event]

    async def has_logged(self, event: str) -> None:
        """Wait for an event."""
        async with asyncio.timeout(_PATIENCE_S):
            while not self.logged(event):  # noqa: ASYNC110 - in a file
                await asyncio.sleep(0.05)

    @property
    def text(self) -> str:
        return self._log.read_text()

    async def __aenter__(self) -> JournalProcess:
        return await self.start()

    async def __aexit__(self, *error: object) -> None:
        await self.kill()


def clean_environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("JOBQUEUE_")}


async def journal(*arguments: str) -> tuple[int, str]:
    """Run `jobqueue journal …` to its end; the exit code, and all that it printed."""
    ran = await forked.ran(("journal", *arguments), clean_environment(), within_s=_PATIENCE_S)
    return ran.code, ran.out + ran.err
