"""A real service in a process of its own, and a client for it, for tests from outside."""

from __future__ import annotations

import asyncio
import io
import json
import os
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import aiohttp

from tests.kit.forked import PROGRAM, Process, started
from tests.kit.ports import free_port
from tests.kit.waiting import PATIENCE_S

ROOT = Path(__file__).parents[2]
JOBQUEUE = PROGRAM


class ServiceProcess:
    """`jobqueue serve` as a process. Use `async with`, or `start` and `kill`.

    By default one process answers, so that killing it kills the whole service. `workers` 0: as many as the cores allow;
    None: no such flag. `environment`: variables besides those of the tests. `program`: the command that is run; without
    one, the process is forked where that is the same.
    """

    def __init__(
        self,
        *flags: str,
        port: int | None = None,
        log: Path | None = None,
        workers: int | None = 1,
        program: Sequence[str] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.port = port or free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._flags = flags if workers is None else ("--workers", str(workers), *flags)
        self._log = log
        self._program = program
        self._environment = environment or {}
        self.process: Process | None = None

    async def start(self, within_s: float = PATIENCE_S) -> ServiceProcess:
        """Start it and wait until it is ready."""
        await self.spawn()
        await self._ready(within_s)
        return self

    async def refusal(self, within_s: float = PATIENCE_S) -> str:
        """Start it, wait until it exits with 1, and return its log."""
        await self.spawn()
        assert self.process and self._log
        async with asyncio.timeout(within_s):
            assert await self.process.wait() == 1
        return self._log.read_text()

    async def spawn(self) -> None:
        """Start it, and wait for nothing."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("JOBQUEUE_")}
        environment |= self._environment
        arguments = ["serve", "--port", str(self.port), *self._flags]
        with (self._log or Path(os.devnull)).open("ab") as output:
            if self._program is None:
                self.process = await started(arguments, environment, stdout=output, stderr=output)
            else:
                self.process = await asyncio.create_subprocess_exec(
                    *self._program, *arguments, stdout=output, stderr=output, env=environment
                )

    async def _ready(self, within_s: float) -> None:
        assert self.process
        end = time.monotonic() + within_s
        async with aiohttp.ClientSession() as session:
            while time.monotonic() < end:
                if self.process.returncode is not None:
                    break
                try:
                    async with session.get(self.url + "/readyz") as response:
                        if response.status == 200:
                            return
                except aiohttp.ClientError:
                    pass
                await asyncio.sleep(0.02)
        raise AssertionError(f"the service did not become ready: {self._log.read_text() if self._log else ''}")

    async def parked(self, number: int) -> bool:
        """Whether `number` pops are waiting at it."""
        return await self.figure("jobqueue_parked_pops") == number

    async def figure(self, name: str) -> int:
        """The value of a metric without labels."""
        async with aiohttp.ClientSession() as session, session.get(self.url + "/metrics") as response:
            lines = (await response.text()).splitlines()
        (value,) = (line.split()[1] for line in lines if line.startswith(f"{name} "))
        return int(float(value))

    def signal(self, number: int) -> None:
        assert self.process
        self.process.send_signal(number)

    async def kill(self) -> None:
        """SIGKILL."""
        await self._end(signal.SIGKILL)

    async def stop(self) -> int:
        """SIGTERM; returns the exit code."""
        return await self._end(signal.SIGTERM)

    async def _end(self, number: int) -> int:
        assert self.process
        if self.process.returncode is None:
            self.process.send_signal(number)
        return await self.process.wait()

    async def __aenter__(self) -> ServiceProcess:
        return await self.start()

    async def __aexit__(self, *exception: object) -> None:
        if await self._end_in_order() is None:
            await self.kill()

    async def _end_in_order(self) -> int | None:
        try:
            async with asyncio.timeout(20):
                return await self.stop()
        except TimeoutError:
            return None


class Client:
    """Commands to a service, as JSON over HTTP. `async with`."""

    def __init__(self, url: str, token: str = "") -> None:
        """`token`: what it shows, if anything."""
        self.url = url
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Client:
        self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), headers=self._headers)
        return self

    async def __aexit__(self, *exception: object) -> None:
        assert self._session
        await self._session.close()

    async def post(self, data: bytes) -> tuple[int, Any]:
        """The status and the parsed answer."""
        assert self._session
        async with self._session.post(self.url + "/command", data=io.BytesIO(data)) as response:
            return response.status, json.loads(await response.read())

    async def ask(self, command: str, **fields: Any) -> Any:
        """One command; the answer."""
        return (await self.post(json.dumps({"command": command, **fields}).encode()))[1]

    async def batch(self, commands: list[dict[str, Any]]) -> Any:
        """An array of commands; the answers."""
        return (await self.post(json.dumps(commands).encode()))[1]

    async def insist(self, command: str, **fields: Any) -> Any:
        """One command, repeated until the service takes it: it may be down, or refuse for now."""
        while True:
            try:
                answer = await self.ask(command, **fields)
                if answer["success"] or answer["code"] not in ("UNAVAILABLE", "SHUTTING_DOWN", "NO_ROOM"):
                    return answer
            except (aiohttp.ClientError, ConnectionError):
                pass
            await asyncio.sleep(0.02)
