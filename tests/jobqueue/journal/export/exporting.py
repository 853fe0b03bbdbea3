"""Exports of journals that tests have filled, and what they have written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow.dataset

from jobqueue.journal.export import run
from tests.jobqueue.journal.filling import Values, life_of


async def export(
    url: str, out: Path | str, kind: str = "events", source: str | None = None, **days: date | None
) -> run.Written:
    async with run.opened(url, str(out), source) as export:
        return await export.write(kind, days.get("since"), days.get("until"), lambda where, rows: None)


def named(out: Path, pattern: str) -> list[Path]:
    """The files whose names are like this."""
    return list(out.rglob(pattern))


def rows(out: Path, kind: str = "events") -> list[dict[str, Any]]:
    return list(pyarrow.dataset.dataset(out / kind, partitioning="hive").to_table().to_pylist())


def places(found: Iterable[dict[str, Any]]) -> Counter[tuple[int, ...]]:
    return Counter((row["shard"], row["ms"], row["seq"], row["n"], row["branch"]) for row in found)


def files(out: Path) -> dict[str, tuple[int, int]]:
    """Each file with what changes when it is written again."""
    found = [path for path in out.rglob("*") if path.is_file() and path.name != "_lock"]
    return {str(path.relative_to(out)): (path.stat().st_ino, path.stat().st_mtime_ns) for path in found}


def lives(number: int, from_ms: int, apart_ms: int = 1000, shards: int = 1) -> list[Values]:
    each = (life_of(from_ms + at * apart_ms, f"order:{at}", shard=at % shards) for at in range(number))
    return [event for life in each for event in life]
