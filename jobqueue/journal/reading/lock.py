"""The lock of a shard's reader: it saves the work of a second reader, and guards nothing."""

from __future__ import annotations

import asyncio
import contextlib
import secrets

from buckets.errors import JobQueueError
from buckets.events.stream import Stream

HOLD_MS = 6_000
EVERY_S = 2.0


class Lock:
    """Taken when it is free, and renewed, for as long as `run` runs."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._token = secrets.token_hex(8)
        self._until = 0.0

    @property
    def is_held(self) -> bool:
        return asyncio.get_running_loop().time() < self._until

    async def run(self) -> None:
        try:
            while True:
                await self._renew()
                await asyncio.sleep(EVERY_S)
        finally:
            await self._give_up()

    async def _renew(self) -> None:
        began = asyncio.get_running_loop().time()
        try:
            held = await self._stream.hold(self._token, HOLD_MS)
        except JobQueueError:  # Redis is away; what is held ends by itself
            return
        self._until = began + HOLD_MS / 1000 if held else 0.0

    async def _give_up(self) -> None:
        self._until = 0.0
        with contextlib.suppress(JobQueueError):
            await self._stream.hold(self._token, 0)
