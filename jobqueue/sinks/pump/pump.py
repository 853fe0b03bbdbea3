"""The pump of a sink whose messages may overtake each other, which is a worker of the Python client; and all sinks of a
file.

The sinks of a file run in one process until a signal; after SIGHUP, those that have changed restart.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Set
from typing import Any, NamedTuple

import structlog
from jobqueue_client import Job, JobQueueError, Worker
from jobqueue_client.access import AccessFields
from jobqueue_client.worker.report import OnEvent

from jobqueue.errors import SettingsError
from jobqueue.loops import stop_on_signals
from jobqueue.sinks import Common, Down, WrongDestination
from jobqueue.sinks.pump import file as files
from jobqueue.sinks.pump.file import File, Service, kind_of
from jobqueue.sinks.pump.messages import NotSent, Sender, TopicWaits
from jobqueue.sinks.pump.notices import Figures, Notices, loads
from jobqueue.sinks.pump.strict import StrictPump
from jobqueue.sinks.pump.way import Pauses, Trial, Way

log = structlog.get_logger()

_A_LIFE_S = 10 * 365 * 86_400.0
_AFTER_S = 5.0  # to settle a job after the wait for its confirmation
_WARNINGS = ("job.died", "service.lost")
_INFOS = ("service.back", "worker.started", "worker.stopped")
_ENDS = ("job.finished", "job.lost", "job.expired")


class _Trying(NamedTuple):
    """A trial under way."""

    worker: Worker
    trial: Trial


class Pump:
    """One sink at work."""

    def __init__(self, name: str, settings: Common, url: str, access: AccessFields, figures: Figures) -> None:
        self.name, self.settings = name, settings
        self._notices = Notices(name, settings, url, access)
        self._way = Way(name, settings, figures, lambda _: self._adjust(), self._pause_all, self._notices)
        self._url, self._access, self._figures = url, access, figures
        self._sender = Sender(name, settings, self._way.send, figures)
        self._bytes = 0
        self._confirmed: set[tuple[str, int]] = set()
        self._pauses = Pauses(name, figures, self._notices)
        self._retrials: dict[str, asyncio.Task[None]] = {}
        """By paused topic."""
        self._trying: dict[str, _Trying] = {}
        self._is_clean, self._stopping = True, False
        self._woken = asyncio.Event()
        self._worker = self._new_worker(settings.most_in_flight, self._told)
        self._worker.pause()
        for topic in settings.topics:
            self._worker.job(topic)(self._handle)
        figures.show(name)

    async def run(self) -> bool:
        """Work until stopped. Returns whether everything was settled. Raises the client's Refused."""
        sink = kind_of(self.settings).Sink(self.settings, self._way)
        keeping = asyncio.create_task(self._way.run(sink), name=f"sink {self.name}")
        telling = asyncio.create_task(self._notices.run())
        try:
            is_clean = await self._worker.serve()
            await asyncio.gather(*self._retrials.values())
            return is_clean and self._is_clean
        finally:
            loops = [keeping, telling, *self._retrials.values()]
            for loop in loops:
                loop.cancel()
            await asyncio.gather(*loops, return_exceptions=True)

    def stop(self) -> None:
        """Take no more jobs, and end once those in flight are settled."""
        self._stopping = True
        self._wake()
        self._worker.stop()
        self._way.stop()
        for trying in self._trying.values():
            trying.worker.stop()
            if self.settings.confirm_s is None:
                trying.trial.stop()

    def try_again(self) -> None:
        """Try the way to the broker now, if it is down, and the topics that are paused."""
        self._way.try_again()
        self._wake()

    def _new_worker(self, concurrency: int, on_event: OnEvent, max_jobs: int | None = None) -> Worker:
        return Worker(
            self._url,
            concurrency=concurrency,
            keep_alive_s=_A_LIFE_S,
            grace_s=self.settings.timeout_s + _AFTER_S,
            heartbeat_s=0,
            max_jobs=max_jobs,
            on_event=on_event,
            loads=loads,
            **self._access,
        )

    def _adjust(self) -> None:
        """Take jobs as long as the broker accepts messages and there is room."""
        if self._way.takes and self._bytes < self.settings.in_flight_mb << 20:
            self._worker.resume()
        else:
            self._worker.pause()

    async def _handle(self, job: Job) -> None:
        """Send the message of a job. Raises Retry, Bury."""
        size = len(job.body)
        self._hold(size)
        try:
            await self._sender.send(job)
        except TopicWaits as waits:
            self._pause(job.topic, waits.why)
            raise
        finally:
            self._hold(-size)
        self._confirmed.add((job.id, job.attempt))

    def _pause_all(self, topics: Set[str], reason: str) -> None:
        for topic in topics:
            self._pause(topic, reason)

    def _pause(self, topic: str, reason: str) -> None:
        if topic not in self._retrials and not self._stopping:
            self._worker.pause(topic)
            self._retrials[topic] = asyncio.create_task(self._retry(topic, reason), name=f"trials {self.name} {topic}")

    async def _retry(self, topic: str, reason: str) -> None:
        """Try a paused topic with one job now and then, and resume the topic once its destination has accepted or
        refused one."""
        while reason:
            pause_s = self._pauses.failed(topic, reason)
            if not self._stopping:
                await self._wait(pause_s)
            if self._stopping:
                return
            try:
                reason = await self._tried(topic)
            except JobQueueError as error:
                reason = str(error)
        if not self._stopping:
            self._pauses.works(topic)
            del self._retrials[topic]
            self._worker.resume(topic)

    async def _tried(self, topic: str) -> str:
        """Why the next job of a topic could not be sent, or an empty string if it could, or the sink stops. Raises the
        client's Refused."""
        reason, trial = "", Trial(self.settings)
        sender = Sender(self.name, self.settings, trial.send, self._figures)

        async def handle(job: Job) -> None:
            nonlocal reason
            try:
                await sender.send(job)
            except NotSent as error:
                reason = error.why
                raise
            self._confirmed.add((job.id, job.attempt))

        worker = self._new_worker(1, self._told_of_trial, max_jobs=1)
        worker.job(topic)(handle)
        self._trying[topic] = _Trying(worker, trial)
        try:
            self._is_clean &= await worker.serve()
        finally:
            del self._trying[topic]
        return reason

    async def _wait(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._woken.wait()

    def _wake(self) -> None:
        """End all waits."""
        self._woken.set()
        self._woken = asyncio.Event()

    def _hold(self, size: int) -> None:
        self._bytes += size
        self._adjust()

    def _told_of_trial(self, name: str, fields: dict[str, Any]) -> None:
        """Handle an event of a trial's worker. Its start and stop are not logged, because the pause of its topic is."""
        if name.startswith("job."):
            self._told(name, fields)

    def _told(self, name: str, fields: dict[str, Any]) -> None:
        """Handle an event of the worker."""
        if name in _ENDS and (sent := (fields["id"], fields["attempt"])) in self._confirmed:
            self._confirmed.remove(sent)
            if name != "job.finished":
                self._sender.was_lost()
        if name in _WARNINGS or name in _INFOS:
            level = log.warning if name in _WARNINGS else log.info
            level(
                name, sink=self.name, **{key: value for key, value in fields.items() if key not in ("error", "trace")}
            )


class _Running(NamedTuple):
    pump: Pump | StrictPump
    task: asyncio.Task[bool]


class Deliver:
    """Runs the sinks of a file. `load`: reads the file; raises SettingsError. `only`: the names of the sinks that run,
    or empty for all."""

    def __init__(self, file: File, load: Callable[[], File], only: frozenset[str]) -> None:
        self._file, self._load, self._only = file, load, only
        self._figures = Figures()
        self._running: dict[str, _Running] = {}
        self._stopping = asyncio.Event()
        self._reload = asyncio.Event()
        self._changed = asyncio.Event()
        self._is_clean = True

    async def run(self) -> bool:
        """Deliver until a signal. Returns True if every job that was taken has been settled, and no sink was refused. A
        second SIGTERM or SIGINT ends the wait for messages in flight. Raises OSError if scrapes cannot be answered."""
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
        """Read the file again. Sinks with unchanged settings continue; the others end, and restart with their new
        settings."""
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
    """The files with which the worker authenticates itself to the service."""
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
    """Read the file. Raises SettingsError, also if it lacks a sink that is asked for."""
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
    """Connect each sink, and report what was found. Returns whether all is well. Raises SettingsError."""
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
