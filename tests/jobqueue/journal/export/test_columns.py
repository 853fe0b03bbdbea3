"""What stands in the files of an export: the same as in the views."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sqlalchemy import text

from buckets.job import State, Verb
from jobqueue.journal.database import open_engine
from tests.jobqueue.journal.export.exporting import export, files, rows
from tests.jobqueue.journal.filling import DAY, DAY_MS, event_of, fill, found, job_of, life_of, position_of

STRANGE = 'a "b",\r\n\tc\\ \N{SNOWMAN} NULL'


async def selected(url: str, query: str) -> list[dict[str, Any]]:
    engine = await open_engine(url)
    async with engine.connect() as connection:
        found = [dict(row._mapping) for row in await connection.execute(text(query))]
    await engine.dispose()
    return found


def as_in_view(row: dict[str, Any]) -> dict[str, Any]:
    """A row of a file with the numbers of the view, which has 0 for some times that a file has not."""
    zeros: dict[str, Any] = {name: 0 for name in ("life", "due", "next", "was") if name in row and row[name] is None}
    us = ("time", "ended")
    numbers = {
        name: round(value.timestamp() * (1_000_000 if name in us else 1000))
        for name, value in row.items()
        if isinstance(value, datetime)
    }
    return {name: value for name, value in {**row, **zeros, **numbers}.items() if name != "date"}


async def test_the_files_have_what_the_views_have(journal_url: str, out: Path) -> None:
    await found(journal_url)
    odd = {"id": "order:2", "life": DAY + 5000, "reason": STRANGE, "worker": "", "actor": "eve", "topic": "a,b"}
    await fill(
        journal_url,
        events=[
            *life_of(DAY + 1000, "order:1"),
            event_of(DAY + 9000, Verb.DUE, State.RESERVED, State.READY, cause=4, **odd),
            event_of(DAY + 9500, Verb.DUE, State.READY, State.DEAD, cause=2, **{**odd, "reason": None}),
            event_of(DAY + 9600, Verb.PAUSE, 0, 0, id="", life=0, due=0, next=0, was=DAY + 99),
            event_of(DAY + 9700, Verb.WALK, 0, State.DEAD, branch=-1, **odd),
        ],
        positions=[position_of(DAY + 2 * DAY_MS)],
    )
    await export(journal_url, out)
    timeline = await selected(journal_url, "SELECT * FROM jq_timeline WHERE branch >= 0 ORDER BY ms, seq, n")
    assert list(map(as_in_view, rows(out))) == [
        {name: value for name, value in {**row, "time": row["at"], "forgotten": False}.items() if name != "at"}
        for row in timeline
    ]
    assert {row["what"] for row in timeline} >= {"fell due", "lease over", "ttl over", "paused"}
    await export(journal_url, out, "deliveries")
    (row,) = rows(out, "deliveries")
    (delivery,) = await selected(journal_url, "SELECT * FROM jq_delivery")
    assert as_in_view(row) == {
        name: value for name, value in {**delivery, "time": delivery["popped"]}.items() if name != "popped"
    }
    assert (row["late"], row["waited"], row["worked"]) == (0.003, 0.003, 0.7)


async def test_jobs_are_written_as_they_were_last_told_in_place_of_what_was_there(journal_url: str, out: Path) -> None:
    await found(journal_url)
    first, *_, last = life_of(DAY, "order:1")
    one, other = job_of(last, body=None, body_kept=2), job_of({**first, "id": "order:2"}, body=f'"{STRANGE}"')
    await fill(journal_url, events=[first, last], jobs=[one, other], positions=[position_of(DAY + 5)])
    assert (await export(journal_url, out, "jobs")).rows == 2
    missed, kept = sorted(rows(out, "jobs"), key=lambda row: str(row["id"]))
    assert (missed["state"], missed["ended"], missed["body"], missed["body_missed"]) == (
        *("finished", datetime.fromtimestamp(last["at"] / 1e6, UTC)),
        *(None, True),
    )
    assert (kept["state"], kept["ended"], kept["body"], kept["body_missed"], kept["ttr"]) == (
        *("delayed", None, f'"{STRANGE}"', False),
        60.0,
    )
    before = files(out)
    assert (await export(journal_url, out, "jobs")).files == 0
    assert files(out) == before
    await fill(journal_url, jobs=[job_of({**first, "id": "order:3"})], positions=[position_of(DAY + 9)])
    await export(journal_url, out, "jobs")
    assert sorted(row["id"] for row in rows(out, "jobs")) == ["order:1", "order:2", "order:3"]
    assert list(files(out)) == [f"jobs/part-0-{DAY + 9}-0.parquet"]
