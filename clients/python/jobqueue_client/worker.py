"""The worker: takes jobs of the topics that it has handlers for, and ends each as its handler does."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
import socket
import threading
from collections.abc import Callable, Mapping
from typing import TypeVar

from jobqueue_client.async_client import AsyncClient
from jobqueue_client.events import Events, Hook
from jobqueue_client.shift import Settings, Shift
from jobqueue_client.threads import Handler

H = TypeVar("H", bound=Handler)


class Worker:
    """Runs handlers, `concurrency` at a time: `async def` ones as tasks, plain ones in threads.

    The options are those of ../../README.md, all with `_s` in seconds. `on_event` is called in the event loop's thread
    with the name and the fields of each event; it must not block. ValueError for an option that cannot be.
    """

    def __init__(
        self,
        url: str,
        *,
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
        self._settings = Settings(
            _made_name() if name is None else name, concurrency, poll_s, grace_s, heartbeat_s, keep_alive_s
        )
        # The worker itself repeats, for as long as it takes.
        self._client = AsyncClient(
            url, timeout_s=timeout_s, connect_timeout_s=connect_timeout_s, retry_for_s=0, headers=headers
        )
        self._events = Events(on_event)
        self._handlers: dict[str, Handler] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop = asyncio.Event()
        self._hurry = asyncio.Event()
        self._stopped = threading.Event()
        self._signalled = False

    def job(self, topic: str) -> Callable[[H], H]:
        """Decorator: the handler of a topic's jobs. ValueError for a second one."""

        def register(handler: H) -> H:
            if topic in self._handlers:
                raise ValueError(f"the topic {topic!r} has a handler already")
            self._handlers[topic] = handler
            return handler

        return register

    def run(self) -> bool:
        """Work until SIGTERM, SIGINT or `stop`; a second signal ends the grace. Whether all had finished in time.

        Raises Refused when the service refuses what no repetition can help, like a bad topic name.
        """
        return asyncio.run(self._run())

    async def serve(self) -> bool:
        """As `run`, in a running event loop, and without signal handlers. Cancelled, it stops without a grace."""
        if not self._handlers:
            raise ValueError("the worker has no handlers: register some with @worker.job(topic)")
        if self._loop is not None:
            raise RuntimeError("a worker runs once")
        self._loop = asyncio.get_running_loop()
        if self._stopped.is_set():
            self._stop.set()
        async with self._client as client:
            return await Shift(client, self._settings, self._handlers, self._events).work(self._stop, self._hurry)

    def stop(self) -> None:
        """Begin no new job, and end when those that run have ended, after `grace_s` at most. From any thread."""
        self._stopped.set()
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: it has ended already
                self._loop.call_soon_threadsafe(self._stop.set)

    async def _run(self) -> bool:
        signals: list[signal.Signals] = []
        if threading.current_thread() is threading.main_thread():  # no other can have signals
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
        if self._signalled:  # a `stop` before is none: the first signal after it leaves the grace
            self._hurry.set()
        self._signalled = True
        self._stop.set()


def _made_name() -> str:
    return f"{socket.gethostname()[:64]}-{os.getpid()}-{secrets.token_hex(4)}"
