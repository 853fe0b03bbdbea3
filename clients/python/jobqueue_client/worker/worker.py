"""The public Worker: its options, its handlers, and how signals stop it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from jobqueue_client.async_client import AsyncClient
from jobqueue_client.worker.lifecycle import Lifecycle, WorkerOptions
from jobqueue_client.worker.report import Hook, Report
from jobqueue_client.worker.threads import Handler

H = TypeVar("H", bound=Handler)


class Worker:
    """Runs up to `concurrency` handlers at a time: `async def` handlers as tasks, sync handlers in threads.

    clients/README.md describes the options; those that end in `_s` are seconds. `on_event` is called in the event
    loop's thread with the name and the fields of each event, and must not block. Raises ValueError for an invalid
    option.
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
        on_event: Hook | None = None,
        timeout_s: float = 10,
        connect_timeout_s: float = 3,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self._options = WorkerOptions(
            _random_name() if name is None else name, concurrency, poll_s, grace_s, heartbeat_s, keep_alive_s
        )
        # The worker does its own retries, for as long as it takes.
        self._client = AsyncClient(
            url,
            urls=urls,
            timeout_s=timeout_s,
            connect_timeout_s=connect_timeout_s,
            retry_for_s=0,
            headers=headers,
        )
        self._report = Report(on_event)
        self._handlers: dict[str, Handler] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop = asyncio.Event()
        self._hurry = asyncio.Event()
        self._stopped = threading.Event()
        self._signalled = False

    def job(self, topic: str) -> Callable[[H], H]:
        """Decorator: register the handler of a topic's jobs. Raises ValueError if the topic has one."""

        def register(handler: H) -> H:
            if topic in self._handlers:
                raise ValueError(f"the topic {topic!r} already has a handler")
            self._handlers[topic] = handler
            return handler

        return register

    def run(self) -> bool:
        """Work until SIGTERM, SIGINT or `stop`; a second signal ends the grace period. True if all jobs ended in time.

        Raises Refused if the service refuses a poll for a permanent reason, such as an invalid topic name.
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
            self._stop.set()
        async with self._client as client:
            lifecycle = Lifecycle(client, self._options, self._handlers, self._report)
            return await lifecycle.work(self._stop, self._hurry)

    def stop(self) -> None:
        """Start no new job, and stop once the running ones end, within `grace_s`. May be called from any thread."""
        self._stopped.set()
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: the worker has ended
                self._loop.call_soon_threadsafe(self._stop.set)

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
            self._hurry.set()
        self._signalled = True
        self._stop.set()


def _random_name() -> str:
    return f"{socket.gethostname()[:64]}-{os.getpid()}-{secrets.token_hex(4)}"
