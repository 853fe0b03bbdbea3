"""The roll of the living instances, and who of them has which timer.

Each process that runs timers signs the roll in Redis several times a second, under a token of its own, and reads who
else did. Who has not signed for a while is struck off: it died, or stands still. From the same roll all draw the same
conclusion (buckets/timers/assignment.py): every timer has one instance, and no instance many more than another.

The roll guards nothing, and neither do the locks that follow it (locks.py): where it cannot be read, what it
said last goes on to hold.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time

from buckets.errors import JobQueueError, NoMeta, Unavailable
from buckets.notifier import Notifier
from buckets.pool import Pool
from buckets.shards import Shards
from buckets.timers.assignment import assign
from buckets.timers.clock_jumps import ClockJumps

log = logging.getLogger(__name__)

SIGN_S = 0.15
LIFE_S = 0.45  # after its last signature
_APART_S = 0.25  # between the last signatures of two that live, at most; when Redis stands still, all are old
_SILENT_S = 1.0  # the roll: then it is logged, and the locks are looked after without it
_SPARE_S = 1.0  # after that, when it answers again: the others have to find it, too
_SPARED_S = 60.0  # in the place of LIFE_S meanwhile
_LEAVE_S = 1.0  # that a stop waits for Redis


async def sign(shards: Shards, token: str, life_ms: int, apart_ms: int) -> tuple[int, int, list[bytes]]:
    """Sign the list of living instances. Returns Redis's time in us, in how many ms another instance may be struck off
    (-1: none soon), and the tokens of all. An instance that has not signed for `life_ms` is struck off, unless we had
    not signed either: its last signature is at most `apart_ms` older than ours. Raises NoMeta."""
    now_us, soonest_ms, *living = await shards.call(
        "roll", 0, token=token, life=life_ms, apart=apart_ms, now=shards.clock.now()
    )
    return now_us, soonest_ms, living


async def strike(shards: Shards, token: str) -> None:
    """Take an instance off the list."""
    await shards.redis.read("ZREM", shards.keys[0].roll, token)


class Members:
    """The living instances, as this one knows them."""

    def __init__(self, pool: Pool, notifier: Notifier, clock_limit_s: float = 1.0) -> None:
        self._pool = pool
        self._notifier = notifier
        self._drift = ClockJumps(pool.redis.meter, clock_limit_s)
        self._look = asyncio.Event()
        self._told = False  # that the roll does not answer
        self._spare_until = 0.0  # the loop's time until which nobody is struck off
        self.token = secrets.token_hex(8)
        self.living: list[bytes] = []
        """Their tokens, in order, with our own; empty until Redis has answered once."""
        self._owners: list[bytes] = []  # of all timers, the shards' one after the other
        self.last_answer = 0.0
        """When Redis answered last: the loop's time at the question."""

    def share(self, shard: int) -> list[bool]:
        """For each bucket of a shard, whether its timer should run here."""
        buckets, own = self._pool.buckets, self.token.encode()
        owners = self._owners[shard * buckets : (shard + 1) * buckets] or [b""] * buckets
        return [owner == own for owner in owners]

    def is_silent(self) -> bool:
        """Whether Redis does not answer for the roll."""
        return asyncio.get_running_loop().time() - self.last_answer > _SILENT_S

    def look(self) -> None:
        """See at once who lives."""
        self._look.set()

    async def tick(self) -> float:
        """Sign once; returns after how many seconds to do so again."""
        loop = asyncio.get_running_loop()
        begun, asked = loop.time(), time.monotonic()
        lost = bool(self.living) and self.is_silent()
        life_s = _SPARED_S if lost or begun < self._spare_until else LIFE_S
        try:
            now_us, soonest_ms, living = await sign(self._pool, self.token, int(life_s * 1000), int(_APART_S * 1000))
        except NoMeta:
            log.error("namespace.lost", extra={"shard": 0})
            await self._pool.ensure_meta(0)
            self._wake()  # the other shards are as empty
            return 0.0
        if self._drift.compare(asked, time.monotonic(), now_us / 1e6):
            self._wake_timers()
        if lost:
            self._spare_until = loop.time() + _SPARE_S
        self.last_answer = begun
        self._take(sorted(living))
        rest_s = max(begun + SIGN_S - loop.time(), 0.0)
        return rest_s if soonest_ms < 0 else min(rest_s, (soonest_ms + 1) / 1000)

    def _take(self, living: list[bytes]) -> None:
        if living != self.living:
            self.living = living
            self._owners = assign(len(self._pool.keys) * self._pool.buckets, living)
            self._pool.redis.meter.signed(len(living))
            log.info("roll.changed", extra={"instances": len(living)})
            self._wake()

    def _wake(self) -> None:
        """Let all locks be looked at."""
        for shard in range(len(self._pool.keys)):
            self._notifier.free(shard).set()

    def _wake_timers(self) -> None:
        """Let all timers ask anew how long nothing is due: they sleep by what Redis's clock said before its jump."""
        for shard in range(len(self._pool.keys)):
            for bucket in range(self._pool.buckets):
                self._notifier.alarm(shard, bucket).set()

    async def run(self) -> None:
        """Sign for ever, or until cancelled; then this instance is taken off the roll."""
        try:
            while True:
                self._look.clear()
                pause = await self._ticked()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await self._look.wait()
        finally:
            await self._leave()

    async def _ticked(self) -> float:
        """As `tick`; an error changes nothing, and is logged once."""
        try:
            async with asyncio.timeout(_SILENT_S):
                pause = await self.tick()
            self._told = False
            return pause
        except (JobQueueError, TimeoutError) as error:
            if self.is_silent() and not self._told:
                self._told = True
                log.warning("roll.lost", extra={"error": str(error) or str(Unavailable())})
                self._wake()
        except Exception:
            log.exception("roll.failed")
        return SIGN_S

    async def _leave(self) -> None:
        with contextlib.suppress(JobQueueError, TimeoutError):
            async with asyncio.timeout(_LEAVE_S):
                await strike(self._pool, self.token)
