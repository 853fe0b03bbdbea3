"""Threads for sync handlers. They are daemons, so that a handler that hangs cannot keep the process alive."""

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


class HandlerThreads:
    """A fixed number of threads, all started at once: starting one among busy handlers would hold up the loop."""

    def __init__(self, count: int) -> None:
        self._work: queue.SimpleQueue[_Work | None] = queue.SimpleQueue()
        self._count = count
        for number in range(1, count + 1):
            threading.Thread(target=_serve, args=(self._work,), name=f"jobqueue-{number}", daemon=True).start()

    async def run(self, handler: Handler, job: Job) -> BaseException | None:
        """Run a handler; gives the exception that it raised. Cancelling this does not stop the thread."""
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[BaseException | None] = loop.create_future()
        context = contextvars.copy_context()  # a variable set by one handler must not be seen by the next

        def work() -> None:
            error = context.run(attempt, handler, job)
            with contextlib.suppress(RuntimeError):  # the loop is closed: the worker did not wait for this handler
                loop.call_soon_threadsafe(_report, ended, error)

        self._work.put(work)
        return await ended

    def close(self) -> None:
        """End the threads, each after its current handler."""
        for _ in range(self._count):
            self._work.put(None)


def _report(ended: asyncio.Future[BaseException | None], error: BaseException | None) -> None:
    if not ended.done():
        ended.set_result(error)


def _serve(work: queue.SimpleQueue[_Work | None]) -> None:
    while (each := work.get()) is not None:
        each()


def attempt(handler: Handler, job: Job) -> BaseException | None:
    """Run a sync handler; gives the exception that it raised."""
    try:
        result = handler(job)
    except BaseException as error:  # even SystemExit: a handler may end its job, not its thread
        return error
    if inspect.isawaitable(result):  # nothing would ever run it, and the job would count as done
        if inspect.iscoroutine(result):
            result.close()
        return TypeError("the handler is not an `async def` function, but returned an awaitable")
    return None
