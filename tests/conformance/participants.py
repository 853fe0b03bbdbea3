"""Who takes part: the clients, by their drivers (README.md), and what each cannot."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, Self

from tests.acceptance.service import ROOT

DRIVERS = Path(__file__).parent / "drivers"
PATIENCE_S = 30.0
_LONGEST_LINE = 16 << 20  # bytes

Line = dict[str, Any]


class Participant(NamedTuple):
    """A client: its driver, and the program that it needs."""

    name: str
    command: list[str]
    concurrent: bool = True  # its worker runs several handlers at a time

    def lacks(self) -> str | None:
        """What is missing on this machine; None when nothing is."""
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
    """A driver's process. `async with`."""

    log: int | None = None  # where its logs go: to the test's standard error

    def __init__(self, participant: Participant, mode: str, url: str, options: Line) -> None:
        self.participant = participant
        self._command = [*participant.command, mode, url, json.dumps(options)]
        self.process: asyncio.subprocess.Process

    async def __aenter__(self) -> Self:
        self.process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=self.log,
            limit=_LONGEST_LINE,
            cwd=ROOT,
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
        # A child of it may hold its standard output open, and asyncio waits for the end of that.
        self.process._transport.close()  # type: ignore[attr-defined]  # there is no public way

    async def ask(self, call: str, args: Line) -> Line:
        """Let the client do something; what came of it."""
        await self.begin(call, args)
        return await self.line()

    async def begin(self, call: str, args: Line) -> None:
        assert self.process.stdin
        self.process.stdin.write(json.dumps({"call": call, "args": args}).encode() + b"\n")
        await self.process.stdin.drain()

    async def line(self) -> Line:
        """The next line that it writes."""
        assert self.process.stdout
        async with asyncio.timeout(PATIENCE_S):
            line = await self.process.stdout.readline()
        if not line:
            raise AssertionError(f"the driver of {self.participant.name} ended, with {await self.process.wait()}")
        told: Line = json.loads(line)
        return told


class Worker(Driver):
    """A driver that works, and all that it told so far."""

    def __init__(self, participant: Participant, url: str, options: Line) -> None:
        super().__init__(participant, "worker", url, {"heartbeat_s": 0, **options})
        self.lines: list[Line] = []

    async def until(self, told: Callable[[Line], bool], times: int = 1) -> Line:
        """Wait until it told something so often; the last of these lines."""
        while len(found := [line for line in self.lines if told(line)]) < times:
            self.lines.append(await self.line())
        return found[-1]

    async def event(self, name: str, job: str | None = None, times: int = 1) -> Line:
        """Wait for an event of the hook, of a job."""
        return await self.until(lambda line: line.get("event") == name and job in (None, line.get("id")), times)

    async def handler(self, word: str, job: str | None = None, times: int = 1) -> Line:
        """Wait until a handler told this word."""
        return await self.until(lambda line: line.get("handler") == word and job in (None, line.get("id")), times)

    def told(self, key: str, word: str) -> list[str]:
        """The jobs of which it told this so far, in order."""
        return [line["id"] for line in self.lines if line.get(key) == word]

    async def end(self) -> int:
        """Wait until it is over; its exit code. Reads what it still tells."""
        assert self.process.stdout
        async with asyncio.timeout(PATIENCE_S):
            self.lines += [json.loads(line) async for line in self.process.stdout]
            return await self.process.wait()

    async def logged(self) -> str:
        """What it wrote to its log, a pipe, until its end."""
        assert self.process.stderr
        return (await self.process.stderr.read()).decode()

    async def stop(self) -> int:
        """SIGTERM; its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return await self.end()
