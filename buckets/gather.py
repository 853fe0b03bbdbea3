"""Gathering: what callers hand in during one turn of the event loop becomes one piece of work.

Under load a turn deals with many requests; one script for all their jobs costs Redis a fraction of a script each.
Nobody waits for company: who is alone goes alone, a turn later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Gather(Generic[T]):
    """Joins items for `work`, which returns a result for each, in their order; about `most` at a time, and those of one
    caller always together."""

    def __init__(
        self,
        work: Callable[[list[T]], Awaitable[list[Any]]],
        most: int,
        orphan: Callable[[list[Any]], None] | None = None,
    ) -> None:
        """`orphan` gets the results of a caller that was cancelled while the work was under way. Where it is given,
        nothing is begun for one that was cancelled before."""
        self._work = work
        self._most = most
        self._orphan = orphan
        self._waiting: list[tuple[Sequence[T], asyncio.Future[list[Any]]]] = []
        self._begun: asyncio.Future[None] | None = None
        self._working: set[asyncio.Task[None]] = set()

    def hand_in(self, items: Sequence[T]) -> asyncio.Future[list[Any]]:
        """The results, when they are there. Work that has begun goes on when its caller is cancelled."""
        loop = asyncio.get_running_loop()
        if not self._waiting:
            loop.call_soon(self._begin)
        future = loop.create_future()
        self._waiting.append((items, future))
        return future

    async def begun(self) -> None:
        """Wait until the work on what was handed in so far has begun: what is asked of Redis then comes after it."""
        if self._waiting:
            self._begun = self._begun or asyncio.get_running_loop().create_future()
            await asyncio.shield(self._begun)

    def _begin(self) -> None:
        waiting, self._waiting = self._waiting, []
        part: list[tuple[Sequence[T], asyncio.Future[list[Any]]]] = []
        size = 0
        for items, future in waiting:
            if self._orphan and future.done():
                continue
            if part and size + len(items) > self._most:
                self._start(part)
                part, size = [], 0
            part.append((items, future))
            size += len(items)
        if part:
            self._start(part)
        if self._begun:  # after the tasks: they have had their first turn when those who wait for this have theirs
            self._begun.set_result(None)
            self._begun = None

    def _start(self, part: list[tuple[Sequence[T], asyncio.Future[list[Any]]]]) -> None:
        task = asyncio.get_running_loop().create_task(self._run(part))
        self._working.add(task)
        task.add_done_callback(self._working.discard)

    async def _run(self, part: list[tuple[Sequence[T], asyncio.Future[list[Any]]]]) -> None:
        try:
            results = await self._work([item for items, _ in part for item in items])
        except Exception as error:
            for _, future in part:
                if not future.done():
                    future.set_exception(error)
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
        """Wait for the work under way."""
        if self._waiting:
            self._begin()
        await asyncio.gather(*self._working, return_exceptions=True)
