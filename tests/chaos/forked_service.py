"""The service in a process that starts in a tenth of a second: forked from one that has loaded all modules.

Otherwise hundreds of kills would mean hundreds of Python starts.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
from collections.abc import Mapping
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from jobqueue import logs, process, settings
from jobqueue.app import Service
from tests.ports import free_port

_forks = multiprocessing.get_context("forkserver")
_forks.set_forkserver_preload([__name__])


def _serve(flags: Mapping[str, Any], log: str) -> None:
    """Run the service in the forked process."""
    output = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.dup2(output, 1)
    os.dup2(output, 2)
    chosen = settings.load(flags, environment={})
    logs.set_up("info", "text")
    with asyncio.Runner(loop_factory=process.loop_factory()) as runner:
        runner.run(process.live(Service(chosen), chosen))


class ForkedService:
    """A service that is restarted again and again on one port. `flags`: its settings by name."""

    def __init__(self, log: Path, **flags: Any) -> None:
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self.log = log
        self._port = port
        self._flags = flags | {"port": port}
        self._process: BaseProcess | None = None

    def start(self) -> None:
        """Start it without waiting for it to be ready."""
        self._process = _forks.Process(target=_serve, args=(self._flags, str(self.log)), daemon=True)
        self._process.start()

    def kill(self) -> None:
        """Send SIGKILL."""
        if self._process:
            self._process.kill()

    async def ended(self) -> None:
        """Wait until it has ended, by itself or killed."""
        assert self._process
        loop, process = asyncio.get_running_loop(), self._process
        ended = asyncio.Event()
        loop.add_reader(process.sentinel, ended.set)
        try:
            await ended.wait()
        finally:
            loop.remove_reader(process.sentinel)
        process.join()

    def stop(self) -> None:
        """Send SIGTERM."""
        assert self._process and self._process.pid
        if self._process.is_alive():
            os.kill(self._process.pid, signal.SIGTERM)
