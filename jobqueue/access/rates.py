"""The rates of tokens: Redis holds a bucket of permits for each token; each process leases chunks of permits and spends
them without asking Redis.

The rest of a chunk lapses after a second. So all instances together spend at most `burst + rate x (T + 1)` permits in
any T seconds, and one script serves many commands. When there are no permits, Redis is asked again only once it should
have most of a chunk, and until then everything is refused without asking: a client that keeps asking costs ten to
twenty scripts per second and process, however many commands it sends.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Sequence

from buckets.access import lease
from buckets.errors import JobQueueError, Unavailable
from buckets.shards import Shards
from jobqueue.access.tokens import LEAST_BURST, Record

_LAPSE_S = 1.0  # after which the rest of a chunk is no longer spent
_FAILED_S = 0.25  # how long Redis is not asked after it did not answer; otherwise, waiting calls would ask in turn
_CHUNKS_A_SECOND = 10
_CHUNKS_A_BURST = 8

Lease = Callable[..., Awaitable[tuple[int, float]]]
"""Like buckets.access.lease, without its first argument."""


class Permits:
    """The permits of one kind that this process may spend for a token."""

    def __init__(self, lease: Lease, name: str, rate: int, burst: int) -> None:
        """`rate`: permits per second; `burst`: permits in a full bucket."""
        self._lease = lease
        self._name = name
        self._rate = rate
        self._burst = burst
        self._chunk = max(1, min(rate // _CHUNKS_A_SECOND, burst // _CHUNKS_A_BURST))
        self._left = 0
        self._lapses_at = 0.0  # monotonic
        self._lacking = 0  # the number of permits that Redis lacks until `_lacking_until`
        self._lacking_until = 0.0  # monotonic
        self._fails_until = 0.0  # monotonic
        self._owed = 0
        self._leasing = asyncio.Lock()
        self._paying: asyncio.Task[None] | None = None

    def spend(self, count: int) -> bool:
        """Spend permits that are available now. Returns False, and spends nothing, if there are too few."""
        if count > self._left or (count and time.monotonic() > self._lapses_at):
            return False
        self._left -= count
        return True

    def refund(self, count: int) -> None:
        """Return permits that were spent but not used."""
        self._left += count

    def owe(self, count: int) -> None:
        """Spend permits that cannot be refused."""
        self._owed += count
        if self._owed >= self._chunk and self._paying is None:
            self._paying = asyncio.get_running_loop().create_task(self._pay())

    async def _pay(self) -> None:
        """Report owed permits to Redis if no lease does; while Redis is away, they stay owed."""
        try:
            async with self._leasing:
                await self._renew(0, 0)
        except JobQueueError:
            await asyncio.sleep(_LAPSE_S)
        finally:
            self._paying = None

    async def take(self, count: int, least: int = 1) -> tuple[int, float]:
        """Spend up to `count` permits, leasing some if needed; none if fewer than `least` are available. Returns how
        many were spent, and in how many seconds there may be more. Raises JobQueueError."""
        if self.spend(count):
            return count, 0.0
        async with self._leasing:  # another call may have leased some meanwhile
            spent = self._spend_some(count, least)
            if spent:
                return spent, 0.0
            if time.monotonic() < self._fails_until:
                raise Unavailable()
            after_s = self._lacks_for(least) or await self._renew(least, max(count, self._chunk))
            return self._spend_some(count, least), after_s

    def _spend_some(self, count: int, least: int) -> int:
        at_hand = 0 if time.monotonic() > self._lapses_at else self._left
        spent = min(count, at_hand) if at_hand >= least else 0
        self._left -= spent
        return spent

    def _lacks_for(self, least: int) -> float:
        """For how many seconds Redis is known to lack so many permits, or 0 if it must be asked."""
        if not self._lacking or least < self._lacking:
            return 0.0
        return max(self._lacking_until - time.monotonic(), 0.0)

    def _lack(self, least: int, after_s: float) -> float:
        """Note that the bucket has fewer than `least` permits for `after_s` seconds. Returns in how many seconds to ask
        again: when there should be some for other commands, too. The delay is random, so that no process is always
        first."""
        after_s += random.uniform(0.5, 1) * (self._chunk - 1) / self._rate
        self._lacking, self._lacking_until = least, time.monotonic() + after_s
        return after_s

    async def _renew(self, least: int, most: int) -> float:
        """Lease a chunk, which replaces the permits that are left. Returns in how many seconds to ask again if there
        are none, otherwise 0."""
        asked_at = time.monotonic()
        owed, self._owed = min(self._owed, 2 * self._burst), 0
        try:
            leased, after_s = await self._lease(
                self._name, rate=self._rate, burst=self._burst, least=least, most=most, owed=owed
            )
        except JobQueueError:
            self._owed += owed
            self._fails_until = time.monotonic() + _FAILED_S
            raise
        if leased:
            self._left, self._lapses_at = leased, asked_at + _LAPSE_S
        if leased < most:
            wait_s = self._lack(1 if leased else least, after_s)
            return 0.0 if leased else wait_s
        return 0.0


class Quota:
    """The rates of one token in this process: of its commands, and of the bytes of their bodies."""

    def __init__(self, commands: Permits | None, bytes_: Permits | None) -> None:
        """None for a rate that is not limited."""
        self._commands = commands
        self._bytes = bytes_
        self.counts_bytes = bytes_ is not None

    def spend(self, count: int, size: int = 0) -> bool:
        """Spend permits that are available now for so many commands and bytes. Returns False, and spends nothing, if
        there are too few."""
        if self._commands is not None and not self._commands.spend(count):
            return False
        if self._bytes is not None and size and not self._bytes.spend(size):
            if self._commands is not None:
                self._commands.refund(count)
            return False
        return True

    def refund(self, count: int, size: int = 0) -> None:
        """Return permits that were spent but not used."""
        if self._commands is not None:
            self._commands.refund(count)
        if self._bytes is not None:
            self._bytes.refund(size)

    def owe(self, count: int) -> None:
        """Count commands that are never refused."""
        if self._commands is not None:
            self._commands.owe(count)

    async def take(self, sizes: Sequence[int]) -> tuple[int, float]:
        """Spend permits for as many of the first commands as possible. `sizes`: the bytes of each command's body.
        Returns for how many commands permits were spent, and in how many seconds there may be some for the next one.
        Raises JobQueueError."""
        done, after_s = await self._take_commands(len(sizes))
        if self._bytes is None:
            return done, after_s
        for at, size in enumerate(sizes[:done]):
            taken, bytes_after_s = await self._bytes.take(size, size) if size else (1, 0.0)
            if not taken:
                self.refund(done - at)
                return at, bytes_after_s
        return done, after_s

    async def _take_commands(self, count: int) -> tuple[int, float]:
        done, after_s = (count, 0.0) if self._commands is None else (0, 0.0)
        while self._commands is not None and done < count:
            taken, after_s = await self._commands.take(count - done)
            if not taken:
                break
            done += taken
        return done, after_s


class Quotas:
    """The rates of all tokens, in this process."""

    def __init__(self, shards: Shards, max_body_bytes: int, leased: Callable[[], None]) -> None:
        """`max_body_bytes`: the size of the largest body, for which a full bucket must suffice; `leased`: called for
        each lease."""
        self._shards = shards
        self._max_body_bytes = max_body_bytes
        self._leased = leased
        self._quotas: dict[str, tuple[tuple[int | None, ...], Quota]] = {}

    def of(self, record: Record) -> Quota | None:
        """The quota of a token, or None if it has no rates. Both secrets of a rotated token share one quota."""
        rates = (record.rate, record.burst, record.bytes)
        if record.rate is None and record.bytes is None:
            self._quotas.pop(record.id, None)
            return None
        known = self._quotas.get(record.id)
        if known is not None and known[0] == rates:
            return known[1]
        quota = Quota(self._of_commands(record), self._of_bytes(record))
        self._quotas[record.id] = rates, quota
        return quota

    def _of_commands(self, record: Record) -> Permits | None:
        if record.rate is None:
            return None
        burst = max(record.burst or record.rate, LEAST_BURST)
        return Permits(self._lease, record.id, record.rate, burst)

    def _of_bytes(self, record: Record) -> Permits | None:
        if record.bytes is None:
            return None
        burst = max(record.bytes, self._max_body_bytes)
        return Permits(self._lease, f"{record.id}:bytes", record.bytes, burst)

    async def _lease(self, name: str, **terms: int) -> tuple[int, float]:
        self._leased()
        return await lease(self._shards, name, **terms)
