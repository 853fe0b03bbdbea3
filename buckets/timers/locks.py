"""The locks of the timers.

A bucket's timer runs in the one process that holds the bucket's lock. The lock only saves work; correctness does not
depend on it: a move is atomic by itself, so two timers on one bucket do no harm. The assignment (members.py) says which
locks an instance should have; one script for all locks of a shard keeps and takes these locks, and releases the others.
It respects the locks of live instances, and takes the locks of dead ones at once. Releasing a lock rings the bell.

The holder trusts a lock for less time than Redis keeps it: the holder stops before the lease ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence

from buckets.errors import JobQueueError, NoMeta, Unavailable
from buckets.events.switch import note_switch
from buckets.pool.pool import Pool
from buckets.redis.outage import Outage
from buckets.shards import Shards
from buckets.timers.members import Members
from buckets.waiting.notifier import Notifier

log = logging.getLogger(__name__)

LEASE_S = 6.0
BEAT_S = 3.0
_TRUST_S = 5.4
_AGAIN_S = 0.15  # after a beat that failed, or missed a lock that its owner has not released yet
_GIVE_UP_S = 1.0  # how long a shutdown waits for Redis


async def beat(
    shards: Shards, shard: int, token: str, lease_ms: int, *, wanted: Sequence[bool], living: Sequence[bytes]
) -> list[bool]:
    """For the instance with this token, keep or take each wanted lock of the shard that no other living instance holds,
    and release the rest. Returns for each lock whether the instance holds it now. Raises NoMeta."""
    bits = "".join([str(int(each)) for each in wanted])
    *taken, events, touches, has_stream = await shards.call(
        "beat", shard, living, token=token, lease=lease_ms, wanted=bits
    )
    await note_switch(shards, shard, events, touches, has_stream)
    return [bool(each) for each in taken]


class Locks:
    """The locks of one shard, as this process holds them."""

    def __init__(self, pool: Pool, notifier: Notifier, members: Members, shard: int) -> None:
        self._pool = pool
        self._members = members
        self._free = notifier.free(shard)
        self._trust: asyncio.TimerHandle | None = None
        self._outage = Outage(log, "lock.lost", "lock.found")
        self.shard = shard
        self.held = [asyncio.Event() for _ in range(pool.buckets)]
        self.last_answer = 0.0
        """When the last request that Redis answered was sent, by the loop's clock."""

    async def tick(self) -> bool:
        """Beat once: keep and take the locks that should be ours, release the others. Returns whether we hold exactly
        these now."""
        # A stale list does not show which instances have died since: then any instance may take any free lock.
        is_stale = bool(self._members.living) and self._members.is_stale()
        wanted = [True] * len(self.held) if is_stale else self._members.assigned(self.shard)
        loop = asyncio.get_running_loop()
        begun = loop.time()
        try:
            ours = await self._beat(wanted)
        except NoMeta:
            log.error("namespace.lost", extra={"shard": self.shard})
            await self._pool.ensure_meta(self.shard)
            log.info("namespace.found", extra={"shard": self.shard})
            return False
        self.last_answer = begun
        self._outage.end(shard=self.shard)
        self._distrust_at(begun + _TRUST_S)
        for event, mine in zip(self.held, ours, strict=True):
            self._hold(event, mine)
        return is_stale or ours == wanted

    async def _beat(self, wanted: list[bool]) -> list[bool]:
        return await beat(
            self._pool, self.shard, self._members.token, int(LEASE_S * 1000), wanted=wanted, living=self._members.living
        )

    def _hold(self, event: asyncio.Event, mine: bool) -> None:
        if event.is_set() != mine:
            self._pool.redis.meter.locked(mine)
            self._members.card_is_due.set()
        (event.set if mine else event.clear)()

    async def run(self) -> None:
        """Beat until cancelled; then release the locks."""
        try:
            while True:
                self._free.clear()
                pause = await self._ticked()
                if await self._woken(pause):
                    self._members.refresh_now()  # the instance that released locks may be gone
        finally:
            await self._give_up()

    async def _ticked(self) -> float:
        """As `tick`, if a lock concerns this instance; returns after how many seconds to tick again."""
        if not self._is_concerned():
            return BEAT_S
        try:
            return BEAT_S if await self.tick() else _AGAIN_S
        except JobQueueError:
            pass  # trust in the locks ends by itself
        except Exception:
            log.exception("lock.failed", extra={"shard": self.shard})
        return _AGAIN_S

    def _is_concerned(self) -> bool:
        """Whether a lock is ours or should be ours. While the list is stale, this is True in all instances, as one of
        them must find out whether Redis answers."""
        return (
            any(self._members.assigned(self.shard))
            or any(each.is_set() for each in self.held)
            or self._members.is_stale()
        )

    async def _woken(self, pause: float) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await self._free.wait()
        return self._free.is_set()

    def _distrust_at(self, time: float) -> None:
        if self._trust:
            self._trust.cancel()
        self._trust = asyncio.get_running_loop().call_at(time, self._distrust)

    def _distrust(self) -> None:
        if any(event.is_set() for event in self.held):
            self._outage.begin(Unavailable(), shard=self.shard)
        self._let_go()

    def _let_go(self) -> None:
        for event in self.held:
            self._hold(event, False)

    async def _give_up(self) -> None:
        if self._trust:
            self._trust.cancel()
        self._let_go()
        with contextlib.suppress(JobQueueError, TimeoutError):
            async with asyncio.timeout(_GIVE_UP_S):
                await self._beat([False] * self._pool.buckets)
