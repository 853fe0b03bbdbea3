"""Operations as the service offers them: planned and controlled by callers that reach their topics."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime

from buckets import Asked, Filter, Operation, Operations, State
from buckets.errors import NotFound, WrongState
from buckets.operations.store import PAUSABLE, PAUSED, PLANNED, PLANNING, RUNNING, UNENDED
from buckets.shards import ACTOR
from jobqueue.schema import params
from jobqueue.schema.params import at_ms, ms

DEFAULT_RATE = 1000
_MOST_LISTED = 100
_WAIT_S, _LOOK_S = 1.5, 0.05  # how long and how often to look whether planning has ended
_UNKNOWN = "no such operation; a plan that was not started is forgotten after 15 minutes"


class Operating:
    """Plans and controls operations. A caller sees the operations planned by callers with the same topics; a caller
    that reaches all topics sees all operations."""

    def __init__(self, operations: Operations) -> None:
        self._operations = operations

    async def plan(self, command: params.Operation, within: str = "") -> Operation:
        """Plan an operation. Returns after a while, even if the operation is still planning. A find begins at once.
        Raises WrongState, NoRoom."""
        operation = await self._operations.plan(_asked(command, within))
        loop = asyncio.get_running_loop()
        end = loop.time() + _WAIT_S
        while operation.state in (PLANNING, RUNNING) and loop.time() < end:
            await asyncio.sleep(_LOOK_S)
            operation = await self.get(operation.id, within)
        return operation

    async def find(self, prefix: str, state: str | None, within: str = "") -> Operation:
        """Begin a search among the keys of all jobs."""
        wanted = params.Filter(prefix=prefix, state=state)  # type: ignore[arg-type]
        return await self._operations.plan(_asked(params.Operation("plan", kind="find", filter=wanted), within))

    async def get(self, operation: str, within: str = "") -> Operation:
        """What is known about an operation. Raises NotFound."""
        found = await self._operations.get(operation)
        if found is None or within not in ("", found.asked.within):
            raise NotFound(_UNKNOWN)
        return found

    async def newest(self, within: str = "") -> list[Operation]:
        """The newest operations that the caller may see."""
        if not within:
            return await self._operations.page(count=_MOST_LISTED)
        return [each for each in await self._operations.page() if each.asked.within == within][:_MOST_LISTED]

    async def start(self, plan: str, expect: int, rate: int | None, within: str = "") -> Operation:
        """Start to carry out a plan. Raises NotFound, WrongState, also if `expect` is not the plan's number of jobs."""
        found = await self.get(plan, within)
        if found.state != PLANNED:
            raise _wrong(found.state, "started")
        if found.count != expect:
            raise WrongState(f"the plan has {found.count} jobs, not {expect}; look at it, and expect its count")
        was = await self._operations.start(plan, rate or DEFAULT_RATE, ACTOR.get())
        return await self._changed(plan, was, (PLANNED,), "started", within)

    async def pause(self, operation: str, within: str = "") -> Operation:
        """Halt an operation. Raises NotFound, WrongState."""
        await self.get(operation, within)
        was = await self._operations.pause(operation)
        return await self._changed(operation, was, PAUSABLE, "paused", within)

    async def resume(self, operation: str, within: str = "") -> Operation:
        """Continue an operation. Raises NotFound, WrongState."""
        await self.get(operation, within)
        return await self._changed(operation, await self._operations.resume(operation), (PAUSED,), "resumed", within)

    async def cancel(self, operation: str, within: str = "") -> Operation:
        """End an operation; what it has already done remains. Raises NotFound, WrongState."""
        await self.get(operation, within)
        return await self._changed(operation, await self._operations.cancel(operation), UNENDED, "cancelled", within)

    async def _changed(self, operation: str, was: str, wanted: Sequence[str], done: str, within: str) -> Operation:
        if not was:
            raise NotFound(_UNKNOWN)
        if was not in wanted:
            raise _wrong(was, done)
        return await self.get(operation, within)


def _wrong(state: str, done: str) -> WrongState:
    return WrongState(f"an operation that is {state} cannot be {done}")


def _asked(command: params.Operation, within: str) -> Asked:
    """What a plan asks for."""
    assert command.kind and command.filter
    return Asked(
        command.kind,
        _filter(command.filter),
        begun=0,
        within=within,
        by=ACTOR.get(),
        shift_ms=None if command.shift is None else _signed_ms(command.shift),
        at_ms=None if command.at is None else at_ms(command.at),
        spread_ms=ms(command.spread or 0),
    )


def _signed_ms(seconds: float) -> int:
    return ms(seconds) if seconds > 0 else -ms(-seconds)


def _filter(given: params.Filter) -> Filter:
    return Filter(
        topic=given.topic or "",
        state=None if given.state is None else State[given.state.upper()],
        cause=given.cause or "",
        reason=given.reason or "",
        prefix=given.prefix or "",
        tag=given.tag or "",
        died_from=_time(given.died_from),
        died_to=_time(given.died_to),
        due_from=_time(given.due_from),
        due_to=_time(given.due_to),
        created_from=_time(given.created_from),
        created_to=_time(given.created_to),
    )


def _time(when: float | datetime | None) -> int | None:
    return None if when is None else at_ms(when)
