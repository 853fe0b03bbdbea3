"""Exports that are repeated: nothing is written twice, days are closed, what came late is added."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import date, timedelta
from pathlib import Path

import pyarrow.parquet
import pytest
from sqlalchemy import insert

from buckets.job import State, Verb
from jobqueue.journal.database import open_engine
from jobqueue.journal.export import folder, lines
from jobqueue.journal.export.run import Written, opened
from jobqueue.journal.tables import gap
from jobqueue.journal.url import Refused
from tests.jobqueue.journal.export.exporting import export, files, lives, named, places, rows
from tests.jobqueue.journal.filling import DAY, DAY_MS, event_of, fill, found, position_of

HOUR_MS = 3_600_000


async def test_a_repeated_export_writes_only_what_was_told_since(journal_url: str, out: Path) -> None:
    await found(journal_url)
    told = lives(50, DAY, shards=3)
    half = told[:100]
    await fill(journal_url, events=half, positions=[position_of(DAY + 60_000, shard) for shard in range(3)])
    assert (await export(journal_url, out)).rows == 100
    before = files(out)
    assert (await export(journal_url, out)) == Written()
    assert files(out) == before
    # Later ones, of one entry with the last one too: an entry is told whole, in one transaction.
    await fill(journal_url, events=[{**each, "ms": each["ms"] + HOUR_MS} for each in told[100:]])
    assert (await export(journal_url, out)).rows == 100
    assert {name: mark for name, mark in files(out).items() if name in before} == before
    assert set(places(rows(out)).values()) == {1}
    assert len(rows(out)) == 200


async def test_a_day_is_closed_when_all_shards_are_drained_beyond_it(sqlite_url: str, out: Path) -> None:
    await found(sqlite_url)
    next_day = DAY + DAY_MS
    told = [*lives(3, DAY, shards=2), *lives(3, next_day + 90_000, shards=2)]
    ahead = position_of(next_day + HOUR_MS * 2, shard=1)
    await fill(sqlite_url, events=told, positions=[position_of(next_day + 59_999), ahead])
    assert (await export(sqlite_url, out)).closed == 0
    await export(sqlite_url, out, "deliveries")
    assert not named(out, "_CLOSED")
    await fill(sqlite_url, positions=[position_of(next_day + 60_000)])
    assert (await export(sqlite_url, out)).closed == 1
    assert [path.parent.name for path in named(out, "_CLOSED")] == ["date=2026-11-21"]
    assert (await export(sqlite_url, out, "deliveries")).closed == 0  # they may end an hour later
    await fill(sqlite_url, positions=[position_of(next_day + HOUR_MS)])
    assert (await export(sqlite_url, out, "deliveries")) == Written(3, 2, 1)
    # What is closed is never looked at again.
    await fill(sqlite_url, events=[event_of(DAY + 1, Verb.ADD, 0, State.DELAYED, seq=99)])
    assert (await export(sqlite_url, out)).rows == 0


async def test_days_are_chosen(sqlite_url: str, out: Path) -> None:
    await found(sqlite_url)
    told = [each for day in range(4) for each in lives(1, DAY + day * DAY_MS)]
    await fill(sqlite_url, events=told, positions=[position_of(DAY + 3 * DAY_MS)])
    first = date(2026, 11, 21)
    await export(sqlite_url, out, since=first + timedelta(days=1), until=first + timedelta(days=3))
    assert sorted(path.name for path in (out / "events").iterdir()) == ["date=2026-11-22", "date=2026-11-23"]
    await export(sqlite_url, out)
    assert len(rows(out)) == 16


async def test_what_came_behind_its_place_is_added_before_its_day_is_closed(
    journal_url: str, out: Path, tmp_path: Path
) -> None:
    again = tmp_path / "again"
    await found(journal_url)
    told = lives(20, DAY, shards=2)
    await fill(journal_url, events=told, positions=[position_of(DAY + HOUR_MS, shard) for shard in range(2)])
    await export(journal_url, out)
    late = [
        event_of(DAY + 3000, Verb.KICK, State.DEAD, State.READY, seq=1_000_001),
        event_of(DAY + 4000, Verb.KICK, State.DEAD, State.READY, seq=1_000_002),
        # In the place of another one, which Redis has forgotten.
        {**told[0], "verb": int(Verb.KICK), "seq": 0, "branch": 1},
    ]
    await fill(journal_url, events=late)
    engine = await open_engine(journal_url)
    async with engine.begin() as connection:
        await connection.execute(
            insert(gap),
            {
                **{"source": "jq", "shard": 0, "epoch": 1, "kind": 2, "entries": 0, "found": 1},
                **{"from_ms": DAY - 1, "from_seq": 0, "to_ms": DAY, "to_seq": 0},
            },
        )
    await engine.dispose()
    assert (await export(journal_url, out)).rows == 0  # the day is not over
    await fill(journal_url, positions=[position_of(DAY + 2 * DAY_MS, shard) for shard in range(2)])
    assert (await export(journal_url, out)) == Written(3, 1, 1)
    assert named(out, "*-late.parquet")
    exported = rows(out)
    assert set(places(exported).values()) == {1}
    assert len(exported) == 83
    # The first one had been exported before it was forgotten.
    assert [row["forgotten"] for row in exported if row["ms"] == DAY] == [False, False]
    await export(journal_url, again)
    assert [row["forgotten"] for row in rows(again) if row["ms"] == DAY] == [True, False]


@pytest.mark.parametrize("is_emptied", [False, True])
async def test_what_happened_before_redis_was_emptied_is_not_marked(
    journal_url: str, out: Path, is_emptied: bool
) -> None:
    await found(journal_url)
    told = lives(1, DAY)
    await fill(journal_url, events=told, positions=[position_of(DAY + 2 * DAY_MS)])
    places = {"from_ms": 0, "from_seq": 0, "to_ms": DAY + HOUR_MS, "to_seq": 0}
    forgotten = {"source": "jq", "shard": 0, "epoch": 1, "entries": 0, "found": 1, **places}
    engine = await open_engine(journal_url)
    async with engine.begin() as connection:
        await connection.execute(insert(gap), [{**forgotten, "kind": kind} for kind in (2, 3)[: 1 + is_emptied]])
    await engine.dispose()
    await export(journal_url, out)
    assert {row["forgotten"] for row in rows(out)} == {not is_emptied}
    await export(journal_url, out, "deliveries")
    assert bool(rows(out, "deliveries")) is is_emptied


def test_an_entry_is_in_one_file(sqlite_url: str, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder, "_MOST_ROWS", 10)
    monkeypatch.setattr(lines, "_BLOCK", 4000)  # some ten lines
    asyncio.run(found(sqlite_url))
    entries = [
        event_of(DAY + entry, Verb.ADD, 0, State.DELAYED, seq=1, n=n, id=f"order:{entry}.{n}")
        for entry in range(12)
        for n in range(7)
    ]
    asyncio.run(fill(sqlite_url, events=entries, positions=[position_of(DAY + DAY_MS)]))
    assert asyncio.run(export(sqlite_url, out)).files > 2
    of_files = [pyarrow.parquet.read_table(path)["ms"].to_pylist() for path in out.rglob("*.parquet")]
    assert max(Counter(ms for each in of_files for ms in set(each)).values()) == 1
    assert sum(map(len, of_files)) == len(entries)


async def test_a_folder_is_one_sources_and_one_exports(sqlite_url: str, out: Path) -> None:
    await found(sqlite_url)
    await fill(sqlite_url, events=lives(1, DAY), positions=[position_of(DAY + DAY_MS)])
    await export(sqlite_url, out)
    other = [{**each, "source": "other"} for each in lives(1, DAY)]
    await fill(sqlite_url, events=other, positions=[position_of(DAY + HOUR_MS, shard=1, source="other")])
    with pytest.raises(Refused, match="the journal has jq, other: its source must be named"):
        await export(sqlite_url, out)
    with pytest.raises(folder.Foreign, match=r"is of jq: each source needs a folder of its own"):
        await export(sqlite_url, out, source="other")
    async with opened(sqlite_url, str(out), "jq"):
        with pytest.raises(folder.Foreign, match="another export is writing to"):
            await export(sqlite_url, out, source="jq")
    with pytest.raises(folder.Foreign, match="no folder can be reached as bad://x"):
        await export(sqlite_url, "bad://x", source="jq")
