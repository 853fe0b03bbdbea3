"""The metrics of a process that drains events into a journal."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from math import nan

from prometheus_client import CollectorRegistry, Gauge

from buckets.job import Verb
from jobqueue.metrics.series import Count, Spread

_BATCH_S = (0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_WORDS = {int(verb): verb.word for verb in Verb}


class Figures:
    """What one process has drained. The series of gaps, epochs and refused events start at 0, so that their first burst
    shows as an increase."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self._events = Count(
            registry, "jobqueue_journal_events_total", "Events that were written to the journal.", ["verb"]
        )
        self._batches = Spread(
            registry, "jobqueue_journal_batch_seconds", "Time of a transaction of the journal.", _BATCH_S
        )
        self._gaps = Count(registry, "jobqueue_journal_gaps_total", "Gaps: times that events were lost unread.")
        self._lost = Count(registry, "jobqueue_journal_lost_entries_total", "Entries that were cut off unread.")
        self._epochs = Count(registry, "jobqueue_journal_epochs_total", "Times that Redis went back.")
        self._refused = Count(
            registry, "jobqueue_journal_refused_total", "Events that could not be read or stored, and were set aside."
        )
        for one in (self._gaps, self._lost, self._epochs, self._refused):
            one.add(n=0)
        self._lag = self._by_shard(
            "jobqueue_journal_lag_seconds", "For how long the oldest event that is not in the journal has waited."
        )
        self._entries = self._by_shard(
            "jobqueue_journal_lag_entries", "Entries of the stream that are not in the journal."
        )

        self._last_lag: dict[int, float] = {}
        self._writing: dict[int, float] = {}

    def _by_shard(self, name: str, help: str) -> Gauge:
        return Gauge(name, help, ["shard"], registry=self.registry, multiprocess_mode="livemax")

    def told(self, verb: int) -> None:
        """Count an event that was written."""
        self._events.add(_WORDS[verb])

    @contextlib.contextmanager
    def writing(self, shard: int) -> Iterator[None]:
        """Time a transaction, which stays under way for as long as the database is away: meanwhile the lag grows."""
        self._writing[shard] = began = time.monotonic()
        try:
            yield
            self._batches.add(time.monotonic() - began)
        finally:
            self._writing.pop(shard, None)  # a reader that has lost the lock may still write beside its successor

    def gap(self, entries: int) -> None:
        """Count a gap: entries were lost unread."""
        self._gaps.add()
        self._lost.add(n=entries)

    def went_back(self) -> None:
        """Count that Redis went back, or has another stream."""
        self._epochs.add()

    def refused(self, number: int) -> None:
        """Count events, or whole entries, that were set aside."""
        self._refused.add(n=number)

    def behind(self, shard: int, seconds: float, entries: int) -> None:
        """Set how far the journal is behind the stream of a shard."""
        self._last_lag[shard] = seconds
        self._lag.labels(str(shard)).set(seconds)
        self._entries.labels(str(shard)).set(entries)

    def left(self, shard: int) -> None:
        """Clear the lag of a shard that this process does not drain now."""
        for gauge in (self._lag, self._entries):
            gauge.labels(str(shard)).set(nan)

    def pour(self) -> None:
        """Update the registry."""
        for shard, began in self._writing.items():
            self._lag.labels(str(shard)).set(self._last_lag.get(shard, 0.0) + time.monotonic() - began)
        for series in vars(self).values():
            if isinstance(series, Count | Spread):
                series.pour()
