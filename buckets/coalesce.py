"""Gathering: what callers hand in during one turn of the event loop becomes one piece of work.

Under load a turn deals with many requests; one script for all their jobs costs Redis a fraction of a script each.
Who is alone goes alone, a turn later; `patient` ones wait for the work before them instead, and go with all who came.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

_LONGEST_S = 0.01  # behind work that is not done

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)


class Joined(Protocol[T_contra]):
    """The items of some callers."""

    def take(self, items: Sequence[T_contra]) -> bool:
        """Add those of one more, unless there are others already that they do not go together with. Behind those that
        would not go together among themselves there is no place for others."""


Part = list[tuple[Sequence[T], asyncio.Future[list[Any]]]]


class Coalescer(Generic[T]):
    """Joins items for `work`, which returns a result for each, in their order. The items of one caller stay together;
    what is too much for one script, or names a job twice, is not joined, so that nobody waits for scripts of others."""

    def __init__(
        self,
        work: Callable[[list[T]], Awaitable[list[Any]]],
        joined: Callable[[], Joined[T]],
        orphan: Callable[[list[Any]], None] | None = None,
        *,
        patient: bool = False,
    ) -> None:
        """`joined` makes what says who may be joined. `orphan` gets the results of a caller that was cancelled while
        the work was under way. `patient`: begin when the work before is done (or has taken 10 ms), so that more come
        together, as databases commit groups; for work that is dear to begin and cheap to have more of."""
        self._work = work
        self._joined = joined
        self._orphan = orphan
        self._patient = patient
        self._next: asyncio.Handle | None = None
        self._waiting: Part[T] = []
        self._working: set[asyncio.Task[None]] = set()

    def hand_in(self, items: Sequence[T]) -> asyncio.Future[list[Any]]:
        """The results, when they are there. Nothing is begun for a caller that was cancelled before its turn; work that
        has begun goes on when its caller is cancelled."""
        loop = asyncio.get_running_loop()
        if not self._waiting:
            busy = self._patient and self._working
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
        if self._patient and self._waiting and not self._working:
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
        """Wait for the work under way."""
        if self._waiting:
            self._begin()
        await asyncio.gather(*self._working, return_exceptions=True)
