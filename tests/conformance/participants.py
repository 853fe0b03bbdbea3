"""The participants: each client with its driver (README.md), and the driver's process."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, Self

from tests.kit.forked import ForkedScript, can_fork
from tests.kit.service import ROOT

DRIVERS = Path(__file__).parent / "drivers"
PATIENCE_S = 30.0
_LONGEST_LINE = 16 << 20  # bytes

Line = dict[str, Any]


class Participant(NamedTuple):
    """A client: the command that starts its driver."""

    name: str
    command: list[str]
    concurrent: bool = True  # whether its worker runs several handlers at a time

    def lacks(self) -> str | None:
        """What this machine lacks to run it; None if nothing."""
        program = shutil.which(self.command[0])
        if program is None:
            return f"{self.command[0]} is not installed; .ci/run installs it"
        if self.name == "php":
            modules = subprocess.run([program, "-m"], capture_output=True, text=True, check=True).stdout.split()
            if missing := {"curl", "pcntl", "posix"} - set(modules):
                return f"php lacks {', '.join(sorted(missing))}; .ci/run installs php-curl"
        return None


PARTICIPANTS = [
    Participant("python", [sys.executable, str(DRIVERS / "driver.py")]),
    Participant("python-async", [sys.executable, str(DRIVERS / "driver_async.py")]),
    Participant("php", ["php", str(DRIVERS / "driver.php")], concurrent=False),
    Participant("node", ["node", str(DRIVERS / "driver.mjs")]),
]


class Driver:
    """The process of a driver. Use with `async with`."""

    log: int | None = None  # where its log goes: by default to the test's standard error

    _environment: dict[str, str] = {}  # noqa: RUF012  # of a subclass

    def __init__(self, participant: Participant, mode: str, url: str, options: Line) -> None:
        self.participant = participant
        self._arguments = [mode, url, json.dumps(options)]
        self.process: asyncio.subprocess.Process | ForkedScript

    async def __aenter__(self) -> Self:
        environment = os.environ | self._environment
        python, *script = self.participant.command
        if python == sys.executable and can_fork(environment):
            self.process = await ForkedScript.started(
                Path(*script), self._arguments, environment, stderr=self.log, limit=_LONGEST_LINE
            )
            return self
        self.process = await asyncio.create_subprocess_exec(
            *self.participant.command,
            *self._arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=self.log,
            limit=_LONGEST_LINE,
            cwd=ROOT,
            env=environment,
        )
        return self

    async def __aexit__(self, *exception: object) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        try:
            async with asyncio.timeout(1):
                await self.process.wait()
        except TimeoutError:
            self.process.kill()
            await self.process.wait()
        if isinstance(self.process, ForkedScript):
            self.process.close()
        else:
            # Its child may hold its standard output open, and asyncio would wait for that to end.
            self.process._transport.close()  # type: ignore[attr-defined]  # there is no public way

    async def ask(self, call: str, args: Line) -> Line:
        """Make a call of the client; gives the line of its result."""
        await self.begin({"call": call, "args": args})
        return await self.line()

    async def begin(self, call: Line) -> None:
        assert self.process.stdin
        self.process.stdin.write(json.dumps(call).encode() + b"\n")
        await self.process.stdin.drain()

    async def line(self) -> Line:
        """The next line that the driver writes."""
        assert self.process.stdout
        async with asyncio.timeout(PATIENCE_S):
            line = await self.process.stdout.readline()
        if not line:
            raise AssertionError(f"the driver of {self.participant.name} ended, with {await self.process.wait()}")
        decoded: Line = json.loads(line)
        return decoded


class Worker(Driver):
    """A driver that runs a worker, and the lines that it has written so far."""

    def __init__(self, participant: Participant, url: str, options: Line) -> None:
        super().__init__(participant, "worker", url, {"heartbeat_s": 0, **options})
        self.lines: list[Line] = []

    async def until(self, matches: Callable[[Line], bool], times: int = 1) -> Line:
        """Wait until this many lines match; gives the last of them."""
        while len(found := [line for line in self.lines if matches(line)]) < times:
            self.lines.append(await self.line())
        return found[-1]

    async def event(self, name: str, job: str | None = None, times: int = 1) -> Line:
        """Wait for an event of the hook, of one job if given."""
        return await self.until(lambda line: line.get("event") == name and job in (None, line.get("id")), times)

    async def loss(self, job: str) -> Line:
        """Wait until a job is lost to its handler: its lease ended, or someone else ended it."""
        gone = ("job.lost", "job.expired")
        return await self.until(lambda line: line.get("event") in gone and line["id"] == job)

    async def handler(self, word: str, job: str | None = None, times: int = 1) -> Line:
        """Wait for a line of a handler, of one job if given."""
        return await self.until(lambda line: line.get("handler") == word and job in (None, line.get("id")), times)

    def told(self, key: str, word: str) -> list[str]:
        """The ids of the jobs with such a line so far, in order."""
        return [line["id"] for line in self.lines if line.get(key) == word]

    async def end(self) -> int:
        """Wait until the driver ends, reading its remaining lines; gives its exit code."""
        assert self.process.stdout
        async with asyncio.timeout(PATIENCE_S):
            self.lines += [json.loads(line) async for line in self.process.stdout]
            return await self.process.wait()

    async def logged(self) -> str:
        """Its log, a pipe, until the driver ends."""
        assert self.process.stderr
        return (await self.process.stderr.read()).decode()

    async def stop(self) -> int:
        """Send SIGTERM and wait; gives its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return await self.end()
