"""The supervisor: one service whose commands several processes answer on one port.

Where the settings say so, one more process beside them writes the journal (jobqueue/workers/journal.py), and another
one serves the console (jobqueue/cli/console/beside.py).

The supervisor holds what exists once: the settings, which it reads and checks, the Redis, the port, and the folder in
which the workers add up their metrics. A worker (jobqueue/workers/worker.py) is a service without these.

SO_REUSEPORT lets the workers listen side by side, and would let another service of the same user join them unnoticed.
So the supervisor first takes the port exclusively, before the first worker starts, then holds it with sockets that
accept nothing. This also settles the port's number if any free port will do, and keeps the port while no worker is
alive.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import socket
from collections.abc import AsyncIterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

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
from jobqueue.redis_server.opening import redis_at, service_redis
from jobqueue.settings import Loaded, Settings, shared_metrics_folder
from jobqueue.web.port import blamed_on, url_of
from jobqueue.workers import console
from jobqueue.workers.slot import Slot


@contextlib.asynccontextmanager
async def held(host: str, port: int) -> AsyncIterator[tuple[Any, ...]]:
    """Hold the port on all addresses of the host; port 0 means any free port. Yields the first address, with the port's
    number.

    Raises OSError if another program has the port, or this machine has no such address.
    """
    sockets, address = await _take(host, port)
    with sockets:
        yield address


async def _take(host: str, port: int) -> tuple[ExitStack, tuple[Any, ...]]:
    found = await asyncio.get_running_loop().getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    with ExitStack() as sockets:
        first: tuple[Any, ...] = ()
        for family, *_, address in dict.fromkeys(found):
            number = first[1] if first else port
            holder = _holder(family, (address[0], number, *address[2:]))
            if holder:
                sockets.enter_context(holder)
                first = first or holder.getsockname()
        return sockets.pop_all(), first


def _holder(family: int, address: tuple[Any, ...]) -> socket.socket | None:
    """A socket that holds an address, or None if this machine does not support the family (IPv6).

    With SO_REUSEADDR, binding succeeds beside the connections that the last service left, but also beside other sockets
    with that option. Only one of them may listen, so listening proves that the port is ours. Then the options change:
    from now on the socket tolerates only others with SO_REUSEPORT, and it stops listening.
    """
    try:
        holder = socket.socket(family, socket.SOCK_STREAM)
    except OSError:
        return None
    try:
        if family == socket.AF_INET6:
            holder.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if address[1] == 0:  # the shutdown would release a number that the kernel chose at this bind
            address = _free(family, address)
        holder.bind(address)
        holder.listen()
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        holder.shutdown(socket.SHUT_RDWR)
    except OSError as error:
        holder.close()
        reason = str(error.strerror).lower()
        raise OSError(error.errno, f"error while attempting to bind on address {address!r}: {reason}") from None
    return holder


def _free(family: int, address: tuple[Any, ...]) -> tuple[Any, ...]:
    """The address, with the number of a port that is free now."""
    with socket.socket(family) as probe:
        probe.bind(address)
        free: tuple[Any, ...] = probe.getsockname()
        return free


JOURNAL = "jobqueue.workers.journal"
"""The module of the process that writes the journal."""
_CATCH_UP_S = 10.0  # for the workers to apply other settings


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
        """Apply the policies of other settings in all workers from now on. Raises SettingsError for settings with which
        no worker would start."""
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
        """Wait until a worker answers. Returns False if none is running."""
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
        """Wait until all workers have handled their messages, but not for ever if a worker hangs."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CATCH_UP_S):
                await asyncio.gather(*(slot.answers() for slot in self._every_slot))

    def refuse_jobs(self) -> None:
        """Accept no more jobs, in any worker, over the protocols whose original servers have a drain mode."""
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
            raise Unfit(fault)  # the settings were reloaded meanwhile
        if settings.journal_run:
            self._journal = Slot("journal", folder, self._loaded(), program=JOURNAL)
        self.url = url_of(address, has_tls=bool(settings.tls_cert))

    async def _stop(self) -> None:
        if self._unix:
            self._unix.close()  # so that nobody waits there while the workers end
        await asyncio.gather(*(slot.stop() for slot in self._every_slot))

    @property
    def _every_slot(self) -> list[Slot]:
        """The workers, and the processes of the journal and the console."""
        return [*self._slots, *(each for each in (self._journal, self._console) if each)]


async def _shards_of(settings: Settings) -> int:
    """How many shards the namespace has, which the workers have created by now."""
    redis = redis_at(settings.redis, settings.redis_timeout_s)
    try:
        return (await join(redis, settings.namespace)).shards
    finally:
        await redis.close()
