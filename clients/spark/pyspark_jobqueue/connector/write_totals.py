"""The totals of a write: each task counts its rows by outcome, and the driver adds them up."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql.datasource import WriterCommitMessage


@dataclass
class WriteTotals(WriterCommitMessage):  # type: ignore[misc,unused-ignore]  # pyspark has no types for it
    """The totals of one task, or of the whole write. Pickled to the driver."""

    rows: int = 0
    accepted: int = 0
    existing: int = 0
    cancelled: int = 0
    dead: int = 0
    gone: int = 0
    refused: int = 0
    retries: int = 0
    began: float = field(default_factory=time.time)
    ended: float = 0.0

    @property
    def seconds(self) -> float:
        return max(0.0, self.ended - self.began)

    def figures(self) -> Mapping[str, Any]:
        """The numbers for a report."""
        counts = {name: getattr(self, name) for name in COUNTS}
        speed = round(self.rows / self.seconds) if self.seconds else None
        return {**counts, "seconds": round(self.seconds, 3), "rows_per_second": speed}

    def __str__(self) -> str:
        return (
            f"{self.rows:,} rows: {self.accepted:,} accepted, {self.existing:,} existing, "
            f"{self.cancelled:,} cancelled, {self.dead:,} dead, {self.gone:,} gone, {self.refused:,} refused, "
            f"{self.retries:,} retries in {self.seconds:.1f} s"
        )


COUNTS = ("rows", "accepted", "existing", "cancelled", "dead", "gone", "refused", "retries")


def total(sums: Sequence[Any]) -> WriteTotals:
    """The sum over the tasks that finished; the messages of the others are None."""
    finished = [each for each in sums if isinstance(each, WriteTotals)]
    made = WriteTotals(**{name: sum(getattr(each, name) for each in finished) for name in COUNTS})
    made.began = min((each.began for each in finished), default=made.began)
    made.ended = max((each.ended for each in finished), default=made.began)
    return made
