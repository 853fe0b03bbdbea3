"""Operations as Redis keeps them: planned, read, and brought from one state to another.

Whoever carries one out reports how far it is; the answer says whether to go on.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from buckets.errors import JobQueueError, WrongState
from buckets.operations.record import (
    CANCELLED,
    FIELDS,
    PAUSABLE,
    PAUSED,
    PLANNED,
    PLANNING,
    RUNNING,
    UNENDED,
    WAITING,
    Asked,
    Operation,
    read,
    write,
)
from buckets.pool.pool import Pool
from buckets.scripts import Value

MOST = 1000
"""Operations that are kept."""
PLAN_MS = 15 * 60_000
"""How long a plan can be started."""
KEPT_MS = 30 * 86_400_000
"""How long the others are kept, after they changed last."""
_POSITION_MS = 400 * 86_400_000  # longer than any operation: who finds no position begins the shard again
_UNFINISHED_MS = 3_600_000  # that a plan may take
_BRIEF = tuple(name for name in FIELDS if name != "samples")


class Progress(NamedTuple):
    """How far an operation is in a shard: its position there (empty: at the beginning), and how many jobs it has
    changed, and found changed by others."""

    position: str
    done: int
    skipped: int


class Operations:
    """The operations of a namespace."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool

    async def plan(self, asked: Asked) -> Operation:
        """Keep an operation that is to be planned, from now on; a search is to be carried out at once. Raises
        WrongState, NoRoom."""
        asked = replace(asked, begun=await self.pool.newest_ms())
        is_find = asked.kind == "find"
        operation = Operation(
            secrets.token_hex(6),
            asked,
            state=RUNNING if is_find else PLANNING,
            planned=asked.begun,
            started=asked.begun if is_find else 0,
            started_by=asked.by if is_find else "",
        )
        fields = write(**{name: getattr(operation, name) for name in FIELDS})
        kept = await self.pool.call(
            "plan_operation",
            0,
            fields,
            now=self.pool.clock.now(),
            operation=operation.id,
            most=MOST,
            lasts=KEPT_MS if is_find else _UNFINISHED_MS,
        )
        if not kept:
            raise WrongState(f"there are {MOST} operations that have not ended")
        return operation

    async def get(self, operation: str) -> Operation | None:
        """All that is known of an operation, or None."""
        key = self.pool.keys[0].operation(operation)
        try:
            values = await self.pool.redis.read("HMGET", key, *FIELDS)
        except JobQueueError as error:
            if "WRONGTYPE" not in error.message:
                raise
            return None
        return read(operation, _texts(dict(zip(FIELDS, values, strict=True))))

    async def page(self, states: Sequence[str] = (), count: int = MOST) -> list[Operation]:
        """Operations in some states, or all, the newest first, without their samples."""
        found = await self.pool.call("read_operations", 0, _BRIEF, states=_between_blanks(states), count=count)
        pairs = [(name.decode(), dict(zip(rest[::2], rest[1::2], strict=True))) for name, *rest in found]
        operations = [read(name, _texts({key.decode(): value for key, value in each.items()})) for name, each in pairs]
        return [each for each in operations if each is not None]

    async def start(self, operation: str, rate: int, by: str) -> str:
        """Let a plan be carried out, `rate` jobs a second at most. Returns the state that it was in; only a planned one
        is started."""
        now = await self.pool.now_ms()
        return await self.change(operation, [PLANNED], KEPT_MS, state=WAITING, started=now, rate=rate, started_by=by)

    async def pause(self, operation: str) -> str:
        """Halt an operation. Returns the state that it was in; only one that waits or runs is paused."""
        return await self.change(operation, PAUSABLE, KEPT_MS, state=PAUSED, speed=0.0)

    async def resume(self, operation: str) -> str:
        """Go on with an operation. Returns the state that it was in; only a paused one goes on."""
        return await self.change(operation, [PAUSED], KEPT_MS, state=WAITING)

    async def cancel(self, operation: str) -> str:
        """End an operation as far as it is. Returns the state that it was in; only one that has not ended ends."""
        now = await self.pool.now_ms()
        return await self.change(operation, UNENDED, KEPT_MS, state=CANCELLED, ended=now, speed=0.0)

    async def change(self, operation: str, states: Sequence[str], lasts: int = KEPT_MS, **values: Any) -> str:
        """Change fields of an operation, if it is in one of some states; it is kept for `lasts` ms from now on. Returns
        the state that it was in, empty if it is not known."""
        state: bytes = await self.pool.call(
            "change_operation",
            0,
            write(**values),
            operation=operation,
            states=_between_blanks(states),
            lasts=lasts,
        )
        return state.decode()

    async def progress(self, operation: str, shard: int) -> Progress:
        """How far an operation is in a shard."""
        key = self.pool.keys[shard].operation(operation)
        position, done, skipped = await self.pool.redis.read("HMGET", key, "position", "moved", "changed")
        return Progress((position or b"").decode(), int(done or 0), int(skipped or 0))

    async def apply(
        self, operation: Operation, shard: int, before: str, after: str, jobs: Sequence[Value]
    ) -> tuple[int, int] | None:
        """Do to jobs of a shard what an operation does, and go on from a position to another one. `jobs`: for each its
        id, its header and its new due time. Returns how many jobs of the shard were changed so far, and found changed;
        None if another instance has gone on from there."""
        numbers = await self.pool.call(
            "apply_operation",
            shard,
            jobs,
            now=self.pool.clock.now(),
            operation=operation.id,
            kind=operation.asked.kind,
            before=before,
            after=after,
            lasts=_POSITION_MS,
        )
        return (int(numbers[0]), int(numbers[1])) if numbers else None


def _between_blanks(states: Sequence[str]) -> str:
    return f" {' '.join(states)} " if states else ""


def _texts(values: Mapping[str, bytes | None]) -> dict[str, str]:
    return {name: value.decode("utf-8", "replace") for name, value in values.items() if value is not None}


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
