"""How many requests go to one host at a time, and what becomes of those for which there is no place.

A slow host must not keep others from being called. A request for a host that is full waits a moment, where few wait;
then its job goes back to the queue, with a delay after which its turn should come. The delays of a host's jobs follow
one another at the pace at which it answers, so a long backlog does not go round and round.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass

_WAIT_S = 1.0
_SOONEST_S, _LATEST_S = 1.0, 60.0  # of a job that goes back
_FIRST_GUESS_S = 0.1  # for an answer of a host that has given none yet
_WEIGHT = 0.3  # of the newest answer in the mean


class Full(Exception):
    """The host has no place; there should be one after `after_s`."""

    def __init__(self, after_s: float) -> None:
        super().__init__()
        self.after_s = after_s


@dataclass(slots=True)
class _Line:
    """One host: its places, who is here, and when the next that is turned away should come again (monotonic)."""

    free: asyncio.Semaphore
    here: int = 0
    answer_s: float = _FIRST_GUESS_S
    turn: float = 0.0


class Places:
    """`per_host` places at each host. Half of the `total - per_host` that one host cannot take may be waited in."""

    def __init__(self, per_host: int, total: int) -> None:
        self._per_host = per_host
        self._may_wait = max(0, (total - per_host) // 2)
        self._waiting = 0
        self._lines: dict[str, _Line] = {}

    @contextlib.asynccontextmanager
    async def at(self, host: str, *, patient: bool) -> AsyncIterator[None]:
        """A place at a host. Raises Full; `patient`: waits instead, for as long as it takes."""
        line = self._lines.setdefault(host, _Line(asyncio.Semaphore(self._per_host)))
        line.here += 1
        try:
            await self._enter(line, patient)
            began = time.monotonic()
            try:
                yield
            finally:
                line.free.release()
                line.answer_s += _WEIGHT * (time.monotonic() - began - line.answer_s)
        finally:
            line.here -= 1
            if not line.here:  # thousands of hosts come and go
                del self._lines[host]

    async def _enter(self, line: _Line, patient: bool) -> None:
        if patient or not line.free.locked():
            await line.free.acquire()
            return
        if self._waiting >= self._may_wait:
            raise Full(self._turn(line))
        self._waiting += 1
        try:
            async with asyncio.timeout(_WAIT_S):
                await line.free.acquire()
        except TimeoutError:
            raise Full(self._turn(line)) from None
        finally:
            self._waiting -= 1

    def _turn(self, line: _Line) -> float:
        """Seconds until a job that is turned away should come again."""
        now = time.monotonic()
        line.turn = max(line.turn, now + _SOONEST_S) + line.answer_s / self._per_host
        after_s = min(line.turn - now, _LATEST_S)
        line.turn = now + after_s
        return after_s
