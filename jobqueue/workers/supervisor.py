"""The supervisor: a service whose commands several processes answer, on one port.

It has what there is once: the settings, which it reads and checks, the Redis, the port, and the folder in which the
workers add up their metrics. A worker (jobqueue/workers/worker.py) is all of a service but these.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec

from buckets.errors import Unfit
from jobqueue.process import Lifecycle
from jobqueue.redis_server.opening import service_redis
from jobqueue.settings import RELOADED, Settings, shared_metrics_folder
from jobqueue.web.address import url_of
from jobqueue.workers.messages import Beginning
from jobqueue.workers.port import taken
from jobqueue.workers.slot import Place


class Supervisor(Lifecycle):
    """The service as one: it starts and stops its workers and everything that they share."""

    def __init__(self, settings: Settings, workers: int) -> None:
        super().__init__()
        self._settings = settings
        self._places: list[Place] = []
        self._scratch = ""
        self.workers = workers

    def reload(self, settings: Settings) -> None:
        """Let the policies of other settings hold in all workers from now on."""
        self._settings = msgspec.structs.replace(self._settings, **{name: getattr(settings, name) for name in RELOADED})
        for place in self._places:
            place.reload(self._settings)

    def kill(self) -> None:
        """End the workers at once, those too that hang."""
        for place in self._places:
            place.kill()
        shutil.rmtree(self._scratch, ignore_errors=True)

    async def _start(self) -> None:
        settings, stack = self._settings, self._stack
        folder = shared_metrics_folder()
        if folder is None:
            self._scratch = stack.enter_context(_scratch())
        redis = await stack.enter_async_context(service_redis(settings))
        address = await stack.enter_async_context(taken(settings.host, settings.port))
        self._settings = msgspec.structs.replace(self._settings, redis=redis, port=address[1])
        beginning = Beginning(self._settings, self._scratch)
        stack.push_async_callback(self._stop)
        self._places = [
            Place(number, folder or Path(self._scratch), beginning) for number in range(1, self.workers + 1)
        ]
        await asyncio.gather(*(place.listens() for place in self._places))
        self.url = url_of(address)

    async def _stop(self) -> None:
        await asyncio.gather(*(place.stop() for place in self._places))


@contextlib.contextmanager
def _scratch() -> Iterator[str]:
    """A folder for the metrics of the workers. Raises Unfit when there can be none."""
    try:
        folder = tempfile.mkdtemp(prefix="jobqueue-metrics-")
    except OSError as error:
        raise Unfit(f"no folder can be made for the metrics that workers share: {error}") from None
    lock = os.open(folder, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_SH)  # systemd-tmpfiles leaves it alone, however old it is
    try:
        yield folder
    finally:
        os.close(lock)
        shutil.rmtree(folder, ignore_errors=True)
