"""A sleep that can be cut short, exact to a tenth of a millisecond, and the lead time by which it must end early.

An event loop's timers have a resolution of a millisecond (epoll's time-outs, libuv's clock), which would make every job
late by half a millisecond. Linux has timers that are file descriptors (timerfd_create(2)). Python supports them only
from 3.13 on, so libc is called here. On other systems the loop's own timers are used.

The lead time is how long before a moment a command must leave to reach Redis at that moment: a few tenths of a
millisecond, in which the process wakes, the command travels, and Redis wakes. It depends on the host and its load, so
it is learned: a command that comes too early shortens it, any other lengthens it a little. It settles where one command
in ten comes too early (a quantile by stochastic approximation, after Robbins and Monro). That costs one more command
and never makes a job early: Redis's clock decides.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import sys

_CLOCK_MONOTONIC = 1
_NS = 1_000_000_000


class _Spec(ctypes.Structure):
    """struct itimerspec: the interval, 0 here, and the time from now."""

    _fields_ = (
        ("interval_s", ctypes.c_long),
        ("interval_ns", ctypes.c_long),
        ("s", ctypes.c_long),
        ("ns", ctypes.c_long),
    )


def _timer_file() -> int | None:
    """The file descriptor of a kernel timer, or None if there is no such timer."""
    if not sys.platform.startswith("linux"):
        return None
    with contextlib.suppress(AttributeError, OSError):
        number: int = ctypes.CDLL(None).timerfd_create(_CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
        return number if number >= 0 else None
    return None


class PreciseSleep:
    """Sleeps until a time is over or an event is set. `close` releases the timer."""

    def __init__(self, woken: asyncio.Event) -> None:
        self._woken = woken
        self._loop = asyncio.get_running_loop()
        self._over = False
        self._file = _timer_file()
        if self._file is not None:
            self._set = ctypes.CDLL(None).timerfd_settime
            self._loop.add_reader(self._file, self._read)

    async def sleep(self, seconds: float) -> bool:
        """Sleep for `seconds` (above 0) or until the event is set; the event is set afterwards in both cases. Returns
        whether the time was over."""
        self._over = False
        if self._file is None:
            handle = self._loop.call_later(seconds, self._end)
            await self._woken.wait()
            handle.cancel()
        else:
            ns = max(int(seconds * _NS), 1)  # 0 would stop the timer
            self._set(self._file, 0, ctypes.byref(_Spec(0, 0, ns // _NS, ns % _NS)), None)
            await self._woken.wait()
        return self._over

    def _end(self) -> None:
        self._over = True
        self._woken.set()

    def _read(self) -> None:
        assert self._file is not None
        with contextlib.suppress(BlockingIOError):  # it was set again meanwhile
            os.read(self._file, 8)
            self._end()

    def close(self) -> None:
        if self._file is not None:
            self._loop.remove_reader(self._file)
            os.close(self._file)
            self._file = None


_EARLY = 0.1  # the share of commands that come too early
_STEP_S = 30e-6
_LONGEST_S = 500e-6  # a longer delay is due to load, against which no lead helps


class LeadTime:
    """The lead of one kind of command."""

    def __init__(self) -> None:
        self.lead_s = 0.0

    def applies_to(self, wait_s: float) -> bool:
        """Whether a wait is long enough to be shortened: a command that came too early must not be early again."""
        return wait_s > 2 * _LONGEST_S

    def shorten(self, wait_s: float) -> float:
        """For how many seconds to sleep so that a command arrives in `wait_s`."""
        return wait_s - self.lead_s if self.applies_to(wait_s) else wait_s

    def learn(self, *, early: bool) -> None:
        """Learn from a command that was sent with this lead. `early`: whether it arrived too early."""
        lead = self.lead_s + (-_STEP_S * (1 - _EARLY) if early else _STEP_S * _EARLY)
        self.lead_s = min(max(lead, 0.0), _LONGEST_S)
