"""Loops, which run beside the requests for as long as a service runs; and the signals that end a program, or would kill
it by default, although other programs use them for something else."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import structlog

log = structlog.get_logger()

Run = Callable[[], Coroutine[Any, Any, None]]


def _always() -> bool:
    return True


@dataclass(eq=False)
class Loop:
    """One loop: its name, what it runs, and whether it is healthy."""

    name: str
    run: Run
    check: str = ""
    """The readiness check that fails if this loop is unhealthy, or an empty string if no check does."""
    works: Callable[[], bool] = _always
    """Returns True if the loop does its work; a loop may run and still wait for Redis."""
    _task: asyncio.Task[None] | None = field(default=None, init=False)

    @property
    def is_healthy(self) -> bool:
        """Whether the loop runs and does its work."""
        return self._task is not None and not self._task.done() and self.works()

    def start(self) -> None:
        """Run the loop in a task. If it ends by itself, its end is logged."""
        self._task = asyncio.create_task(self.run(), name=self.name)
        self._task.add_done_callback(_log_end)

    def cancel(self) -> None:
        """Ask the loop to end; `ended` waits until it has ended."""
        if self._task:
            self._task.cancel()

    async def ended(self) -> None:
        """Wait until the loop has ended. An exception that ended it is not raised here."""
        if self._task:
            await asyncio.gather(self._task, return_exceptions=True)


@contextlib.asynccontextmanager
async def running(*loops: Loop) -> AsyncIterator[None]:
    """Run loops until the block is left. All loops are cancelled first; then it waits until all have ended."""
    for loop in loops:
        loop.start()
    try:
        yield
    finally:
        for loop in loops:
            loop.cancel()
        await asyncio.gather(*(loop.ended() for loop in loops))


def checks(loops: Iterable[Loop]) -> dict[str, bool]:
    """The readiness checks to which loops belong: a check passes if all its loops are healthy."""
    passed: dict[str, bool] = {}
    for loop in loops:
        if loop.check:
            passed[loop.check] = passed.get(loop.check, True) and loop.is_healthy
    return passed


def _log_end(task: asyncio.Task[None]) -> None:
    if not task.cancelled():
        log.error("task.ended", task=task.get_name(), exc_info=task.exception())


def stop_on_signals(stop: Callable[[], None]) -> None:
    """Call `stop` on SIGTERM and SIGINT, and also on SIGHUP, which means that the terminal was closed. Log SIGUSR1 and
    SIGUSR2."""
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop)
    on_signal(signal.SIGHUP, stop)
    log_others(signal.SIGUSR1, signal.SIGUSR2)


def log_others(*numbers: signal.Signals) -> None:
    """Log these signals, which change nothing here."""
    for number in numbers:
        on_signal(number, partial(log_ignored, number))


def on_signal(number: signal.Signals, call: Callable[[], None]) -> None:
    """Call `call` on a signal, unless the process was started to ignore the signal, as by nohup."""
    if signal.getsignal(number) is not signal.SIG_IGN:
        asyncio.get_running_loop().add_signal_handler(number, call)


def log_ignored(number: signal.Signals) -> None:
    """Log a signal that changes nothing here."""
    log.warning("signal.ignored", signal=number.name)
