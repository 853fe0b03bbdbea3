"""Waiting until the journal has all that was told until a time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from sqlalchemy import select

from buckets.events.restoring import Asked
from jobqueue.journal import tables
from jobqueue.journal.restoring.choice import NotBegun, Stopped
from jobqueue.journal.restoring.reading import Reading

_LOOK_S = 0.02
_ON = "let the service start, or run `jobqueue journal on`"


class Passing:
    """How far the journal is, shard by shard."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._positions: dict[int, Any] = {}

    async def begin(self, asked: Sequence[Asked]) -> None:
        """As `wait`, before anything is done. Raises NotBegun, at once where events are off."""
        deaf = [each.shard for each in asked if not each.stream]
        if deaf:
            raise NotBegun(f"events are off in shard {deaf[0]}, so finishes would not be recorded; {_ON}")
        try:
            await self.wait(asked)
        except Stopped as error:
            raise NotBegun(f"{error}; see that `jobqueue journal run` does its work, or take --stale") from error

    async def wait(self, asked: Sequence[Asked]) -> None:
        """Wait until the journal has passed what the shards were asked. Raises Stopped when it does not get on."""
        loop = asyncio.get_running_loop()
        end, before = 0.0, None
        while behind := [each for each in asked if not self._has_passed(each)]:
            self._positions = await self._read()
            reached = [self._reached(each) for each in behind]
            if reached != before:
                end, before = loop.time() + self._reading.patience_s, reached
            elif loop.time() > end:
                raise Stopped(_behind(behind[0], self._positions.get(behind[0].shard)))
            else:
                await asyncio.sleep(_LOOK_S)

    def _reached(self, asked: Asked) -> int:
        """The time until which the journal has what the stream tells; 0 while it reads another one."""
        position = self._positions.get(asked.shard)
        return position.time if position is not None and position.stream == asked.stream else 0

    def _has_passed(self, asked: Asked) -> bool:
        return self._reached(asked) > asked.at

    async def _read(self) -> dict[int, Any]:
        found = await self._reading.rows(select(tables.position).where(self._reading.of_source(tables.position)))
        return {row.shard: row for row in found}


def _behind(asked: Asked, position: Any) -> str:
    if position is None:
        return f"nothing of shard {asked.shard} is in the journal"
    if position.stream != asked.stream:
        return f"the journal reads another stream than that of shard {asked.shard} in this Redis"
    return f"the journal is {(asked.at - position.time) / 1e6:.1f} s behind shard {asked.shard}, and does not get on"
