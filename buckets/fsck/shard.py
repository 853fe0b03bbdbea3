"""A shard under check: what all parts of a check use to read it, repair it, and report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from buckets.fsck.findings import Report
from buckets.keys import FAMILIES, Keys
from buckets.pages import Pages
from buckets.pool.pool import Pool

PAGE = 64  # jobs per script: about 1 ms of Redis

Progress = Callable[[str, int], None]
"""Called with what is being checked, and how many of it have been so far."""


@dataclass(frozen=True, slots=True)
class CheckedShard:
    """One shard of a namespace, while it is checked."""

    pool: Pool
    number: int
    pages: Pages
    report: Report
    repair: bool
    """Whether to repair what is found."""
    progress: Progress

    @property
    def keys(self) -> Keys:
        return self.pool.keys[self.number]

    @property
    def tag(self) -> bytes:
        """What all keys of the shard begin with."""
        return self.keys.tag.encode()

    def key(self, family: str, name: bytes) -> bytes:
        """The key of a family (buckets/keys.py) with this name."""
        return self.tag + FAMILIES[family].encode() + name

    async def call(self, script: str, rest: Sequence[bytes] = (), **arguments: Any) -> Any:
        """Run a script on the shard, then leave Redis to others for a while."""
        now = self.pool.clock.now()
        return await self.pages.step(self.pool.call(script, self.number, rest, now=now, **arguments))

    def find(self, kind: str, where: str, *, repaired: bool | None = None) -> None:
        """Report a fault; `repaired` as the check is to repair, unless given."""
        self.report.find(kind, where, repaired=self.repair if repaired is None else repaired)
