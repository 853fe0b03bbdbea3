"""The stage of a run: the real processes, to which nemeses may do anything."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.chaos.history import History
from tests.chaos.servers import Servers, Standalone
from tests.kit.redis_cluster import ClusterSet
from tests.kit.redis_sentinels import SentinelSet
from tests.kit.service import JOBQUEUE, ROOT, ServiceProcess
from tests.kit.waiting import until


class Instance(ServiceProcess):
    """A service process that keeps its port across restarts, with extra environment variables."""

    def __init__(self, *flags: str, log: Path, environment: Mapping[str, str]) -> None:
        super().__init__(*flags, log=log)
        self._environment = environment

    async def spawn(self) -> None:
        assert self._log
        kept = {name: value for name, value in os.environ.items() if not name.startswith("JOBQUEUE_")}
        with self._log.open("ab") as output:
            self.process = await asyncio.create_subprocess_exec(
                *(*JOBQUEUE, "serve", "--port", str(self.port), *self._flags),
                stdout=output,
                stderr=output,
                env=kept | dict(self._environment),
            )

    async def locks(self) -> int:
        """The number of timers that run in it."""
        return await self.figure("jobqueue_locks_held")


class WorkerProcess:
    """Consumers in a process of their own (load/worker.py). Each start gets a new name and a new history in the folder
    of histories."""

    def __init__(self, name: str, urls: list[str], histories: Path, seed: int) -> None:
        self._name = name
        self._urls = urls
        self._histories = histories
        self._seed = seed
        self._starts = 0
        self.process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        self._starts += 1
        name = f"{self._name}.{self._starts}."
        history = self._histories / f"{name}jsonl"
        arguments = (name, str(self._seed), str(history), *self._urls)
        self.process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.chaos.load.worker", *arguments, cwd=ROOT
        )
        await until(history.exists)  # until then SIGTERM would not end it cleanly

    def signal(self, number: int) -> None:
        assert self.process
        self.process.send_signal(number)

    async def kill(self) -> None:
        """Send SIGKILL."""
        if self.process and self.process.returncode is None:
            self.process.kill()
            await self.process.wait()

    async def stop(self) -> None:
        """Send SIGTERM, so that it finishes the jobs in hand."""
        if self.process and self.process.returncode is None:
            self.signal(signal.SIGTERM)
            await self.process.wait()


@dataclass
class Stage:
    """Everything that runs, and the history of what is done to it. `chance` makes the random choices of nemeses."""

    servers: Servers
    instances: list[Instance]
    workers: list[WorkerProcess]
    history: History
    chance: random.Random
    folder: Path

    @property
    def urls(self) -> list[str]:
        return [instance.url for instance in self.instances]

    @property
    def standalone(self) -> Standalone:
        """The single Redis, for nemeses of standalone scenarios."""
        assert isinstance(self.servers, Standalone)
        return self.servers

    @property
    def replicated(self) -> SentinelSet | ClusterSet:
        """The servers that have replicas: one of two classes that share the methods for what both can do."""
        assert isinstance(self.servers, SentinelSet | ClusterSet)
        return self.servers
