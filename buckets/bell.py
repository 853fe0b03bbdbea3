"""The bell: what Redis tells a process, and the pops that wait for it.

A subscription a shard, all those of a server on one connection. The scripts say: `ready n topic` (a list of the topic
was empty and got n jobs), `due n` (bucket n got an entry earlier than all others), `free` (an instance gave up its
timers' locks), `aside id` (a record that could not be read was set aside). A process says: `leave worker` (the waiting
pops of this worker end now; the name is the rest of the line).

A waiting pop is parked here, not on a Redis connection. A ring wakes as many pops as there are jobs, first come
first served; who pops and learns that more are left wakes the next. Pub/sub may lose a message: so a pop looks once
more after it is parked and once at the end of its wait, and one of each topic looks again after a reconnect.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from buckets.errors import JobQueueError
from buckets.pool import Pool
from buckets.pop_search import Popped

log = logging.getLogger(__name__)

_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 0.5  # before a lost subscription is tried again


class _Waiter:
    """A pop that may wait."""

    __slots__ = ("leaving", "rung")

    def __init__(self) -> None:
        self.rung = asyncio.Event()
        self.leaving = False  # its next look is its last


class Bell:
    """Hears the bells of a namespace and wakes who waits for them."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._waiters: dict[str, dict[_Waiter, None]] = {}  # by topic
        self._of_worker: dict[str, set[_Waiter]] = {}
        self._alarms: dict[tuple[int, int], asyncio.Event] = {}
        self._free = [asyncio.Event() for _ in pool.keys]
        self._openings: dict[str, asyncio.TimerHandle] = {}
        self._closed = False
        self.parked = 0
        """How many pops wait."""
        self._standing: set[int] = set()  # shards whose subscription stands
        self.connected = asyncio.Event()
        """Set while all subscriptions stand."""

    @property
    def hears(self) -> bool:
        """Whether the subscription of some shard stands; where masters of a Cluster fail, not of all."""
        return bool(self._standing)

    def alarm(self, shard: int, bucket: int) -> asyncio.Event:
        """Set when a bucket has something earlier than all that its timer knows of."""
        return self._alarms.setdefault((shard, bucket), asyncio.Event())

    def free(self, shard: int) -> asyncio.Event:
        """Set when locks of the shard fell free."""
        return self._free[shard]

    async def run(self) -> None:
        """Hear the bells of all shards for ever; a lost subscription is taken up again."""
        async with asyncio.TaskGroup() as group:
            for shard in range(len(self._free)):
                group.create_task(self._listen(shard))

    async def _listen(self, shard: int) -> None:
        told, pause = False, _PAUSE_S
        while True:
            try:
                await self._pool.listen(shard, partial(self.hear, shard), partial(self._look_again, shard))
            except JobQueueError as error:
                if shard in self._standing or not told:
                    log.warning("bell.lost", extra={"shard": shard, "error": str(error)})
                    told = True
            except Exception:
                log.exception("bell.failed", extra={"shard": shard})
            pause = _PAUSE_S if shard in self._standing else min(2 * pause, _LONGEST_PAUSE_S)
            self._standing.discard(shard)
            self.connected.clear()
            self._pool.ready_shards.lost(shard)
            await asyncio.sleep(pause)

    def hear(self, shard: int, message: str) -> None:
        """Act on what a script said; what another program says on the channel does no harm."""
        try:
            self._act(shard, message)
        except ValueError:
            log.warning("bell.misheard", extra={"shard": shard, "length": len(message)})

    def _act(self, shard: int, message: str) -> None:
        kind, _, rest = message.partition(" ")
        if kind == "ready":
            number, _, topic = rest.partition(" ")
            jobs = int(number)
            self._pool.ready_shards.heard(shard, topic)
            self.ring(topic, jobs)
        elif kind == "due" and (shard, int(rest)) in self._alarms:
            self._alarms[shard, int(rest)].set()
        elif kind == "free":
            self._free[shard].set()
        elif kind == "aside":
            log.error("job.set_aside", extra={"id": rest, "shard": shard})
        elif kind == "leave":
            self._dismiss(rest)

    def ring(self, topic: str, jobs: int) -> None:
        """Wake as many of the topic's waiters as there are jobs, those first who came first."""
        for waiter in self._waiters.get(topic, ()):
            if jobs <= 0:
                return
            if not waiter.rung.is_set():
                waiter.rung.set()
                jobs -= 1

    def _look_again(self, shard: int) -> None:
        """The subscription stands: what was said before it is not known."""
        self._standing.add(shard)
        self._pool.ready_shards.stands(shard)
        if len(self._standing) == len(self._free):
            self.connected.set()
        self._free[shard].set()
        for (of, _), alarm in self._alarms.items():
            if of == shard:
                alarm.set()
        for topic in self._waiters:
            self.ring(topic, 1)

    async def leave(self, worker: str) -> None:
        """Let the waiting pops of a worker answer now, in all processes: with what one last look finds, or empty.
        Raises Unavailable when the other processes may not know of it; those here end all the same."""
        self._dismiss(worker)
        await self._pool.tell(f"leave {worker}")

    def _dismiss(self, worker: str) -> None:
        for waiter in self._of_worker.get(worker, ()):
            self._end(waiter)

    async def pop(
        self, topics: Sequence[str], count: int, wait_s: float, *, worker: str = "", **options: Any
    ) -> Popped:
        """As `Pool.pop`, waiting up to `wait_s` seconds for a job. Empty at the end of the wait, when the worker
        leaves, or when the bell is closed."""
        options["worker"] = worker
        if wait_s <= 0:
            return await self._pool.pop(topics, count, **options)
        waiter = _Waiter()
        with self._known(waiter, worker):  # from its first look on: the worker may leave meanwhile
            popped = await self._pool.pop(topics, count, **options)
            if popped.jobs or waiter.leaving or self._closed:
                return popped
            return await self._park(waiter, topics, count, wait_s, options)

    @contextlib.contextmanager
    def _known(self, waiter: _Waiter, worker: str) -> Iterator[None]:
        """The waiter can be told to leave while the block runs; one without a worker cannot."""
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
        gone = True  # until it has its answer: its caller may be cancelled, Redis away
        try:
            popped = await self._parked_pop(waiter, topics, count, wait_s, options)
            gone = False
        finally:
            self._unpark(waiter, topics)
            found_elsewhere = bool(popped.jobs) and self._may_be_more(topics)
            if gone or waiter.rung.is_set() or popped.left or found_elsewhere:
                self._pass_on(popped, topics)
        return popped

    def _may_be_more(self, topics: Sequence[str]) -> bool:
        """Whether a pop that found jobs may have been woken for others, in another topic or another shard."""
        if len(self._pool.keys) == 1:
            return len(topics) > 1
        return any(map(self._pool.ready_shards.expected, topics))

    def _pass_on(self, popped: Popped, topics: Sequence[str]) -> None:
        """See that someone else looks for what this one was woken for, or left. Those who are woken already count:
        else a thousand jobs would wake many thousand waiters."""
        last = popped.jobs[-1].topic if popped.jobs else None
        for topic in topics:
            number = max(popped.left, 1) if topic == last else 1
            for waiter in itertools.islice(self._waiters.get(topic, ()), number):
                waiter.rung.set()

    async def _parked_pop(
        self, waiter: _Waiter, topics: Sequence[str], count: int, wait_s: float, options: dict[str, Any]
    ) -> Popped:
        loop = asyncio.get_running_loop()
        ending = loop.call_later(wait_s, self._end, waiter)
        try:
            while True:
                over = waiter.leaving
                waiter.rung.clear()
                popped = await self._pool.pop(topics, count, **options)
                if popped.jobs or over or self._closed:
                    return popped
                if popped.opens_us is not None:
                    self._ring_at(loop.time() + popped.opens_us / 1e6, topics)
                await waiter.rung.wait()
                if self._closed:
                    return Popped()
        finally:
            ending.cancel()

    def _end(self, waiter: _Waiter) -> None:
        if not waiter.leaving:  # else it takes its last look: what rings then must be a job, for it is passed on
            waiter.leaving = True
            waiter.rung.set()

    def _ring_at(self, time: float, topics: Sequence[str]) -> None:
        """Ring when a pause ends, as nobody else does. Once, for all who wait: thousands of pops in that moment would
        hold up all others, and who is woken wakes the next."""
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
