"""An entry for tests that make a part of the service by themselves."""

from __future__ import annotations

from jobqueue.access.authentication import Authentication, Entry
from jobqueue.logs import Sparing
from jobqueue.metrics.process import Metrics


def open_entry() -> Entry:
    """That of a service without tokens."""
    return Entry(Authentication(), Metrics(), Sparing("access.refused"))
