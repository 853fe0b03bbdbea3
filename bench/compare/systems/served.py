"""What our service has in common in all its ways: how it starts and stops, and what it costs."""

from __future__ import annotations

from collections import Counter
from importlib.metadata import version
from pathlib import Path
from typing import ClassVar

from bench.compare import Cpu
from bench.compare.load.driven import Driven
from bench.compare.load.waiting import TOPIC
from bench.compare.systems.service import Service
from bench.compare.systems.store import RunningStore, Store


class Served(Driven):
    PEER = False
    WORKERS = 1  # 0: its default
    STORE: str | None = None  # the server program of its store; None: the one of all systems

    ADDS_A_SECOND: ClassVar[int] = 25_000
    _source: Path | None = None  # the files of another version

    def start(self, folder: Path) -> None:
        self._folder = folder
        self._service = Service(folder, self._source)
        self._begin(self.WORKERS)

    def _begin(self, workers: int) -> None:
        """Start the store, if it does not run, and the service."""
        if not hasattr(self, "_store"):
            self._store: RunningStore = Store(self._folder, self.STORE)
        self._service.start("--redis", self._store.url, "--workers", str(workers), *self._flags())

    def _flags(self) -> list[str]:
        """Further flags of the service."""
        return []

    def stop(self) -> None:
        if hasattr(self, "_service"):
            self._service.stop()
        if hasattr(self, "_store"):
            self._store.stop()

    def version(self) -> str:
        return version("jobqueue")

    def clear(self) -> None:
        self._again(self.WORKERS)

    def _again(self, workers: int) -> None:
        """Stop the service, empty the store, and start the service."""
        self._service.stop()
        self._store.clear()
        self._begin(workers)

    def cpu(self) -> Cpu:
        return Cpu(self._store.cpu_us(), self._service.cpu_us(self._store.pid))

    def memory(self) -> int:
        return self._store.memory()

    def _costs(self) -> tuple[int, int]:
        return self._service.memory(self._store.pid), self._store.connections()

    def _waiting(self) -> int:
        return self._service.parked()

    def _totals(self) -> Counter[str]:
        """How many jobs were created, delivered and finished since the last `clear`."""
        client = self._service.client()
        totals = Counter(client.ask({"command": "stats", "topic": TOPIC})["totals"])
        client.close()
        return totals

    def _address(self) -> str:
        return str(self._service.port)
