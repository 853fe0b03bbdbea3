"""What the journal does not know: events that were lost before it read them, and that no walk has made up for yet."""

from __future__ import annotations

from typing import Any

from sqlalchemy import select

from jobqueue.journal import tables
from jobqueue.journal.reading.verdict import LOST
from jobqueue.journal.restoring.reading import Reading

_GAP = tables.gap.c


class Gaps:
    """The ends of the newest open gaps. Made by `read`."""

    def __init__(self, ends: dict[int, tuple[int, int]]) -> None:
        self._ends = ends

    @classmethod
    async def read(cls, reading: Reading) -> Gaps:
        open_ones = select(_GAP.shard, _GAP.to_ms, _GAP.to_seq).where(
            reading.of_source(tables.gap), _GAP.kind == LOST, _GAP.walked.is_(None)
        )
        ends: dict[int, tuple[int, int]] = {}
        for shard, ms, seq in await reading.rows(open_ones):
            ends[shard] = max((ms, seq), ends.get(shard, (0, 0)))
        return cls(ends)

    def hide(self, row: Any) -> bool:
        """Whether a job or a schedule may have ended in a gap: nothing was told of it behind."""
        return (row.ms, row.seq) <= self._ends.get(row.shard, (-1, -1))
