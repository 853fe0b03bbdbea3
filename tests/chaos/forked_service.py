"""The service in a process that is there in a tenth of a second: forked from one that has loaded all of it.

Hundreds of kills would else wait for as many starts of Python.
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
    """What the process does."""
    output = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.dup2(output, 1)
    os.dup2(output, 2)
    chosen = settings.load(flags, environment={})
    logs.set_up("info", "text")
    with asyncio.Runner(loop_factory=process.loop_factory()) as runner:
        runner.run(process.live(Service(chosen), chosen))


class ForkedService:
    """One that is started again and again on one port. `flags`: the settings, by their names."""

    def __init__(self, log: Path, **flags: Any) -> None:
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self.log = log
        self._port = port
        self._flags = flags | {"port": port}
        self._process: BaseProcess | None = None

    def start(self) -> None:
        """Start it, without waiting for it."""
        self._process = _forks.Process(target=_serve, args=(self._flags, str(self.log)), daemon=True)
        self._process.start()

    def kill(self) -> None:
        """kill -9."""
        if self._process:
            self._process.kill()

    async def ended(self) -> None:
        """Wait until it has ended, of itself or killed."""
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
        """SIGTERM."""
        assert self._process and self._process.pid
        if self._process.is_alive():
            os.kill(self._process.pid, signal.SIGTERM)
