"""What writes a journal into a database, a file for each kind: a connection, and a store on it (../store.py).

A store waits for a transaction with `Patience` before its server counts as away.
"""

from __future__ import annotations

import structlog

log = structlog.get_logger()

SHORTEST_S, LONGEST_S = 60.0, 3600.0


class Patience:
    """Doubles after each transaction that took longer: the same comes again, and would take as long."""

    def __init__(self) -> None:
        self.seconds = SHORTEST_S

    def lost(self) -> None:
        """A transaction took longer, and was given up."""
        waited, self.seconds = self.seconds, min(2 * self.seconds, LONGEST_S)
        log.warning("database.slow", waited_s=waited, next_s=self.seconds)

    def regained(self) -> None:
        """A transaction was done in time."""
        self.seconds = SHORTEST_S
