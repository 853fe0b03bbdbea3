"""Histories for the pipelines: a journal in SQLite, and its export."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path

from tests.jobqueue.journal.export.exporting import export
from tests.jobqueue.journal.filling import Values, fill, found, position_of

HOUR_MS = 3_600_000
SPAN = ("--since", "2026-11-21", "--until", "2026-11-22")
"""The flags for the day of the tests."""


def journal(folder: Path, events: Iterable[Values]) -> str:
    """The URL of a journal with these events."""
    url = f"sqlite:///{folder}/journal.db"
    asyncio.run(found(url))
    told = list(events)
    asyncio.run(fill(url, events=told, positions=[position_of(max(each["ms"] for each in told))]))
    return url


def exported(folder: Path, events: Iterable[Values]) -> str:
    """The folder of the export of such a journal."""
    asyncio.run(export(journal(folder, events), folder / "history"))
    return str(folder / "history")
