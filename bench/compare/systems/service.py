"""A process of our service, as users run it: `jobqueue serve`, logging to a file."""

from __future__ import annotations

import http.client
import os
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import orjson

from bench.compare.processes import cpu_us, memory
from tests.kit.ports import free_port

_COMMAND = [sys.executable, str(Path(__file__).parents[1] / "programs" / "serve.py"), "serve"]
_WHERE = [sys.executable, "-c", "import jobqueue, buckets; print(jobqueue.__file__, buckets.__file__)"]
_PATIENCE_S = 30


class Service:
    """A service in `folder`, of the checkout or of the version whose files are in `source`."""

    def __init__(self, folder: Path, source: Path | None = None) -> None:
        self._folder, self._source = folder, source
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *flags: str) -> None:
        """Start it and wait until it is ready."""
        self.port = free_port()
        self._check_source()
        log = self._folder / "service.log"
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [*_COMMAND, "--port", str(self.port), *flags],
                stdout=output,
                stderr=output,
                env=self._environment(),
                cwd=self._folder,
            )
        end = time.monotonic() + _PATIENCE_S
        while not self._ready():
            if self._process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"the service did not start: {log.read_text()[-2000:]}")
            time.sleep(0.01)

    def _environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("JOBQUEUE_")}
        # Like -P, for the processes that it starts too: their folders are not searched.
        kept["PYTHONSAFEPATH"] = "1"
        return {**kept, "PYTHONPATH": f"{self._source}:{self._source}/clients/python"} if self._source else kept

    def _check_source(self) -> None:
        """Raises RuntimeError if not the version that is meant would run."""
        if not self._source:
            return
        said = subprocess.run(
            _WHERE, env=self._environment(), cwd=self._folder, capture_output=True, text=True, check=True
        ).stdout
        if not all(each.startswith(f"{self._source}/") for each in said.split()):
            raise RuntimeError(f"{self._source} is not what is imported: {said}")

    def _ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/readyz", timeout=5) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def client(self) -> Client:
        return Client(self.port)

    def cpu_us(self, store_pid: int) -> float:
        """CPU microseconds of its processes, without the store, which may be among them."""
        return cpu_us(self._pid, without=store_pid)

    def memory(self, store_pid: int) -> int:
        """Memory of its processes, in bytes, without the store."""
        return memory(self._pid, without=store_pid)

    @property
    def _pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def parked(self) -> int:
        """Pops waiting now."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=30) as answer:
            found = re.search(r"^jobqueue_parked_pops ([0-9.e+]+)$", answer.read().decode(), re.MULTILINE)
        return round(float(found[1])) if found else 0

    def kill(self) -> None:
        """SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def stop(self) -> None:
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None


class Client:
    """A connection that asks one thing after another."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_PATIENCE_S)

    def ask(self, *commands: dict[str, Any]) -> Any:
        """The answer to a command, or the answers to several in one request."""
        body = orjson.dumps(commands[0] if len(commands) == 1 else commands)
        self._connection.request("POST", "/command", body, {"Content-Type": "application/json"})
        return orjson.loads(self._connection.getresponse().read())

    def close(self) -> None:
        self._connection.close()
