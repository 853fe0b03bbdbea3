"""Members: the instances that are alive, and the timers that each of them is assigned.

Each process that runs timers signs a list in Redis several times a second, with a token of its own. Most commands of an
idle service are for this, so a process reads the list only when a member may have to be removed, according to the last
reading, and often enough to see new members. An instance that has not signed for a while is removed: it died, or stands
still. All instances derive the same assignment from the same list, so each timer has one instance, and the load is
even.

Correctness depends neither on the list nor on the locks that follow it (locks.py): while the list cannot be read, its
last state remains in effect.

All instances that read the same list of members compute the same assignment without talking to each other: by
rendezvous hashing (Thaler and Ravishankar, 1998) with an even load. Two instances differ by at most one timer; when one
joins or leaves, hardly any timer moves between the others.

`ClockJumps` detects jumps of Redis's clock. Jobs follow Redis's clock wherever it goes. So an operator wants to know
when it jumps: somebody set it, or another Redis, on a host with a different time, took over. Redis's clock is compared
with this process's monotonic clock, which nobody sets. Redis reads its clock at some moment between our request and the
arrival of the reply: so a paused process or a slow network makes the comparison less exact, but does not look like a
jump.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from math import inf
from random import Random
from typing import NamedTuple

from buckets.errors import JobQueueError, NoMeta, Unavailable
from buckets.events.switch import note_switch
from buckets.meter import Meter
from buckets.pool.pool import Pool
from buckets.redis.outage import Outage
from buckets.shards import Shards
from buckets.waiting.notifier import Notifier


def assign(timers: int, tokens: Sequence[bytes]) -> list[bytes]:
    """For each of the timers 0 to `timers` - 1, the token of its instance. `tokens` must not be empty."""
    least, more = divmod(timers, len(tokens))  # `more` instances have one timer more than `least`
    has = dict.fromkeys(tokens, 0)
    owners: dict[int, bytes] = {}
    for _, timer, token in sorted(score for each in tokens for score in _scores(timers, each)):
        if timer in owners or has[token] > least or (has[token] == least and not more):
            continue
        if has[token] == least:
            more -= 1
        has[token] += 1
        owners[timer] = token
    return [owners[timer] for timer in range(timers)]


def _scores(timers: int, token: bytes) -> Iterator[tuple[float, int, bytes]]:
    """How well an instance fits each timer (the lower, the better); the same in all processes."""
    random = Random(token)
    return ((random.random(), timer, token) for timer in range(timers))


log = logging.getLogger(__name__)

_EXACT_S = 0.1  # a slower reply is too inexact to compare two clocks


class ClockJumps:
    """What this process knows of Redis's clock. `limit_s`: larger jumps are reported."""

    def __init__(self, meter: Meter, limit_s: float = 1.0) -> None:
        self._meter = meter
        self._limit_s = limit_s
        # Redis's clock minus ours is between these two.
        self._least = -inf
        self._most = inf

    def compare(self, asked: float, answered: float, redis_s: float) -> float:
        """Compare Redis's time, in s since the epoch, with the `time.monotonic` of the request and the reply. Returns
        by how many seconds Redis's clock has jumped ahead (below 0 for back), or 0 for a jump within the limit."""
        if answered - asked < _EXACT_S:
            self._meter.compared(redis_s - time.time())
        least, most = redis_s - answered, redis_s - asked
        jump = max(least - self._most, 0.0) or min(most - self._least, 0.0)
        if jump:  # or the clocks run at different rates: either way, the old bounds are void
            self._least, self._most = least, most
        else:
            self._least, self._most = max(least, self._least), min(most, self._most)
        if abs(jump) <= self._limit_s:
            return 0.0
        log.warning("clock.jumped", extra={"ahead_s": round(jump, 3)})
        self._meter.jumped(jump)
        return jump


SIGN_S = 0.15
LIFE_S = 0.45  # how long an instance counts as live after its last signature
_READ_S = 0.5  # the longest time between two readings of the list
_APART_S = 0.25  # the most between the last signatures of two live instances; if Redis stands still, all are old
_STALE_S = 1.0  # without an answer: then the outage is logged, and the locks are handled without the list
_SPARE_S = 1.0  # after Redis answers again, for the other instances to reach it, too
_SPARED_S = 60.0  # instead of LIFE_S meanwhile
_LEAVE_S = 1.0  # how long a shutdown waits for Redis


class Roll(NamedTuple):
    """The list after this instance has signed it."""

    now_us: int
    """Redis's time."""
    soonest_ms: int
    """After how many ms the next instance may be removed, or -1 if none soon."""
    is_new: bool
    """True if the list did not contain this instance before."""
    version: int
    """The version of the records of tokens (buckets/access.py), or 0 if there are none or it was not requested."""
    living: list[bytes]
    """The tokens of all instances."""


async def sign(shards: Shards, token: str, life_ms: int, apart_ms: int, *, versioned: bool = False) -> Roll:
    """Sign the list. An instance that has not signed for `life_ms` is removed, unless we had not signed either: its
    last signature is at most `apart_ms` older than ours. `versioned`: whether to request the version. Raises NoMeta."""
    now_us, soonest_ms, is_new, version, events, touches, has_stream, *living = await shards.call(
        "sign_in",
        0,
        token=token,
        life=life_ms,
        apart=apart_ms,
        now=shards.clock.now(),
        versioned=int(versioned),
    )
    await note_switch(shards, 0, events, touches, has_stream)
    return Roll(now_us, soonest_ms, bool(is_new), int(version) if version.isdigit() else 0, living)


async def sign_again(shards: Shards, token: str, at_ms: int) -> bool:
    """Sign the list at a time by Redis's clock, without reading the list. Returns False if the list does not contain
    the instance, or if Redis refuses: it is full, and lets only scripts like that of `sign` write; or the key is
    another program's."""
    try:  # a plain command: scripts would double the number of commands of an idle service
        return bool(await shards.redis.read("ZADD", shards.keys[0].members, "XX", "CH", at_ms, token))
    except Unavailable:
        raise
    except JobQueueError:
        return False


async def sign_out(shards: Shards, token: str) -> None:
    """Remove an instance from the list, and remove its card."""
    await shards.call("sign_out", 0, token=token)


class Members:
    """The live instances, as this one knows them."""

    def __init__(self, pool: Pool, notifier: Notifier, clock_limit_s: float = 1.0) -> None:
        """`clock_limit_s`: larger jumps of Redis's clock are reported."""
        self._pool = pool
        self._notifier = notifier
        self._clock_jumps = ClockJumps(pool.redis.meter, clock_limit_s)
        self._refresh = asyncio.Event()
        self._outage = Outage(log, "roll.lost", "roll.found")
        self._spare_until = 0.0  # the loop's time until which instances are removed only after _SPARED_S
        self._read_at = 0.0  # the loop's time at which the list must be read again
        self._ahead_s: float | None = None  # Redis's clock minus the loop's
        self.token = secrets.token_hex(8)
        self.living: list[bytes] = []
        """The tokens of the live instances, sorted, including our own; empty until Redis has answered once."""
        self._owners: list[bytes] = []  # of all timers, shard by shard
        self.last_answer = 0.0
        """When the last request that Redis answered was sent, by the loop's clock."""
        self.card_is_due = asyncio.Event()
        """Set when the card of this instance (cards.py) must be written: the instance is new on the list, or holds
        other timers than before."""
        self.on_version: Callable[[int, float], None] | None = None
        """Called whenever the list was read, with the version of the records of tokens and the loop's time of the
        request. If None, the version is not requested."""

    def redis_s(self) -> float:
        """The time by the queue's clock, in Unix seconds; by this host's clock until Redis has answered once."""
        held = self._pool.clock.now()
        if held:
            return int(held) / 1e6
        return time.time() if self._ahead_s is None else asyncio.get_running_loop().time() + self._ahead_s

    def assigned(self, shard: int) -> list[bool]:
        """For each bucket of a shard, whether its timer should run here."""
        buckets, own = self._pool.buckets, self.token.encode()
        owners = self._owners[shard * buckets : (shard + 1) * buckets] or [b""] * buckets
        return [owner == own for owner in owners]

    def is_stale(self) -> bool:
        """Whether Redis has not answered a request about the list for a second."""
        return asyncio.get_running_loop().time() - self.last_answer > _STALE_S

    def refresh_now(self) -> None:
        """Sign and read the list at once."""
        self._refresh.set()

    async def tick(self) -> float:
        """Sign and read the list once; returns after how many seconds to sign again."""
        loop = asyncio.get_running_loop()
        begun, asked = loop.time(), time.monotonic()
        was_lost = bool(self.living) and self.is_stale()
        life_s = _SPARED_S if was_lost or begun < self._spare_until else LIFE_S
        try:
            now_us, soonest_ms, is_new, version, living = await sign(
                self._pool,
                self.token,
                int(life_s * 1000),
                int(_APART_S * 1000),
                versioned=self.on_version is not None,
            )
        except NoMeta:
            log.error("namespace.lost", extra={"shard": 0})
            await self._pool.ensure_meta(0)
            log.info("namespace.found", extra={"shard": 0})
            self._wake_locks()  # the other shards are also empty
            return 0.0
        if self._clock_jumps.compare(asked, time.monotonic(), now_us / 1e6):
            self._wake_timers()
        if was_lost:
            self._spare_until = loop.time() + _SPARE_S
        self.last_answer = begun
        if is_new:
            self.card_is_due.set()
        self._take(sorted(living))
        answered = loop.time()
        self._ahead_s = now_us / 1e6 - answered
        self._read_at = answered + (_READ_S if soonest_ms < 0 else min(_READ_S, (soonest_ms + 1) / 1000))
        if self.on_version:
            self.on_version(version, begun)
        return self._pause(begun)

    async def tick_unread(self) -> float:
        """As `tick`, without reading the list. A list that is lost, or does not contain this instance, is read next."""
        begun = asyncio.get_running_loop().time()
        if not await sign_again(self._pool, self.token, int(self.redis_s() * 1000)):
            self._read_at = 0.0
        self.last_answer = begun
        return self._pause(begun)

    def _pause(self, begun: float) -> float:
        """For how many seconds to sleep after a tick."""
        return max(min(begun + SIGN_S, self._read_at) - asyncio.get_running_loop().time(), 0.0)

    def _take(self, living: list[bytes]) -> None:
        if living != self.living:
            self.living = living
            timers = len(self._pool.keys) * self._pool.buckets
            self._owners = assign(timers, living)
            self._pool.redis.meter.signed(len(living), timers)
            log.info("roll.changed", extra={"instances": len(living)})
            self._wake_locks()

    def _wake_locks(self) -> None:
        for shard in range(len(self._pool.keys)):
            self._notifier.free(shard).set()

    def _wake_timers(self) -> None:
        """Make all timers ask again when the next entry is due: they sleep according to Redis's clock before its
        jump."""
        for shard in range(len(self._pool.keys)):
            for bucket in range(self._pool.buckets):
                self._notifier.alarm(shard, bucket).set()

    async def run(self) -> None:
        """Sign until cancelled; then remove this instance from the list."""
        try:
            while True:
                if self._refresh.is_set():
                    self._read_at = 0.0
                    self._refresh.clear()
                pause = await self._ticked()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await self._refresh.wait()
        finally:
            await self._leave()

    async def _ticked(self) -> float:
        """As `tick`, or as `tick_unread` if the list can be read later; an error changes nothing, and is logged
        once."""
        # Read the list now if the next signature would come too late for that.
        is_read = asyncio.get_running_loop().time() + SIGN_S > self._read_at
        try:
            async with asyncio.timeout(_STALE_S):
                pause = await (self.tick() if is_read else self.tick_unread())
            self._outage.end()
            return pause
        except (JobQueueError, TimeoutError) as error:
            if self.is_stale() and not self._outage.is_on:
                self._outage.begin(error)
                self._wake_locks()
        except Exception:
            log.exception("roll.failed")
        self._read_at = 0.0
        return SIGN_S

    async def _leave(self) -> None:
        with contextlib.suppress(JobQueueError, TimeoutError):
            async with asyncio.timeout(_LEAVE_S):
                await sign_out(self._pool, self.token)
