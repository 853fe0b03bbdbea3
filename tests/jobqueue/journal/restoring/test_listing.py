"""Jobs are listed page by page, each once, however many are of one time."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from buckets.job import State
from jobqueue.journal.database import open_engine
from jobqueue.journal.restoring import candidates
from jobqueue.journal.restoring.candidates import Listing
from jobqueue.journal.restoring.reading import Choice, Reading
from jobqueue.journal.tables import job
from tests.jobqueue.journal.explaining.test_plans import sent
from tests.jobqueue.journal.filling import fill, found

_KEPT = {"ttr": 1, "tries": 1, "attempts": 0, "deliveries": 0, "step": 0, "lease": 0, "keeps_body": 0, "body_kept": 0}


def delayed(job_id: str, until: int, topic: str = "t") -> dict[str, Any]:
    row = {column.name: None for column in job.columns}
    place = {"ms": 1, "seq": 0, "n": 0, "at": 1, "life": 1, "shard": 0, "source": "jq"}
    now = {"state": int(State.DELAYED), "priority": 4, "cause": 0, "due": until, "next": until}
    return {**row, **_KEPT, **place, **now, "id": job_id, "topic": topic}


async def listed(engine: AsyncEngine) -> list[str]:
    pages = Listing(Reading(engine, "jq"), Choice(), 0).pages()
    return [each.id async for page in pages for each in page.candidates]


async def test_jobs_of_one_time_are_listed_once_each_over_pages(
    journal_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(candidates, "_LISTED", 5)
    await found(journal_url)
    rows = [("b", 7, "t"), *((f"{number:02}", 5, "t") for number in range(12)), ("a", 8, "t"), ("z", 5, "u")]
    await fill(journal_url, jobs=[delayed(*row) for row in rows])
    engine = await open_engine(journal_url)
    assert await listed(engine) == [*(f"{number:02}" for number in range(12)), "b", "a", "z"]
    await engine.dispose()


async def plan(engine: AsyncEngine, statement: tuple[str, Any]) -> str:
    """How SQLite would answer a query."""
    async with engine.connect() as connection:
        rows = await connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement[0]}", statement[1])
        return "\n".join(str(row[-1]) for row in rows)


async def test_a_page_behind_many_jobs_of_one_time_is_found_by_the_index_and_in_its_order(sqlite_url: str) -> None:
    await found(sqlite_url)
    engine = await open_engine(sqlite_url)
    with sent(engine) as queries:
        await Listing(Reading(engine, "jq"), Choice(), 0)._behind(State.DELAYED, "t", 5, "a")
    first, later = [await plan(engine, each) for each in queries]
    await engine.dispose()
    assert "jq_job_topic (source=? AND topic=? AND state=? AND next=? AND id>?)" in first
    assert "jq_job_topic (source=? AND topic=? AND state=? AND next>?)" in later
    assert "TEMP B-TREE" not in first + later
