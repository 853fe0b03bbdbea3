"""What a reader is told."""

from __future__ import annotations

from dataclasses import dataclass

from jobqueue.journal.rows import Kept

LEAST_BATCH, MOST_BATCH = 1, 50_000


@dataclass(frozen=True, slots=True)
class Options:
    """Of `jobqueue journal run`."""

    source: str
    """The word for this namespace on this Redis."""
    batch: int = 5_000
    """The most events of a transaction, as far as whole entries allow."""
    linger_s: float = 0.1
    """The wait after less than half of a batch."""
    bodies: bool = True
    events: Kept = "all"
