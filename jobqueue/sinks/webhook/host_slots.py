"""The slots of each host: how many requests go to it at a time, and what happens to those beyond.

A slow host must not keep others from being called. A request to a host without a free slot waits a moment if few others
wait; then its job goes back to the queue, with a delay after which its turn should have come. The delays of a host's
jobs are spaced at the pace of its answers, so a long backlog does not go round and round.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass

_WAIT_S = 1.0
_SOONEST_S, _LATEST_S = 1.0, 60.0  # the delay of a job that goes back
_FIRST_GUESS_S = 0.1  # for the answer of a host that has not answered yet
_WEIGHT = 0.3  # of the newest answer in the mean


class Full(Exception):
    """The host has no free slot; there should be one after `after_s`."""

    def __init__(self, after_s: float) -> None:
        super().__init__()
        self.after_s = after_s


@dataclass(slots=True)
class _Slots:
    """The slots of one host."""

    free: asyncio.Semaphore
    here: int = 0  # requests that have a slot or wait for one
    answer_s: float = _FIRST_GUESS_S
    turn: float = 0.0  # when the next job that is turned away should return (s, monotonic)


class HostSlots:
    """`per_host` slots at each host. Up to half of the `total - per_host` jobs that one host cannot occupy may wait."""

    def __init__(self, per_host: int, total: int) -> None:
        self._per_host = per_host
        self._may_wait = max(0, (total - per_host) // 2)
        self._waiting = 0
        self._hosts: dict[str, _Slots] = {}

    @contextlib.asynccontextmanager
    async def at(self, host: str, *, patient: bool) -> AsyncIterator[None]:
        """A slot at a host. Raises Full; if `patient`, waits instead for as long as it takes."""
        slots = self._hosts.setdefault(host, _Slots(asyncio.Semaphore(self._per_host)))
        slots.here += 1
        try:
            await self._enter(slots, patient)
            began = time.monotonic()
            try:
                yield
            finally:
                slots.free.release()
                slots.answer_s += _WEIGHT * (time.monotonic() - began - slots.answer_s)
        finally:
            slots.here -= 1
            if not slots.here:  # thousands of hosts come and go
                del self._hosts[host]

    async def _enter(self, slots: _Slots, patient: bool) -> None:
        if patient or not slots.free.locked():
            await slots.free.acquire()
            return
        if self._waiting >= self._may_wait:
            raise Full(self._turn(slots))
        self._waiting += 1
        try:
            async with asyncio.timeout(_WAIT_S):
                await slots.free.acquire()
        except TimeoutError:
            raise Full(self._turn(slots)) from None
        finally:
            self._waiting -= 1

    def _turn(self, slots: _Slots) -> float:
        """Seconds until a job that is turned away should return."""
        now = time.monotonic()
        slots.turn = max(slots.turn, now + _SOONEST_S) + slots.answer_s / self._per_host
        after_s = min(slots.turn - now, _LATEST_S)
        slots.turn = now + after_s
        return after_s
