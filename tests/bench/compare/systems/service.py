"""Our service with a Redis of its own, as users run it: `jobqueue serve`, logging to a file."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

from tests.bench.compare.processes import cpu_us, memory
from tests.bench.compare.systems.store import Store
from tests.ports import free_port

_SERVE = [sys.executable, "-m", "jobqueue", "serve"]
_PATIENCE_S = 30


class Service:
    """A service that the constructor starts, with further flags."""

    def __init__(self, store: Store, folder: Path, *flags: str) -> None:
        self._store, self._log, self._flags = store, folder / "service.log", flags
        self._start()

    def _start(self) -> None:
        self.port = free_port()
        environment = {name: value for name, value in os.environ.items() if not name.startswith("JOBQUEUE_")}
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*_SERVE, "--port", str(self.port), "--redis", self._store.url, *self._flags],
                stdout=log,
                stderr=log,
                env=environment,
            )
        end = time.monotonic() + _PATIENCE_S
        while not self._ready():
            if self._process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"the service did not start: {self._log.read_text()[-2000:]}")
            time.sleep(0.01)

    def _ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/readyz", timeout=5) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def connect(self) -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", self.port))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def cpu_us(self) -> float:
        return cpu_us(self._process.pid)

    def memory(self) -> int:
        """Memory of all its processes, in bytes."""
        return memory(self._process.pid)

    def parked(self) -> int:
        """Pops waiting now."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=30) as answer:
            found = re.search(r"^jobqueue_parked_pops ([0-9.e+]+)$", answer.read().decode(), re.MULTILINE)
        return round(float(found[1])) if found else 0

    def again(self) -> None:
        """Stop it, empty the store, and start it."""
        self.stop()
        self._store.clear()
        self._start()

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
