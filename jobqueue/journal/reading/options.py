"""What a reader is told."""

from __future__ import annotations

from dataclasses import dataclass

from jobqueue.journal.keeping import Periods
from jobqueue.journal.rows import Kept

_DAY_MS = 86_400_000
KEPT = Periods(events=30 * _DAY_MS, jobs=90 * _DAY_MS, minutes=730 * _DAY_MS)
"""For how long all is kept, unless something else is said."""


@dataclass(frozen=True, slots=True)
class Options:
    """Of `jobqueue journal run`."""

    source: str
    """The word for this namespace on this Redis."""
    batch: int = 5_000
    """The most events of a transaction, as far as whole entries allow."""
    linger_s: float = 0.1
    """The wait after less than half of a batch."""
    bodies: bool | None = None
    """None: kept if this journal has kept them until now. At first it does."""
    events: Kept | None = None
    """None: those that this journal has kept until now. At first it keeps all."""
