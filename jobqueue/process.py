"""The life of a service in its process: it starts, signals reload it and stop it.

What lives is the service itself (jobqueue/app.py) or the supervisor of its workers (jobqueue/workers/supervisor.py).
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from typing import Any, Protocol

import structlog

from buckets.errors import JobQueueError
from jobqueue.errors import SettingsError
from jobqueue.redis_server.fitness import without_secret
from jobqueue.settings import RELOADED, Settings

log = structlog.get_logger()


class Living(Protocol):
    """What is started, reloaded and stopped here."""

    url: str
    """Where it listens, once it does."""
    workers: int
    """How many processes answer there."""

    async def __aenter__(self) -> Living: ...
    async def __aexit__(self, *exception: object) -> None: ...

    def reload(self, settings: Settings) -> None:
        """Let the policies of other settings hold from now on."""

    def kill(self) -> None:
        """End at once what does not end with this process."""


def keep_standard_streams() -> None:
    """Where one of them is closed, let it lead nowhere. Else a connection gets its number, and libuv ends the process
    that closes this; a worker would not even start."""
    while (stream := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(stream, True)
    os.close(stream)


def loop_factory() -> Any:
    """uvloop where there is one: 1.2 times the requests (docs/libraries.md)."""
    if sys.platform == "win32":
        return None
    import uvloop  # noqa: PLC0415 - not there on Windows

    return uvloop.new_event_loop


def refusal(error: JobQueueError | OSError, settings: Settings) -> str:
    """Why a service does not start, in a sentence."""
    if isinstance(error, JobQueueError):
        return error.message
    return f"cannot listen on {settings.host}:{settings.port}: {error.strerror or error}"


async def live(
    service: Living,
    settings: Settings,
    started: Callable[[str], None] | None = None,
    read_anew: Callable[[], Settings] | None = None,
) -> None:
    """Run a service until SIGTERM or SIGINT; a second one ends the process at once. `started(url)` is called when it
    listens. SIGHUP lets the policies of `read_anew()` hold; where it is not given, SIGHUP (a terminal that was closed)
    stops the service too."""
    stop = asyncio.Event()

    def told_to_stop() -> None:
        if stop.is_set():
            service.kill()
            os._exit(1)  # what is reserved comes back after its TTR, and the next start takes our Redis over
        log.info("service.stopping")
        stop.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told_to_stop)
    hang_up = Reloads(service, settings, read_anew).reload if read_anew else told_to_stop
    loop.add_signal_handler(signal.SIGHUP, hang_up)

    def listens() -> None:
        redis = without_secret(settings.redis)
        log.info("service.started", url=service.url, namespace=settings.namespace, redis=redis, workers=service.workers)
        if started:
            started(service.url)

    await run(service, stop, listens)
    log.info("service.stopped")


async def run(service: Living, stop: asyncio.Event, listens: Callable[[], None]) -> None:
    """Run a service until it is told to stop; `listens` is called when it does. Raises what went wrong at its start."""
    starting = asyncio.create_task(service.__aenter__())
    waiting = asyncio.create_task(stop.wait())
    await asyncio.wait({starting, waiting}, return_when=asyncio.FIRST_COMPLETED)
    if not starting.done():  # told to stop while Redis still loads, or does not answer
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

    def __init__(self, service: Living, settings: Settings, read_anew: Callable[[], Settings]) -> None:
        self._service = service
        self._begun = settings
        self._last = settings  # what they change in a running service holds
        self._read_anew = read_anew

    def reload(self) -> None:
        """A bad file changes nothing, and the log says what is wrong with it."""
        try:
            settings = self._read_anew()
        except SettingsError as error:
            log.error("settings.refused", error=str(error))
            return
        self._service.reload(settings)
        changed = settings.unlike(self._last)
        waiting = [name for name in settings.unlike(self._begun) if name not in RELOADED]
        self._last = settings
        log.info("settings.reloaded", changed=changed, **({"need_a_restart": waiting} if waiting else {}))
