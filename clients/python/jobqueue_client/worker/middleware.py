"""Middleware: functions around every handler, the first registered outermost; and the threads of sync handlers.

An async middleware runs in the event loop, a sync middleware in the thread of a sync handler. So async middleware can
be around anything, and sync middleware only around sync middleware and handlers. Threads are daemons, so that a handler
that hangs cannot keep the process alive.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
import queue
import threading
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, NamedTuple

from jobqueue_client.job import Job

Handler = Callable[[Job], Any]
_Work = Callable[[], None]


class HandlerThreads:
    """A fixed number of threads, all started at once: starting one while handlers are busy would hold up the loop."""

    def __init__(self, count: int) -> None:
        self._work: queue.SimpleQueue[_Work | None] = queue.SimpleQueue()
        self._count = count
        for number in range(1, count + 1):
            threading.Thread(target=_serve, args=(self._work,), name=f"jobqueue-{number}", daemon=True).start()

    async def run(self, handler: Handler, job: Job) -> BaseException | None:
        """Run a handler; returns the exception that it raised, or None. Cancelling this does not stop the thread."""
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
    """Run a sync handler; returns the exception that it raised, or None."""
    try:
        result = handler(job)
    except BaseException as error:  # even SystemExit: a handler may end its job, not its thread
        return error
    if inspect.isawaitable(result):  # nothing would ever run it, and the job would count as done
        if inspect.iscoroutine(result):
            result.close()
        return TypeError("the handler is not an `async def` function, but returned an awaitable")
    return None


Middleware = Callable[[Job, Callable[[Job], Any]], Any]


class Call(NamedTuple):
    """A handler inside its middleware, and whether it is awaited or runs in a thread."""

    run: Handler
    is_async: bool


def call_of(handler: Handler, middleware: Sequence[Middleware], threads: HandlerThreads) -> Call:
    """The handler inside its middleware."""
    call = Call(handler, is_async(handler))
    for layer in reversed(middleware):
        if is_async(layer) and not call.is_async:
            call = Call(_in_a_thread(call.run, threads), is_async=True)
        call = Call(_awaited(layer, call.run) if is_async(layer) else _around(layer, call.run), call.is_async)
    return call


def check(middleware: Sequence[Middleware], handlers: Iterable[Handler]) -> None:
    """Raise TypeError for a sync middleware around an async middleware or handler."""
    kinds = [is_async(layer) for layer in middleware]
    if all(kinds):
        return
    if any(kinds[kinds.index(False) :]):
        raise TypeError("a sync middleware cannot be around an async one: register the async ones first")
    if any(map(is_async, handlers)):
        raise TypeError("a sync middleware cannot be around an `async def` handler: make the middleware `async def`")


def is_async(function: Callable[..., Any]) -> bool:
    """Whether this is an `async def` function, or an object with an `async def __call__`."""
    call = getattr(function, "__call__", None)  # noqa: B004  # a callable object may have an `async def __call__`
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)


def _around(layer: Middleware, rest: Handler) -> Handler:
    return lambda job: layer(job, rest)


def _awaited(layer: Middleware, rest: Handler) -> Handler:
    """As `_around`, for an async middleware. If the middleware forgets to await the rest, the job fails; otherwise the
    job would be finished although its handler did not run."""

    async def run(job: Job) -> Any:
        begun: list[Coroutine[Any, Any, Any]] = []

        def call_next(job: Job) -> Coroutine[Any, Any, Any]:
            begun.append(rest(job))
            return begun[-1]

        result = await layer(job, call_next)
        if any(map(_is_forgotten, begun)):
            raise RuntimeError("the middleware must await call_next(job)")
        return result

    return run


def _is_forgotten(call: Coroutine[Any, Any, Any]) -> bool:
    state = inspect.getcoroutinestate(call)
    if state == inspect.CORO_CREATED:
        call.close()  # otherwise Python warns about it
    return state != inspect.CORO_CLOSED


def _in_a_thread(rest: Handler, threads: HandlerThreads) -> Handler:
    async def run(job: Job) -> None:
        error = await threads.run(rest, job)
        if error is not None:
            raise error

    return run
