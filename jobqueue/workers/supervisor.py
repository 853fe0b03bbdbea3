"""The supervisor: one service whose commands several processes answer on one port.

Where the settings say so, one more process beside them writes the journal (jobqueue/workers/journal.py), and another
one serves the console (jobqueue/cli/console/beside.py).

It holds what exists once: the settings, which it reads and checks, the Redis, the port, and the folder in which the
workers add up their metrics. A worker (jobqueue/workers/worker.py) is a service without these.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from pathlib import Path

import msgspec

from buckets.errors import Unfit
from buckets.namespace import join
from jobqueue.access.modes import warn_where_open
from jobqueue.access.unix_socket import UnixSocket
from jobqueue.engine.new_jobs import Policies
from jobqueue.errors import SettingsError
from jobqueue.health.start import check_may_start
from jobqueue.metrics.shared import scratch_folder
from jobqueue.process import Lifecycle
from jobqueue.redis_server.fitness import redis_at
from jobqueue.redis_server.opening import service_redis
from jobqueue.settings import Loaded, Settings, shared_metrics_folder
from jobqueue.web.port import blamed_on, url_of
from jobqueue.workers import console
from jobqueue.workers.port import held
from jobqueue.workers.slot import Slot

JOURNAL = "jobqueue.workers.journal"
"""The module of the process that writes the journal."""
_CATCH_UP_S = 10.0  # for the workers to take other settings


class Supervisor(Lifecycle):
    """The service as one: it starts and stops its workers and what they share."""

    def __init__(self, settings: Settings, workers: int) -> None:
        super().__init__()
        self._settings = settings
        self._slots: list[Slot] = []
        self._journal: Slot | None = None
        self._console: Slot | None = None
        self._scratch: Path | None = None
        self._unix: UnixSocket | None = None
        self._shards = 1
        self.workers = workers

    def reload(self, later: Loaded) -> None:
        """Apply the policies of other settings in all workers from now on. Raises SettingsError for those with which no
        worker would start."""
        taken = self._loaded().reloaded(later)
        if fault := Policies(taken.settings).fault(self._shards):
            raise SettingsError(fault)
        self._settings, self.sources = taken
        for slot in self._every_slot:
            slot.reload(taken)

    def _loaded(self) -> Loaded:
        """The settings of the workers, and where they came from."""
        return Loaded(self._settings, self.sources)

    async def answers(self) -> bool:
        """Wait until a worker answers. False: none is running."""
        asked = [asyncio.create_task(slot.answers()) for slot in self._slots]
        try:
            for first in asyncio.as_completed(asked):
                if await first:
                    return True
            return False
        finally:
            for each in asked:
                each.cancel()

    async def caught_up(self) -> None:
        """Wait until all workers have done what they were told, but not for ever for one that hangs."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CATCH_UP_S):
                await asyncio.gather(*(slot.answers() for slot in self._every_slot))

    def refuse_jobs(self) -> None:
        """Take no more jobs, in any worker, over the protocols whose own servers can do that."""
        for slot in self._slots:
            slot.refuse_jobs()

    def kill(self) -> None:
        """Kill the workers, hung ones too, and remove their folder."""
        for slot in self._every_slot:
            slot.kill()
        if self._scratch:
            shutil.rmtree(self._scratch, ignore_errors=True)

    async def _start(self) -> None:
        settings, stack = self._settings, self._stack
        folder = shared_metrics_folder()
        if folder is None:
            folder = self._scratch = stack.enter_context(scratch_folder())
        await check_may_start(settings)  # what the workers could not use is refused here, before a Redis is started
        await warn_where_open(settings)
        address = await stack.enter_async_context(held(settings.host, settings.port))
        for name, options in settings.protocols.open():
            if options.port:
                with blamed_on(f"protocols.{name}", options.port):
                    await stack.enter_async_context(held(settings.host, options.port))
        if settings.console_port:
            with blamed_on("the console (console_port)", settings.console_port):
                await stack.enter_async_context(held(settings.console_host, settings.console_port))
        if settings.socket:
            self._unix = UnixSocket(settings.socket)
            stack.callback(self._unix.close)
        redis = await stack.enter_async_context(service_redis(settings))
        self._settings = msgspec.structs.replace(self._settings, redis=redis, port=address[1])
        stack.push_async_callback(self._stop)
        unix = self._unix.socket if self._unix else None
        self._slots = [Slot(number, folder, self._loaded(), unix) for number in range(1, self.workers + 1)]
        if settings.console_port:
            self._console = Slot("console", folder, self._loaded(), program=console.PROGRAM)
        await asyncio.gather(*(slot.listens() for slot in self._every_slot))
        self._shards = await _shards_of(self._settings)
        if fault := Policies(self._settings).fault(self._shards):
            raise Unfit(fault)  # they were reloaded meanwhile
        if settings.journal_run:
            self._journal = Slot("journal", folder, self._loaded(), program=JOURNAL)
        self.url = url_of(address, has_tls=bool(settings.tls_cert))

    async def _stop(self) -> None:
        if self._unix:
            self._unix.close()  # nobody is to wait there while the workers end
        await asyncio.gather(*(slot.stop() for slot in self._every_slot))

    @property
    def _every_slot(self) -> list[Slot]:
        """The workers, and the processes of the journal and the console."""
        return [*self._slots, *(each for each in (self._journal, self._console) if each)]


async def _shards_of(settings: Settings) -> int:
    """How many shards the namespace has, which the workers have founded by now."""
    redis = redis_at(settings.redis, settings.redis_timeout_s)
    try:
        return (await join(redis, settings.namespace)).shards
    finally:
        await redis.close()
