"""All sinks of a file, in one process: until a signal, and anew after SIGHUP."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from typing import NamedTuple

import structlog
from jobqueue_client import JobQueueError
from jobqueue_client.access.options import AccessFields

from jobqueue.errors import SettingsError
from jobqueue.loops import stop_on_signals
from jobqueue.sinks import Common, Down, WrongDestination
from jobqueue.sinks.pump import file as files
from jobqueue.sinks.pump.file import File, Service, kind_of
from jobqueue.sinks.pump.notices import Figures
from jobqueue.sinks.pump.pump import Pump
from jobqueue.sinks.pump.strict import StrictPump

log = structlog.get_logger()


class _Running(NamedTuple):
    pump: Pump | StrictPump
    task: asyncio.Task[bool]


class Deliver:
    """The sinks of a file. `load`: reads it; raises SettingsError. `only`: the names of those that run; empty: all."""

    def __init__(self, file: File, load: Callable[[], File], only: frozenset[str]) -> None:
        self._file, self._load, self._only = file, load, only
        self._figures = Figures()
        self._running: dict[str, _Running] = {}
        self._stopping = asyncio.Event()
        self._reload = asyncio.Event()
        self._changed = asyncio.Event()
        self._is_clean = True

    async def run(self) -> bool:
        """Deliver until a signal. Whether all that was taken has been settled, and no sink was refused. A second
        SIGTERM or SIGINT ends the wait for what is in flight. Raises OSError where scrapes cannot be answered."""
        service = self._file.service
        if service.metrics_port:
            self._figures.serve(service.metrics_host, service.metrics_port)
        stop_on_signals(self._stop)
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._ask_reload)
        self._begin(self._file)
        while self._running and not self._stopping.is_set():
            self._changed.clear()
            self._reap()
            if self._running and not self._reload.is_set():
                await self._changed.wait()
            if self._reload.is_set() and not self._stopping.is_set():
                self._reload.clear()
                await self._read_again()
        await self._end(list(self._running))
        return self._is_clean

    def _stop(self) -> None:
        if self._stopping.is_set():
            for running in self._running.values():
                running.task.cancel()
        self._stopping.set()
        self._changed.set()

    def _ask_reload(self) -> None:
        self._reload.set()
        self._changed.set()

    def _begin(self, file: File) -> None:
        for name, settings in file.sinks.items():
            if name not in self._running and (not self._only or name in self._only):
                service = file.service
                kind = StrictPump if settings.order == "strict" else Pump
                pump = kind(name, settings, service.url, access_of(service), self._figures)
                task = asyncio.create_task(pump.run(), name=f"pump {name}")
                task.add_done_callback(lambda _: self._changed.set())
                self._running[name] = _Running(pump, task)

    def _reap(self) -> None:
        """Take note of sinks that have ended by themselves."""
        for name, running in list(self._running.items()):
            if running.task.done():
                self._note_end(name)

    def _note_end(self, name: str) -> None:
        running = self._running.pop(name)
        if running.task.cancelled():
            self._is_clean = False
            return
        error = running.task.exception()
        if isinstance(error, JobQueueError):
            log.error("sink.ended", sink=name, reason=str(error))
        elif error is not None:
            log.error("sink.ended", sink=name, reason=type(error).__name__, exc_info=error)
        self._is_clean = self._is_clean and error is None and running.task.result()

    async def _end(self, names: list[str]) -> None:
        for name in names:
            self._running[name].pump.stop()
        await asyncio.gather(*(self._running[name].task for name in names), return_exceptions=True)
        for name in names:
            self._note_end(name)

    async def _read_again(self) -> None:
        """Sinks that stand as they stood go on; the others end, and begin as they stand now."""
        try:
            file = self._load()
        except SettingsError as error:
            log.error("sinks.refused", reason=str(error))
            file = self._file
        is_same = file.service == self._file.service
        changed = [name for name in self._running if not is_same or file.sinks.get(name) != self._file.sinks.get(name)]
        self._file = file
        await self._end(changed)
        for running in self._running.values():
            running.pump.try_again()
        self._begin(file)
        log.info("sinks.read", changed=changed, sinks=list(self._running))


def access_of(service: Service) -> AccessFields:
    """What the worker shows the service."""
    return {
        "token_file": service.token_file,
        "ca_file": service.ca_file,
        "cert_file": service.cert_file,
        "key_file": service.key_file,
    }


async def deliver(path: str, only: frozenset[str]) -> bool:
    """Run the sinks of a file. Raises SettingsError before anything begins."""
    file = _loaded(path, only)
    return await Deliver(file, lambda: files.load(path), only).run()


def _loaded(path: str, only: frozenset[str]) -> File:
    """The file, which has the sinks that are asked for. Raises SettingsError."""
    file = files.load(path)
    unknown = sorted(only - file.sinks.keys())
    if unknown:
        raise SettingsError(f"{path} has no sink {unknown[0]}; it has {', '.join(sorted(file.sinks))}")
    return file


class _Nobody:
    """Events of a sink that sends nothing."""

    def lost(self, down: Down) -> None:
        pass

    def blocked(self, reason: str) -> None:
        pass


async def check(path: str, only: frozenset[str], tell: Callable[[str], None]) -> bool:
    """Connect each sink, and tell what there is. Whether all is well. Raises SettingsError."""
    file = _loaded(path, only)
    results = [await _check(name, settings, tell) for name, settings in file.sinks.items() if not only or name in only]
    return all(results)


async def _check(name: str, settings: Common, tell: Callable[[str], None]) -> bool:
    sink = kind_of(settings).Sink(settings, _Nobody())
    try:
        async with asyncio.timeout(settings.timeout_s):
            await sink.connect()
            lines = await sink.check()
    except (Down, WrongDestination, TimeoutError) as error:
        tell(f"{name}: {settings.kind}: {str(error) or f'no connection within {settings.timeout_s:g} s'}")
        if isinstance(error, Down) and error.cure:
            tell(error.cure)
        return False
    finally:
        await sink.close()
    for line in (f"{settings.kind}: connected", *lines):
        tell(f"{name}: {line}")
    return True
