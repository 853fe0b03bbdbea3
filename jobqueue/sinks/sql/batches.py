"""Batches: messages that are sent at the same time share a transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from jobqueue.sinks import Message

MOST = 500  # messages

Write = Callable[[list[Message]], Awaitable[list[Exception | None]]]
"""Writes messages; for each an error, or None where it is confirmed."""


class Batches:
    """Writes one batch after the other: what is sent meanwhile is the next one."""

    def __init__(self, write: Write) -> None:
        self._write = write
        self._waiting: list[tuple[Message, asyncio.Future[None]]] = []
        self._writing: asyncio.Task[None] | None = None

    async def send(self, message: Message) -> None:
        """Wait until a message is confirmed. Raises what became of it."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((message, done))
        if self._writing is None:
            self._writing = asyncio.create_task(self._run())
        await done

    async def close(self) -> None:
        """Cancel the batch under way, whose messages are not confirmed."""
        if self._writing is not None:
            self._writing.cancel()
            await asyncio.gather(self._writing, return_exceptions=True)

    async def _run(self) -> None:
        try:
            while self._waiting:
                some, self._waiting = self._waiting[:MOST], self._waiting[MOST:]
                await self._write_some([each for each in some if not each[1].done()])  # others wait no more
        finally:
            self._writing = None

    async def _write_some(self, some: list[tuple[Message, asyncio.Future[None]]]) -> None:
        try:
            errors = await self._write([message for message, _ in some])
        except Exception as error:
            errors = [error for _ in some]
        for (_, done), found in zip(some, errors, strict=True):
            _settle(done, found)


def _settle(done: asyncio.Future[None], error: Exception | None) -> None:
    if done.done():
        return
    if error is None:
        done.set_result(None)
    else:
        done.set_exception(error)
