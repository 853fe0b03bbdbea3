"""A server of somebody else as a process in a folder of its own, which a test may freeze, kill and start again."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from abc import ABC, abstractmethod
from pathlib import Path

PATIENCE_S = 60.0


class Missing(Exception):
    """A server that is not installed."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{name} is not installed; .ci/run installs it")


class Program(ABC):
    """One server process; its data stay over a restart."""

    kind: str

    def __init__(self) -> None:
        # Not pytest's own folder: the path of a Unix socket has 107 characters at most.
        self.folder = Path(tempfile.mkdtemp(prefix="jq-server-"))
        self._process: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def command(self) -> list[str]:
        """What runs in the foreground. Raises Missing."""

    @property
    def runs(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def begin(self) -> None:
        """Start the process, and wait for nothing."""
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                self.command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def failure(self) -> RuntimeError:
        """What to raise when it does not start."""
        return RuntimeError(f"{self.kind} did not start: {(self.folder / 'log').read_text()[-2000:]}")

    def kill(self) -> None:
        """SIGKILL to all of its processes, as by the OOM killer."""
        self.signal(signal.SIGKILL)
        if self._process is not None:
            self._process.wait(PATIENCE_S)

    def freeze(self) -> None:
        """SIGSTOP: it neither answers nor closes its connections, as behind a broken network."""
        self.signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.signal(signal.SIGCONT)

    def remove(self) -> None:
        """Kill it, and remove its folder."""
        self.thaw()
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def signal(self, number: int) -> None:
        if self._process is not None and self.runs:
            os.killpg(self._process.pid, number)
