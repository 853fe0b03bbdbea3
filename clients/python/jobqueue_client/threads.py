"""Threads for plain handlers. They are daemons: a handler that hangs cannot keep the process from ending."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
import queue
import threading
from collections.abc import Callable
from typing import Any

from jobqueue_client.job import Job

Handler = Callable[[Job], Any]
_Work = Callable[[], None]


class Threads:
    """As many threads as there ever were handlers at a time. All methods are for the event loop's thread."""

    def __init__(self) -> None:
        self._work: queue.SimpleQueue[_Work | None] = queue.SimpleQueue()
        self._count = 0
        self._busy = 0

    async def run(self, handler: Handler, job: Job) -> BaseException | None:
        """Run a handler; what it raised. Who is cancelled meanwhile leaves the thread at its work."""
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[BaseException | None] = loop.create_future()
        context = contextvars.copy_context()  # what one handler sets there, the next does not find

        def work() -> None:
            error = context.run(_attempt, handler, job)
            with contextlib.suppress(RuntimeError):  # the loop is closed: the worker did not wait for this handler
                loop.call_soon_threadsafe(self._report, ended, error)

        if self._busy == self._count:
            name = f"jobqueue-{self._count + 1}"
            threading.Thread(target=_serve, args=(self._work,), name=name, daemon=True).start()
            self._count += 1  # not before: there may be no more threads to be had
        self._busy += 1
        self._work.put(work)
        return await ended

    def close(self) -> None:
        """End the threads; one with a handler after that."""
        for _ in range(self._count):
            self._work.put(None)

    def _report(self, ended: asyncio.Future[BaseException | None], error: BaseException | None) -> None:
        self._busy -= 1
        if not ended.done():
            ended.set_result(error)


def _serve(work: queue.SimpleQueue[_Work | None]) -> None:
    while (each := work.get()) is not None:
        each()


def _attempt(handler: Handler, job: Job) -> BaseException | None:
    try:
        result = handler(job)
    except BaseException as error:  # SystemExit too: a handler may end its job, not its thread
        return error
    if inspect.isawaitable(result):  # nobody would ever run it, and the job would count as done
        if inspect.iscoroutine(result):
            result.close()
        return TypeError("the handler is no `async def` function, but returned something to await")
    return None
