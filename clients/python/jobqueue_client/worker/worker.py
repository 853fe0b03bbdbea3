"""The public Worker: its options, its handlers, how it starts its parts, and how signals stop it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import signal
import socket
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar, Unpack

from jobqueue_client.access import AccessFields
from jobqueue_client.async_client import AsyncClient
from jobqueue_client.options import Loads, check_seconds, loads
from jobqueue_client.worker.handlers import Handlers, Work
from jobqueue_client.worker.lease import Leases
from jobqueue_client.worker.middleware import Handler, Middleware, check, is_async
from jobqueue_client.worker.outbox import Outbox
from jobqueue_client.worker.poll import OutboxSender, Poll
from jobqueue_client.worker.report import Contact, Hooks, OnDeath, OnError, OnEvent, Report
from jobqueue_client.worker.stopping import Limits, Stopping

_HEED_S = 1.0  # how long handlers have to notice that their jobs were released
_FLUSH_S = 3.0  # how long the last ends and releases may take


@dataclass(frozen=True)
class WorkerOptions:
    """The options of a worker, without those of its client. Raises ValueError for an invalid one."""

    name: str
    concurrency: int
    poll_s: float
    grace_s: float
    heartbeat_s: float
    keep_alive_s: float
    max_jobs: int | None
    max_time_s: float | None
    memory_mb: float | None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not 1 <= len(self.name) <= 128:
            raise ValueError(f"name must be a string of 1 to 128 characters, not {self.name!r}")
        for name in ("concurrency", "max_jobs"):
            value = getattr(self, name)
            if (value is not None or name == "concurrency") and (not isinstance(value, int) or value < 1):
                raise ValueError(f"{name} must be an integer of at least 1, not {value!r}")
        check_seconds("poll_s", self.poll_s, 0.001, 60)
        check_seconds("grace_s", self.grace_s, 0)
        check_seconds("heartbeat_s", self.heartbeat_s, 0)
        check_seconds("keep_alive_s", self.keep_alive_s, 0)
        if self.max_time_s is not None:
            check_seconds("max_time_s", self.max_time_s, 0.001)
        if self.memory_mb is not None and not (isinstance(self.memory_mb, int | float) and self.memory_mb > 0):
            raise ValueError(f"memory_mb must be a number above 0, not {self.memory_mb!r}")


class Lifecycle:
    """One run of a worker, from start to stop."""

    def __init__(
        self, client: AsyncClient, options: WorkerOptions, work: Work, stopping: Stopping, report: Report
    ) -> None:
        self._options = options
        self._stopping = stopping
        self._report = report
        self._limits = Limits(options.max_jobs, options.max_time_s, options.memory_mb, stopping)
        outbox = Outbox()
        self._contact = Contact(report)
        self._leases = Leases(client, self._contact, report, options.keep_alive_s)
        self._handlers = Handlers(work, options.concurrency, self._limits, outbox, self._leases, report)
        self._poll = Poll(client, self._handlers, self._contact, report, work.handlers, options.name, options.poll_s)
        self._outbox_sender = OutboxSender(client, outbox, self._poll, self._contact, report)

    def pause(self, paused: frozenset[str | None]) -> None:
        """Pop no jobs of these topics, and none at all if None is among them."""
        self._poll.pause(paused)

    async def work(self) -> bool:
        """Work until asked to stop. Returns True if all jobs ended in time. Raises Refused."""
        self._report.event("worker.started", worker=self._options.name)
        polling = asyncio.create_task(self._poll.run())
        runs = (self._outbox_sender.run(), self._leases.run(), self._heartbeats(), self._limits.watch_time())
        loops = [asyncio.create_task(run) for run in runs]
        try:
            await _first(self._stopping.asked.wait(), polling, self._contact.given_up.wait())
            if self._stopping.reason is not None:
                self._report.event("worker.stopping", worker=self._options.name, reason=self._stopping.reason)
            clean = await self._wind_down()
            if polling.done():
                polling.result()
            if self._contact.refusal is not None:
                raise self._contact.refusal
            return clean
        except asyncio.CancelledError:
            await self._poll.stop()  # cancelling is not enough: jobs that the poll still returns would stay reserved
            await self._hand_over()
            raise
        finally:
            for loop in (polling, *loops):
                loop.cancel()
            self._handlers.close()
            self._report.event("worker.stopped", worker=self._options.name, **self._report.sums)

    async def _wind_down(self) -> bool:
        end = asyncio.get_running_loop().time() + self._options.grace_s
        await self._poll.stop()
        left_s = end - asyncio.get_running_loop().time()
        await _first(self._handlers.idle(), self._stopping.hurry.wait(), within_s=max(0, left_s))
        return await self._hand_over()

    async def _hand_over(self) -> bool:
        """Release the jobs that are still running. Returns True if none were running and every end was answered."""
        finished = not self._handlers.running
        self._handlers.release_all()
        await _first(self._handlers.idle(), within_s=_HEED_S if not finished else 0)
        self._handlers.abandon()
        return await _first(self._handlers.idle(), within_s=_FLUSH_S) and finished

    async def _heartbeats(self) -> None:
        while self._options.heartbeat_s:
            await asyncio.sleep(self._options.heartbeat_s)
            running = self._handlers.running
            self._report.event("worker.heartbeat", worker=self._options.name, running=running, **self._report.sums)


async def _first(*waits: Awaitable[object], within_s: float | None = None) -> bool:
    """Wait until one of these completes; then cancel those that are not tasks. Returns False if none completed in
    time."""
    tasks = {asyncio.ensure_future(wait) for wait in waits}
    try:
        done, _ = await asyncio.wait(tasks, timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
        return bool(done)
    finally:
        for task in tasks.difference(waits):
            task.cancel()


H = TypeVar("H", bound=Handler)
M = TypeVar("M", bound=Middleware)


class Worker:
    """Runs up to `concurrency` handlers at a time: `async def` handlers as tasks, sync handlers in threads.

    clients/README.md describes the options; those that end in `_s` are seconds. The hooks are called in the event
    loop's thread, and must not block: `on_event(name, fields)` for each event, `on_error(error, job)` when a handler
    raised an error, `on_death(job, reason, error)` when a job became a dead letter. Raises ValueError for an invalid
    option, TypeError for a hook that is not a plain function.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        urls: Sequence[str] | None = None,
        concurrency: int = 10,
        name: str | None = None,
        poll_s: float = 20,
        grace_s: float = 25,
        heartbeat_s: float = 60,
        keep_alive_s: float = 3600,
        max_jobs: int | None = None,
        max_time_s: float | None = None,
        memory_mb: float | None = None,
        logger: logging.Logger | None = None,
        on_event: OnEvent | None = None,
        on_error: OnError | None = None,
        on_death: OnDeath | None = None,
        timeout_s: float = 10,
        connect_timeout_s: float = 3,
        headers: Mapping[str, str] | None = None,
        loads: Loads = loads,
        **access: Unpack[AccessFields],
    ) -> None:
        self._options = WorkerOptions(
            name=_random_name() if name is None else name,
            concurrency=concurrency,
            poll_s=poll_s,
            grace_s=grace_s,
            heartbeat_s=heartbeat_s,
            keep_alive_s=keep_alive_s,
            max_jobs=max_jobs,
            max_time_s=max_time_s,
            memory_mb=memory_mb,
        )
        # The worker does its own retries, for as long as it takes.
        self._client = AsyncClient(
            url,
            urls=urls,
            timeout_s=timeout_s,
            connect_timeout_s=connect_timeout_s,
            retry_for_s=0,
            headers=headers,
            loads=loads,
            **access,
        )
        hooks = Hooks(on_event, on_error, on_death)
        _check_hooks(hooks)
        self._report = Report(hooks, logger)
        self._handlers: dict[str, Handler] = {}
        self._middleware: list[Middleware] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping = Stopping()
        self._stopped = threading.Event()
        self._signalled = False
        self._paused: frozenset[str | None] = frozenset()
        self._lifecycle: Lifecycle | None = None

    def job(self, topic: str) -> Callable[[H], H]:
        """Decorator: register the handler of a topic's jobs. Raises ValueError if the topic already has one."""
        if not isinstance(topic, str):
            raise TypeError('job needs the topic: @worker.job("topic")')

        def register(handler: H) -> H:
            if topic in self._handlers:
                raise ValueError(f"the topic {topic!r} already has a handler")
            check(self._middleware, [handler])
            self._handlers[topic] = handler
            return handler

        return register

    def use(self, middleware: M) -> M:
        """Run `middleware(job, call_next)` around every handler; also a decorator. The first one is outermost.

        An `async def` middleware awaits `call_next(job)`; a sync one calls it, in the handler's thread, so it needs
        sync handlers. Without that call the handler does not run, and the job is finished. Raises TypeError for a sync
        middleware around an async middleware or handler.
        """
        check([*self._middleware, middleware], self._handlers.values())
        self._middleware.append(middleware)
        return middleware

    def run(self) -> bool:
        """Work until SIGTERM, SIGINT or `stop`; a second signal ends the grace period. Returns True if all jobs ended
        in time.

        Raises Refused if the service refuses a poll for a permanent reason: an invalid topic name, a topic that the
        token does not reach (Forbidden), or a token that was refused for a minute (Unauthorized).
        """
        return asyncio.run(self._run())

    async def serve(self) -> bool:
        """Like `run`, but in a running event loop and without signal handlers. Cancelling it skips the grace period."""
        if not self._handlers:
            raise ValueError("the worker has no handler: register one with @worker.job(topic)")
        if self._loop is not None:
            raise RuntimeError("a worker can run only once")
        self._loop = asyncio.get_running_loop()
        if self._stopped.is_set():
            self._stopping.ask("stop")
        async with self._client as client:
            work = Work(self._handlers, self._middleware)
            self._lifecycle = Lifecycle(client, self._options, work, self._stopping, self._report)
            self._lifecycle.pause(self._paused)
            return await self._lifecycle.work()

    def pause(self, topic: str | None = None) -> None:
        """Pop no more jobs, or none of one topic, until `resume`; running jobs continue. Call this in the worker's
        event loop, or before the worker runs."""
        if topic not in self._paused:
            self._pause(self._paused | {topic})

    def resume(self, topic: str | None = None) -> None:
        """End the pause of all jobs, or of one topic."""
        if topic in self._paused:
            self._pause(self._paused - {topic})

    def _pause(self, paused: frozenset[str | None]) -> None:
        self._paused = paused
        if self._lifecycle is not None:
            self._lifecycle.pause(paused)

    def stop(self) -> None:
        """Start no new job, and stop once the running ones end, within `grace_s`. May be called from any thread."""
        self._stopped.set()
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: the worker has ended
                self._loop.call_soon_threadsafe(self._stopping.ask, "stop")

    async def _run(self) -> bool:
        signals: list[signal.Signals] = []
        if threading.current_thread() is threading.main_thread():  # no other thread can handle signals
            signals = [signal.SIGTERM, signal.SIGINT]
        loop = asyncio.get_running_loop()
        for number in signals:
            loop.add_signal_handler(number, self._on_signal)
        try:
            return await self.serve()
        finally:
            for number in signals:
                loop.remove_signal_handler(number)

    def _on_signal(self) -> None:
        if self._signalled:  # `stop` does not count: the first signal after it keeps the grace period
            self._stopping.hurry.set()
        self._signalled = True
        self._stopping.ask("signal")


def _check_hooks(hooks: Hooks) -> None:
    for name, hook in hooks._asdict().items():
        if hook is not None and (not callable(hook) or is_async(hook)):
            raise TypeError(f"{name} must be a regular function, not an async one: {hook!r}")


def _random_name() -> str:
    return f"{socket.gethostname()[:64]}-{os.getpid()}-{secrets.token_hex(4)}"
