"""What explain and narrow audits read of a large journal is found by indexes, in each database."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import event, text
from sqlalchemy.ext.asyncio import AsyncEngine

from bench.explain import fill
from buckets.job import State
from jobqueue.journal.audit import QUESTIONS, Asked
from jobqueue.journal.explainer import explain_of
from jobqueue.journal.explaining.timeline import Wait
from jobqueue.journal.history import Journal

EVENTS = 20_000
BEGIN = 1_795_392_000_000
LARGE = r"jq_(event|minute|job)\w*"
_WHOLE = {
    "sqlite": rf"SCAN {LARGE}(?! USING)",
    "postgresql": rf"Seq Scan on {LARGE}",
    "mysql": r"\bALL\b",
}
"""What a plan says that reads a large table from its beginning to its end."""
Statement = tuple[str, Any]


@contextmanager
def sent(engine: AsyncEngine) -> Iterator[list[Statement]]:
    """The queries of a block."""
    found: list[Statement] = []

    def note(connection: Any, cursor: Any, statement: str, parameters: Any, context: Any, many: bool) -> None:
        found.append((statement, parameters))

    event.listen(engine.sync_engine, "before_cursor_execute", note)
    yield found
    event.remove(engine.sync_engine, "before_cursor_execute", note)


async def plan(engine: AsyncEngine, statement: Statement) -> str:
    """How the database would answer a query, a line a step."""
    kind = engine.dialect.name
    async with engine.connect() as connection:
        if kind == "postgresql":  # which reads small tables whole
            await connection.execute(text("SET LOCAL enable_seqscan = off"))
        prefix = "EXPLAIN QUERY PLAN " if kind == "sqlite" else "EXPLAIN "
        rows = await connection.exec_driver_sql(prefix + statement[0], statement[1])
        lines = (" ".join(str(part) for part in row) for row in rows)
        return "\n".join(line for line in lines if re.search(LARGE, line))


async def test_what_is_read_is_found_by_an_index(journal_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = await fill(journal_url, EVENTS, BEGIN)
    journal = Journal(engine, "jq")
    narrow = Asked(BEGIN * 1000, (BEGIN + 60_000) * 1000, over_s=1.0)
    with sent(engine) as statements:
        told = await explain_of(journal, "order-close:7")
        assert told["facts"]["state"] == State.FINISHED.word
        history = await journal.history("order-close:7", 0)
        end = (BEGIN + 40_000_000) * 1000
        await journal.meanwhile(Wait(None, "topic-7", 4, end - 3_600_000_000, end), history)
        assert await journal.last_delivery("topic-7", end)
        async with engine.connect() as connection:
            for question in QUESTIONS.values():
                await question.ask(connection, "jq", narrow)
    assert len(statements) > 15
    for statement in statements:
        found = await plan(engine, statement)
        assert not re.search(_WHOLE[engine.dialect.name], found), (statement, found)
    if engine.dialect.name != "postgresql":  # that is not to read any table whole
        assert re.search(_WHOLE[engine.dialect.name], await plan(engine, ("SELECT * FROM jq_job WHERE due > 7", ())))
    await engine.dispose()
