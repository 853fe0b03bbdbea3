"""Exports that break off, and the next one."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
from pyarrow import fs

from jobqueue.journal.export import folder, lines
from jobqueue.journal.store import Away
from tests.jobqueue.journal.export.exporting import export, lives, named, places, rows
from tests.jobqueue.journal.filling import DAY, DAY_MS, fill, found, position_of

ROOT = Path(__file__).parents[4]


_SMALL_FILES = """
from jobqueue.cli.main import main
from jobqueue.journal.export import lines
from jobqueue.journal.export import folder
folder._MOST_ROWS, lines._BLOCK, lines._ROWS = 2_000, 1 << 18, 1000
main()
"""


def test_a_killed_export_is_completed_by_the_next_one(sqlite_url: str, out: Path) -> None:
    told = lives(15_000, DAY, apart_ms=4800, shards=2)
    drained = [position_of(DAY + 3 * DAY_MS, shard) for shard in range(2)]
    asyncio.run(found(sqlite_url))
    asyncio.run(fill(sqlite_url, events=told, positions=drained))
    program = [sys.executable, "-c", _SMALL_FILES, "journal", "export", "--from", sqlite_url, "--out", str(out)]
    kills = 0
    for files_more in (1, 3, 2, 1):
        wanted = len(named(out, "part-*")) + files_more
        process = subprocess.Popen(program, cwd=ROOT, stdout=subprocess.DEVNULL)
        while process.poll() is None and len(named(out, "part-*")) < wanted:
            time.sleep(0.002)
        kills += process.poll() is None
        process.send_signal(signal.SIGKILL)
        process.wait()
        for path in out.rglob("part-*"):
            pyarrow.parquet.read_metadata(path)  # each is whole
    assert kills >= 3
    assert subprocess.run(program, cwd=ROOT, check=True, capture_output=True).stdout
    assert set(places(rows(out)).values()) == {1}
    assert len(rows(out)) == len(told)
    assert named(out, "_CLOSED") and not named(out, "_part-*")


async def test_a_file_of_an_object_store_is_put_there_whole(
    sqlite_url: str, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No object store is there: a folder is taken for one."""
    monkeypatch.setattr(folder, "_OBJECT_STORES", ("local",))
    monkeypatch.setattr("tempfile.tempdir", str(out.parent))
    seen: list[list[str]] = []

    def look(*copied: Any) -> None:
        seen.append([path.name for path in out.rglob("*part-*")])
        copy(*copied)

    copy = fs.copy_files
    monkeypatch.setattr(fs, "copy_files", look)
    await found(sqlite_url)
    await fill(sqlite_url, events=lives(9, DAY), positions=[position_of(DAY + 2 * DAY_MS)])
    assert (await export(sqlite_url, out.as_uri())).rows == 36
    assert seen == [[]]
    assert len(rows(out)) == 36


@pytest.mark.parametrize("by", ["as an error", "at its end"])
async def test_a_database_that_breaks_off_leaves_only_whole_files(
    sqlite_url: str, out: Path, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    await found(sqlite_url)
    await fill(sqlite_url, events=lives(200, DAY), positions=[position_of(DAY + 2 * DAY_MS)])

    async def broken(connection: Any, query: Any, columns: Any, pipe: Any) -> None:
        await whole(connection, query.limit(10), columns, pipe)
        if by == "as an error":
            pipe.write(b'1,"jq')
        raise OSError("the connection was reset")

    whole = lines._WRITERS["sqlite"]
    monkeypatch.setitem(lines._WRITERS, "sqlite", broken)
    with pytest.raises(Away, match="the connection was reset"):
        await export(sqlite_url, out)
    assert not named(out, "*part*")
    monkeypatch.undo()
    assert (await export(sqlite_url, out)).rows == 800


async def test_a_full_disk_ends_the_export(sqlite_url: str, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await found(sqlite_url)
    await fill(sqlite_url, events=lives(200, DAY), positions=[position_of(DAY + 2 * DAY_MS)])

    def full(path: str) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(folder, "_sync", full)
    with pytest.raises(OSError, match="No space left"):
        await export(sqlite_url, out)
    assert not named(out, "part-*")
