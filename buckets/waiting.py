"""Pops that wait for jobs: they are parked here, not each on a Redis connection, until the notifier rings for them.

A ring wakes as many pops as there are jobs, first come, first served; a pop that leaves more jobs behind wakes the next
one. Since pub/sub may lose messages, a pop looks once more after it is parked and once at the end of its wait, and
after a reconnect one pop of each topic looks again. One that waits for long also looks once a minute.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from buckets.errors import Unavailable
from buckets.notifier import Listener, Notifier
from buckets.pool.pool import Pool
from buckets.pool.pop_search import Popped

LOOK_S = 60.0  # after which a waiting pop looks again, as a message may have been lost


class _Waiter:
    """A pop that may wait."""

    __slots__ = ("early", "leaving", "looking", "rung")

    def __init__(self) -> None:
        self.rung = asyncio.Event()
        self.leaving = False  # its next look is its last
        self.looking: asyncio.TimerHandle | None = None  # when it looks without being rung
        self.early = False  # its next look is such a one, before the end of its wait


class Waiting:
    """The waiting pops of this process."""

    def __init__(self, pool: Pool, notifier: Notifier) -> None:
        self._pool = pool
        self.notifier = notifier
        self._waiters: dict[str, dict[_Waiter, None]] = {}  # by topic
        self._of_worker: dict[str, set[_Waiter]] = {}
        self._openings: dict[str, asyncio.TimerHandle] = {}  # by topic: when its pause ends
        self._closed = False
        self.parked = 0
        """How many pops wait."""
        notifier.register(
            Listener(ready=self._hear_ready, leave=self._dismiss, subscribed=self._subscribed, lost=self._lose)
        )

    def _hear_ready(self, shard: int, topic: str, jobs: int) -> None:
        self._pool.ready_shards.heard(shard, topic)
        self.ring(topic, jobs)

    def ring(self, topic: str, jobs: int) -> None:
        """Wake as many of the topic's waiters as there are jobs, first come, first served."""
        for waiter in self._waiters.get(topic, ()):
            if jobs <= 0:
                return
            if not waiter.rung.is_set():
                waiter.rung.set()
                jobs -= 1

    def _subscribed(self, shard: int) -> None:
        """The shard is heard from now on; what it published before is unknown."""
        self._pool.ready_shards.stands(shard)
        self.look_again()

    def look_again(self) -> None:
        """Let one pop of each topic look, as if a ring had been missed; it wakes the next if it leaves jobs."""
        for topic in self._waiters:
            self.ring(topic, 1)

    def _lose(self, shard: int) -> None:
        self._pool.ready_shards.lost(shard)

    async def leave(self, worker: str) -> None:
        """Let the waiting pops of a worker answer now, in all processes: with what one last look finds, or empty.
        Raises Unavailable when the other processes may not have heard of it; the pops of this one end all the same."""
        self._dismiss(worker)
        await self.notifier.publish(f"leave {worker}")

    def _dismiss(self, worker: str) -> None:
        for waiter in self._of_worker.get(worker, ()):
            self._end(waiter)

    async def pop(
        self, topics: Sequence[str], count: int, wait_s: float, *, worker: str = "", **options: Any
    ) -> Popped:
        """As `Pool.pop`, waiting up to `wait_s` seconds for a job, or without end (`math.inf`). Empty at the end of the
        wait, when the worker leaves, or when all are let go by `close`."""
        options["worker"] = worker
        if wait_s <= 0:
            return await self._pool.pop(topics, count, **options)
        waiter = _Waiter()
        with self._registered(waiter, worker):  # from its first look on: the worker may leave during it
            popped = await self._pool.pop(topics, count, **options)
            if popped.jobs or waiter.leaving or self._closed:
                return popped
            return await self._park(waiter, topics, count, wait_s, options)

    @contextlib.contextmanager
    def _registered(self, waiter: _Waiter, worker: str) -> Iterator[None]:
        """Let the worker's `leave` reach the waiter while the block runs; a pop without a worker has no `leave`."""
        if not worker:
            yield
            return
        waiters = self._of_worker.setdefault(worker, set())
        waiters.add(waiter)
        try:
            yield
        finally:
            waiters.discard(waiter)
            if not waiters:
                del self._of_worker[worker]

    async def _park(
        self, waiter: _Waiter, topics: Sequence[str], count: int, wait_s: float, options: dict[str, Any]
    ) -> Popped:
        for topic in topics:
            self._waiters.setdefault(topic, {})[waiter] = None
        self.parked += 1
        popped = Popped()
        unanswered = True  # its caller may be cancelled, or Redis unavailable
        try:
            popped = await self._parked_pop(waiter, topics, count, wait_s, options)
            unanswered = False
        finally:
            self._unpark(waiter, topics)
            found_elsewhere = bool(popped.jobs) and self._may_be_more(topics)
            if unanswered or waiter.rung.is_set() or popped.left or found_elsewhere:
                self._pass_on(popped, topics)
        return popped

    def _may_be_more(self, topics: Sequence[str]) -> bool:
        """Whether a pop that found jobs may have been woken for others, in another topic or another shard."""
        if len(self._pool.keys) == 1:
            return len(topics) > 1
        return any(map(self._pool.ready_shards.expected, topics))

    def _pass_on(self, popped: Popped, topics: Sequence[str]) -> None:
        """Have other waiters look for what this one was woken for, or left behind. Waiters that are already awake
        count: otherwise a thousand jobs would wake many thousand waiters."""
        last = popped.jobs[-1].topic if popped.jobs else None
        for topic in topics:
            number = max(popped.left, 1) if topic == last else 1
            for waiter in itertools.islice(self._waiters.get(topic, ()), number):
                waiter.rung.set()

    async def _parked_pop(
        self, waiter: _Waiter, topics: Sequence[str], count: int, wait_s: float, options: dict[str, Any]
    ) -> Popped:
        loop = asyncio.get_running_loop()
        self._plan_look(waiter, loop.time() + wait_s)
        try:
            while True:
                over = waiter.leaving
                waiter.rung.clear()
                popped = await self._look_for(waiter, topics, count, options)
                if popped.jobs or over or self._closed:
                    return popped
                if popped.opens_us is not None:
                    self._ring_at(loop.time() + popped.opens_us / 1e6, topics)
                await waiter.rung.wait()
                if self._closed:
                    return Popped()
        finally:
            if waiter.looking:
                waiter.looking.cancel()

    async def _look_for(self, waiter: _Waiter, topics: Sequence[str], count: int, options: dict[str, Any]) -> Popped:
        """One look. An early one that finds Redis away is as good as none: the wait goes on."""
        early, waiter.early = waiter.early and not waiter.leaving, False
        try:
            return await self._pool.pop(topics, count, **options)
        except Unavailable:
            if not early:
                raise
            return Popped()

    def _plan_look(self, waiter: _Waiter, end: float) -> None:
        """Let the waiter look at the end of its wait (loop time), or before it if that is far away."""
        loop = asyncio.get_running_loop()
        soon = loop.time() + LOOK_S
        if end <= soon:
            waiter.looking = loop.call_at(end, self._end, waiter)
        else:
            waiter.looking = loop.call_at(soon, self._look, waiter, end)

    def _look(self, waiter: _Waiter, end: float) -> None:
        if not waiter.leaving:
            waiter.early = True
            waiter.rung.set()
            self._plan_look(waiter, end)

    def _end(self, waiter: _Waiter) -> None:
        if not waiter.leaving:  # on its last look only a job may ring it, as the ring is passed on
            waiter.leaving = True
            waiter.rung.set()

    def _ring_at(self, time: float, topics: Sequence[str]) -> None:
        """Ring when a pause ends, since no script does. One ring for all waiters: thousands of simultaneous pops would
        hold up everything else, and a woken pop wakes the next."""
        for topic in topics:
            known = self._openings.get(topic)
            if known is None or time < known.when():
                if known:
                    known.cancel()
                self._openings[topic] = asyncio.get_running_loop().call_at(time, self._open, topic)

    def _open(self, topic: str) -> None:
        del self._openings[topic]
        self.ring(topic, 1)

    def _unpark(self, waiter: _Waiter, topics: Sequence[str]) -> None:
        self.parked -= 1
        for topic in topics:
            waiters = self._waiters.get(topic)
            if waiters is not None:
                waiters.pop(waiter, None)
                if not waiters:
                    del self._waiters[topic]
                    if topic in self._openings:
                        self._openings.pop(topic).cancel()

    def close(self) -> None:
        """Let all parked pops answer empty, now."""
        self._closed = True
        for opening in self._openings.values():
            opening.cancel()
        for waiters in self._waiters.values():
            for waiter in waiters:
                waiter.rung.set()
