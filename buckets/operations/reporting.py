"""Reports of how far an operation is, which also tell whether to go on."""

from __future__ import annotations

import asyncio

from buckets.operations.record import CANCELLED, PAUSED, PLANNED, Operation
from buckets.operations.store import KEPT_MS, Operations

_EVERY_S = 0.5


class Halted(Exception):
    """The operation is not to be carried out here any more: it was paused or cancelled, or another instance goes on."""


class Reporter:
    """Reports on an operation that this process carries out. Each call raises Halted where it is not to go on."""

    def __init__(self, operations: Operations, operation: Operation) -> None:
        self._operations = operations
        self._operation = operation
        self._due = asyncio.get_running_loop().time() + _EVERY_S

    async def begin(self, state: str) -> None:
        """Bring it to the state in which it is carried out."""
        await self._bring_to(state, KEPT_MS)

    async def report(self) -> None:
        """Write what is known of it, unless that was done in the last half second."""
        now = asyncio.get_running_loop().time()
        if now >= self._due:
            self._due = now + _EVERY_S
            await self._write(KEPT_MS)

    async def add_up(self) -> None:
        """Write the numbers of one that was halted by somebody: jobs may have been changed since the last report."""
        numbers = {"done": self._operation.done, "skipped": self._operation.skipped}
        await self._operations.change(self._operation.id, [PAUSED, CANCELLED], **numbers)

    async def end(self, state: str, lasts: int = KEPT_MS) -> None:
        """Bring it to its next state, which is kept for `lasts` ms."""
        self._operation.ended = 0 if state == PLANNED else await self._operations.pool.now_ms()
        await self._bring_to(state, lasts)

    async def _bring_to(self, state: str, lasts: int) -> None:
        await self._write(lasts, state=state)
        self._operation.state = state

    async def _write(self, lasts: int, **state: str) -> None:
        known = self._operation
        was = await self._operations.change(
            known.id,
            [known.state],
            lasts,
            **state,
            count=known.count,
            exact=known.exact,
            looked=known.looked,
            samples=known.samples,
            done=known.done,
            skipped=known.skipped,
            speed=round(known.speed, 1),
            slowed=known.slowed,
            ended=known.ended,
        )
        if was != known.state:
            raise Halted
