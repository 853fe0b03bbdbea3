"""Request coalescing, for work that is a coroutine: what comes while a batch is in flight becomes the next one.

A lone caller's work begins on the next turn of the event loop. Others wait until the batch in flight is done (or has
taken 10 ms), so that batches grow under load, as with a database's group commit. Work that is one script goes by a lane
instead (lanes.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

_LONGEST_S = 0.01  # that callers wait for the batch in flight

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)


class Joined(Protocol[T_contra]):
    """Decides which items go together."""

    def take(self, items: Sequence[T_contra]) -> bool:
        """Add the items of one more caller; returns whether they go together with those added before, and among
        themselves. Once they did not, no others are taken."""


Part = list[tuple[Sequence[T], asyncio.Future[list[Any]]]]


class Coalescer(Generic[T]):
    """Joins items for `work`, which returns a result for each, in order. The items of one caller stay together. Items
    that are too many for one script, or name a job twice, are not joined with others, so that no caller waits for the
    scripts of another."""

    def __init__(
        self,
        work: Callable[[list[T]], Awaitable[list[Any]]],
        joined: Callable[[], Joined[T]],
        orphan: Callable[[list[Any]], None] | None = None,
    ) -> None:
        """`joined` makes the object that decides which callers are joined. `orphan` receives the results of a caller
        that was cancelled while the work was in progress."""
        self._work = work
        self._joined = joined
        self._orphan = orphan
        self._next: asyncio.Handle | None = None
        self._waiting: Part[T] = []
        self._working: set[asyncio.Task[None]] = set()

    def hand_in(self, items: Sequence[T]) -> asyncio.Future[list[Any]]:
        """A future of the results. A caller that is cancelled before its work begins has nothing done; work that has
        begun continues when its caller is cancelled."""
        loop = asyncio.get_running_loop()
        if not self._waiting:
            busy = bool(self._working)
            self._next = loop.call_later(_LONGEST_S, self._begin) if busy else loop.call_soon(self._begin)
        future = loop.create_future()
        self._waiting.append((items, future))
        return future

    def _begin(self) -> None:
        if self._next:
            self._next.cancel()
        waiting, self._waiting = self._waiting, []
        part: Part[T] = []
        joined = self._joined()
        for items, future in waiting:
            if future.done():
                continue
            if not joined.take(items) and part:
                self._start(part)
                part, joined = [], self._joined()
                joined.take(items)
            part.append((items, future))
        if part:
            self._start(part)

    def _start(self, part: Part[T]) -> None:
        task = asyncio.get_running_loop().create_task(self._run(part))
        self._working.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._working.discard(task)
        if self._waiting and not self._working:
            self._begin()

    async def _run(self, part: Part[T]) -> None:
        try:
            results = await self._work([item for items, _ in part for item in items])
        except BaseException as error:
            for _, future in part:
                if isinstance(error, asyncio.CancelledError):
                    future.cancel()
                elif not future.done():
                    future.set_exception(error)
            if not isinstance(error, Exception):
                raise
            return
        at = 0
        for items, future in part:
            own = results[at : at + len(items)]
            if not future.done():
                future.set_result(own)
            elif self._orphan:
                self._orphan(own)
            at += len(items)

    async def close(self) -> None:
        """Wait for the work in progress."""
        if self._waiting:
            self._begin()
        await asyncio.gather(*self._working, return_exceptions=True)
