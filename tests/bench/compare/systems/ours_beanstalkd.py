"""Our own service by beanstalkd's protocol: the same client and the same works as the real one."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

from tests.bench.compare import Cpu
from tests.bench.compare.systems.beanstalkd import Beanstalkd
from tests.bench.compare.systems.service import Service
from tests.bench.compare.systems.store import Store
from tests.ports import free_port


class OursByBeanstalkd(Beanstalkd):
    NAME = "ours-beanstalkd"
    DESCRIPTION = (
        "`jobqueue serve` by beanstalkd's protocol, with the client of beanstalkd and in its way: whole seconds, the "
        "id in the body, batches pipelined; commands of a connection are carried out one after the other"
    )
    PEER = False
    SCALE = 0.25
    MOST_PENDING = 100_000

    def start(self, folder: Path) -> None:
        self._store = Store(folder)
        self._port = free_port()
        config = folder / "jobqueue.toml"
        config.write_text(f"[protocols.beanstalkd]\nport = {self._port}\n")
        self._service = Service(self._store, folder, "--config", str(config))
        self._next = 0

    def stop(self) -> None:
        if hasattr(self, "_service"):
            self._service.stop()
        if hasattr(self, "_store"):
            self._store.stop()

    def version(self) -> str:
        return version("jobqueue")

    def clear(self) -> None:
        self._service.again()

    def cpu(self) -> Cpu:
        return Cpu(self._store.cpu_us(), self._service.cpu_us())

    def memory(self) -> int:
        return self._store.memory()

    def _costs(self) -> tuple[int, int]:
        return self._service.memory(), self._store.connections()

    def _waiting(self) -> int:
        return self._service.parked()
