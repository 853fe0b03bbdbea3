"""The process of a service: it starts the service, reloads it at SIGHUP, and stops it at SIGTERM and SIGINT.

It runs a `Lifecycle`: the service itself (jobqueue/app.py) or a supervisor of several workers
(jobqueue/workers/supervisor.py).

The service manager is notified that the service is ready, reloads, stops, and still answers (sd_notify). systemd names
a datagram socket in NOTIFY_SOCKET, and says in WATCHDOG_USEC how often it expects a notification. Without a socket
there is nothing to notify, and every call does nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
import socket
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, MutableMapping
from contextlib import AsyncExitStack
from functools import partial
from typing import Any, Self

import structlog

from buckets.errors import JobQueueError
from jobqueue.access.secret_values import without_secret
from jobqueue.dialect_settings import addresses
from jobqueue.errors import SettingsError
from jobqueue.loops import Loop, log_ignored, on_signal, running, stop_on_signals
from jobqueue.settings import Loaded, Settings, Sources
from jobqueue.web.port import is_in_use

log = structlog.get_logger()

_SOCKET, _WATCHDOG, _WATCHDOG_PID = _VARIABLES = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")
_PATIENCE_S = 0.1  # for a manager that does not read: the service answers nothing meanwhile


class Notify:
    """Notifies the service manager. `address`: the address of the manager's socket, which begins with `@` if the socket
    is abstract, or an empty string if there is no manager. `watchdog_s`: how long a service may be silent before the
    manager considers it hung, or 0 if the manager does not watch."""

    def __init__(self, address: str = "", watchdog_s: float = 0.0) -> None:
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self.watchdog_s = watchdog_s if address else 0.0
        self._stops = False

    def ready(self) -> None:
        """Notify that the service listens, or has reloaded. Does nothing once the service is stopping."""
        if not self._stops:
            self._send("READY=1")

    def reloading(self) -> None:
        """Notify that the service reloads; `ready` follows."""
        self._send(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self) -> None:
        """Notify that the service has begun to stop."""
        self._stops = True
        self._send("STOPPING=1")

    def answers(self) -> None:
        """Notify that the service is not hung."""
        self._send("WATCHDOG=1")

    def _send(self, message: str) -> None:
        """Send a message, or log why it was not sent: a service also works without a manager."""
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                sender.settimeout(_PATIENCE_S)
                sender.sendto(message.encode(), self._address)
        except OSError as error:
            log.warning("notify.failed", message=message.partition("\n")[0], error=str(error))


def taken_from(environment: MutableMapping[str, str], pid: int) -> Notify:
    """The notifications that the environment asks of the process `pid`. The variables are removed, so that the
    processes that this one starts do not notify."""
    values = {name: environment.pop(name, "") for name in _VARIABLES}
    watchdog_s = 0.0
    if values[_WATCHDOG_PID] in ("", str(pid)):
        with contextlib.suppress(ValueError):
            watchdog_s = max(0, int(values[_WATCHDOG])) / 1e6
    return Notify(values[_SOCKET], watchdog_s)


_WATCHES = 3  # notifications in the watchdog's time: one may be late


class Lifecycle(ABC):
    """Something that is started and stopped by `async with`, and can be reloaded.

    `_start` pushes a callback onto `_stack` as soon as there is something to stop. The callbacks run in the reverse
    order, also if the start fails or is cancelled half-way.
    """

    workers = 1
    """How many processes answer."""

    def __init__(self) -> None:
        self._stack = AsyncExitStack()
        self.url = ""
        """The URL at which it listens, once it does."""
        self.sources: Sources = {}
        """Where its settings came from."""

    async def __aenter__(self) -> Self:
        try:
            await self._start()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self._stack.aclose()

    @abstractmethod
    async def _start(self) -> None:
        """Start, and return when it listens."""

    @abstractmethod
    def reload(self, later: Loaded) -> None:
        """Apply the policies of other settings from now on. Raises SettingsError, and changes nothing, for settings
        that this service cannot use."""

    async def answers(self) -> bool:
        """Wait until one of the processes answers. Returns False if none is running at the moment."""
        return True

    async def caught_up(self) -> None:
        """Wait until all processes have applied the reloaded settings; a single process applies them at once."""
        await self.answers()

    @abstractmethod
    def refuse_jobs(self) -> None:
        """Accept no more jobs over the protocols whose original servers have a drain mode."""

    @abstractmethod
    def kill(self) -> None:
        """End at once whatever does not end with this process."""


def keep_standard_streams() -> None:
    """Open the null device for each standard stream that is closed. Otherwise a connection would get its number, libuv
    would end the process that closes it, and a worker would not even start."""
    while (stream := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(stream, True)
    os.close(stream)


def loop_factory() -> Any:
    """uvloop where it exists: it serves 1.2 times as many requests (docs/libraries.md)."""
    if sys.platform == "win32":
        return None
    import uvloop  # noqa: PLC0415 - does not exist on Windows

    return uvloop.new_event_loop


def refusal(error: JobQueueError | OSError, settings: Settings) -> str:
    """Why a service does not start, in a sentence."""
    if isinstance(error, JobQueueError):
        return error.message
    if error.errno == errno.EADDRINUSE:
        return f"port {settings.port} {is_in_use(settings.port)}"
    return f"cannot listen on {settings.host}:{settings.port}: {error.strerror or error}"


async def live(
    service: Lifecycle,
    settings: Settings,
    started: Callable[[str], None] | None = None,
    reread: Callable[[], Loaded] | None = None,
) -> None:
    """Run a service until SIGTERM or SIGINT; a second one ends the process at once. `started(url)` is called when it
    listens. SIGHUP applies the policies of `reread()`; without `reread`, SIGHUP (its terminal was closed) stops the
    service too. On SIGUSR1 the beanstalkd protocol accepts no more jobs, as beanstalkd itself does; SIGUSR2 is logged.
    The service manager, if there is one, is notified of all this."""
    stop = asyncio.Event()
    notify = taken_from(os.environ, os.getpid())

    def request_stop() -> None:
        if stop.is_set():
            service.kill()
            os._exit(1)  # reserved jobs come back after their TTR, and the next start takes over the embedded Redis
        log.info("service.stopping")
        notify.stopping()
        stop.set()

    def drain() -> None:
        if settings.protocols.beanstalkd is None:
            log_ignored(signal.SIGUSR1)
            return
        log.info("service.draining", protocols=["beanstalkd"])
        service.refuse_jobs()

    stop_on_signals(request_stop)
    if reread:
        # Also if nohup started the service: nohup only protects it from being stopped when its terminal is closed.
        reloads = Reloads(service, settings, reread, notify)
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, reloads.reload)
    on_signal(signal.SIGUSR1, drain)

    def listens() -> None:
        redis = without_secret(settings.redis)
        protocols = addresses(settings.protocols, settings.host)
        log.info(
            "service.started",
            url=service.url,
            namespace=settings.namespace,
            redis=redis,
            workers=service.workers,
            **({"protocols": protocols} if protocols else {}),
        )
        notify.ready()
        if started:
            started(service.url)

    async with running(*([Loop("watchdog", partial(watch, service, notify))] if notify.watchdog_s else [])):
        await run(service, stop, listens)
    log.info("service.stopped")


async def watch(service: Lifecycle, notify: Notify) -> None:
    """Notify several times in the watchdog's time, for as long as the service answers."""
    while True:
        await asyncio.sleep(notify.watchdog_s / _WATCHES)
        if await service.answers():
            notify.answers()


async def run(service: Lifecycle, stop: asyncio.Event, listens: Callable[[], None]) -> None:
    """Run a service until `stop` is set; `listens` is called when it listens. Raises whatever its start raised."""
    starting = asyncio.create_task(service.__aenter__())
    waiting = asyncio.create_task(stop.wait())
    await asyncio.wait({starting, waiting}, return_when=asyncio.FIRST_COMPLETED)
    if not starting.done():  # stopped while Redis still loads, or does not answer
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        return
    await starting  # raises what went wrong
    try:
        listens()
        await waiting
    finally:
        await service.__aexit__()


class Reloads:
    """What SIGHUP does to a service."""

    def __init__(self, service: Lifecycle, settings: Settings, reread: Callable[[], Loaded], notify: Notify) -> None:
        self._service = service
        self._notify = notify
        self._finishing: asyncio.Task[None] | None = None
        self._at_start = settings
        self._latest = settings  # the last ones read; only those that a running service can change are in effect
        self._reread = reread

    def reload(self) -> None:
        """Apply the settings file as it is now. A bad file changes nothing, and the log says what is wrong with it."""
        if not self._service.url:  # it is still starting: `ready` is sent once it listens
            self._apply()
            return
        self._notify.reloading()
        self._apply()
        if self._finishing:
            self._finishing.cancel()
        self._finishing = asyncio.create_task(self._finish(), name="reload")

    async def _finish(self) -> None:
        await self._service.caught_up()
        self._notify.ready()

    def _apply(self) -> None:
        try:
            later = self._reread()
            self._service.reload(later)
        except SettingsError as error:
            log.error("settings.refused", error=str(error))
            return
        settings = later.settings
        changed = settings.unlike(self._latest)
        waiting = self._at_start.need_restart(settings)
        self._latest = settings
        log.info("settings.reloaded", changed=changed, **({"need_a_restart": waiting} if waiting else {}))
