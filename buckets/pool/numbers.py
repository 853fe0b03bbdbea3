"""Numbers for systems whose ids are integers: one counter of the namespace, and aliases of jobs with other ids.

The counter is in shard 0. A process takes a block of numbers at a time, and larger blocks if it needs them quickly;
numbers that are left when it ends are never used. After 2,147,483,647, the largest number that 32-bit clients can read,
the counter starts again at 1. If Redis forgets numbers, as in a failover, the next process that takes a block makes the
counter continue after the numbers that it knows of.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence

from buckets.errors import JobQueueError
from buckets.shards import Shards

BLOCK = 64
MOST_BLOCK = 4096
LARGEST_NUMBER = 2_147_483_647
KEPT_MS = 3_600_000  # how long an alias is kept after the end of the job's lease
_FAST_S = 1.0  # if a block lasts less than this, the next one is four times as large


class Numbers:
    """The numbers of a namespace, as one process assigns them."""

    def __init__(self, shards: Shards) -> None:
        self._shards = shards
        self._block: deque[int] = deque()
        self._known = 0  # the last number of the newest block
        self._taking = asyncio.Lock()
        self._wanted = 0  # by all waiting callers
        self._size = BLOCK  # of the next block that is taken in advance
        self._refilled_at = 0.0  # loop time
        self._refilling: asyncio.Task[None] | None = None

    def ready(self, count: int) -> list[int] | None:
        """The next numbers, without waiting, or None if too few are left here; then call `some`. When numbers run low,
        more are taken in the background."""
        block = self._block
        if len(block) - count < self._size // 2 and self._refilling is None:
            self._refilling = asyncio.create_task(self._refill())
        return [block.popleft() for _ in range(count)] if len(block) >= count else None

    def put_back(self, numbers: Sequence[int]) -> None:
        """Return unused numbers from `ready`, which are then the next ones again."""
        self._block.extendleft(reversed(numbers))

    async def _refill(self) -> None:
        now = asyncio.get_running_loop().time()
        self._size = min(self._size * 4, MOST_BLOCK) if now - self._refilled_at < _FAST_S else BLOCK
        self._refilled_at = now
        try:
            async with self._taking:
                await self._extend(self._size)
        except JobQueueError:
            pass  # a caller that finds no number gets the error
        finally:
            self._refilling = None

    async def next(self) -> int:
        """The next number."""
        return (await self.some(1))[0]

    async def some(self, count: int) -> list[int]:
        """The next numbers. Concurrent callers share a script, and are served in their order."""
        self._wanted += count
        try:
            async with self._taking:
                while len(self._block) < count:  # `ready` may return some of them to other callers
                    await self._extend(max(self._wanted - len(self._block), BLOCK))
                return [self._block.popleft() for _ in range(count)]
        finally:
            self._wanted -= count

    async def skip(self, count: int) -> None:
        """Discard the rest of the block, and skip `count` numbers after the last one that any process took."""
        async with self._taking:
            self._block.clear()
            await self._take(count)

    async def _extend(self, size: int) -> None:
        first = await self._take(size)
        self._block.extend((number - 1) % LARGEST_NUMBER + 1 for number in range(first, first + size))

    async def _take(self, count: int) -> int:
        first: int = await self._shards.call("take_numbers", 0, count=count, known=self._known)
        self._known = (first + count - 2) % LARGEST_NUMBER + 1
        return first

    async def last(self) -> int:
        """The last number that any process took, or 0 if none was taken."""
        text = await self._shards.call("read_number", 0, number="")
        return int(text) if text and text.isdigit() else 0

    async def raise_to(self, last: int) -> None:
        """Make sure that no number up to `last` is assigned from now on."""
        await self._shards.call("raise_counter", 0, last=min(last, LARGEST_NUMBER))

    async def alias(self, job_id: str, lease_ends_ms: int = 0) -> int:
        """A new number for a job, which names the job until an hour after the end of its lease (0 for no lease)."""
        return (await self.aliases([(job_id, lease_ends_ms)]))[0]

    async def aliases(self, jobs: Sequence[tuple[str, int]]) -> list[int]:
        """As `alias`, for several jobs."""
        if not jobs:
            return []  # as for most pops
        numbers = await self.some(len(jobs))
        await self.keep([(number, *job) for number, job in zip(numbers, jobs, strict=True)])
        return numbers

    async def keep(self, aliases: Sequence[tuple[int, str, int]]) -> None:
        """Store numbers as names of jobs, given as (number, id, end of the lease)."""
        flat = [value for alias in aliases for value in alias]
        if flat:
            await self._shards.call("set_aliases", 0, flat, now=self._shards.clock.now(), kept=KEPT_MS)

    async def resolve(self, number: int) -> str | None:
        """The id of the job that a number names, or None."""
        text = await self._shards.call("read_number", 0, number=number)
        return text.decode("utf-8", "replace") if text else None
