"""What the Python client writes into an outbox, with the caller's own connection."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from jobqueue_client import Outbox
from jobqueue_client.tracing import traces
from opentelemetry import trace
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from tests.jobqueue.outbox.conftest import Outbox as Table

BOX = Outbox()


async def written(table: Table) -> list[dict[str, Any]]:
    columns = "id, action, topic, body, due, options"
    async with table.engine.connect() as connection:
        found = await connection.execute(text(f"SELECT {columns} FROM jobqueue_outbox ORDER BY number"))  # noqa: S608
        return [dict(row) for row in found.mappings()]


async def test_a_transaction_of_sqlalchemy_writes_rows_or_none(outbox: Table) -> None:
    at = datetime(2030, 1, 1, 12, tzinfo=UTC)
    async with AsyncSession(outbox.engine) as session:
        made = await session.run_sync(lambda own: BOX.add(own, "t", {"ä": None}, timedelta(minutes=30), backoff=[1, 2]))
        await session.commit()
        await session.run_sync(lambda own: BOX.add(own, "t", 1, id="rolled-back"))
        await session.rollback()
    async with outbox.engine.begin() as connection:
        await connection.run_sync(lambda own: BOX.add(own, "t", None, at=at, id="a"))
        await connection.run_sync(lambda own: BOX.update(own, "a", body=None, at="2030-01-01T12:00:00.5Z", ttl=60))
        await connection.run_sync(lambda own: BOX.add(own, "t", if_exists="later", delay=60, id="b"))
        await connection.run_sync(lambda own: BOX.delete(own, "a"))
        of_key = await connection.run_sync(lambda own: BOX.add(own, "t", 1, key="customer:7"))
    first, second, third, fourth, fifth, sixth = await written(outbox)
    assert len(made) == 32 and first["id"] == made and abs(first["due"] - time.time() - 1800) < 60
    assert (first["action"], first["topic"], json.loads(first["body"])) == ("add", "t", {"ä": None})
    assert json.loads(first["options"]) == {"backoff": [1, 2]}
    row = {"id": "a", "action": "add", "topic": "t", "body": "null", "due": at.timestamp(), "options": None}
    assert second == row
    assert third == row | {"action": "update", "topic": None, "due": at.timestamp() + 0.5, "options": '{"ttl":60}'}
    assert (fourth["body"], json.loads(fourth["options"])) == (None, {"if_exists": "later"})
    assert fifth == row | {"action": "delete", "topic": None, "body": None, "due": None}
    assert (sixth["id"], json.loads(sixth["options"])) == (of_key, {"key": "customer:7"})
    assert len(of_key) == 43 and of_key.startswith("customer:7@")


@pytest.mark.parametrize("journal_database", ["sqlite"], indirect=True)
async def test_an_add_has_the_trace_of_its_transaction(outbox: Table) -> None:
    assert traces is not None
    remote = trace.SpanContext(1, 2, is_remote=True, trace_flags=trace.TraceFlags(1))
    async with outbox.engine.begin() as connection:
        with trace.use_span(trace.NonRecordingSpan(remote)):
            await connection.run_sync(lambda own: BOX.add(own, "t", 1, headers={"shop": "7"}))
    (row,) = await written(outbox)
    parent = f"00-{1:032x}-{2:016x}-01"
    assert json.loads(row["options"]) == {"headers": {"shop": "7", "traceparent": parent}}


_DJANGO = """
import sys
import django
from django.conf import settings
settings.configure(DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": sys.argv[1]}})
django.setup()
from django.db import connection, transaction
from jobqueue_client import Outbox

outbox = Outbox()
with transaction.atomic():
    outbox.add(connection, "t", {"order": 1001}, 60, id="kept")
try:
    with transaction.atomic():
        outbox.add(connection, "t", {"order": 1002}, 60, id="rolled-back")
        raise KeyError
except KeyError:
    pass
"""


@pytest.mark.parametrize("journal_database", ["sqlite"], indirect=True)
async def test_a_transaction_of_django_writes_rows_or_none(outbox: Table) -> None:
    path = outbox.url.removeprefix("sqlite:///")
    program = await asyncio.create_subprocess_exec(sys.executable, "-c", _DJANGO, path)
    assert await program.wait() == 0
    (row,) = await written(outbox)
    assert (row["id"], row["body"], row["options"]) == ("kept", '{"order":1001}', None)


@pytest.mark.parametrize("table", ["", "a b", "a;b", "a.b.c", '"a"', 7])
def test_a_name_of_a_table_is_checked(table: Any) -> None:
    with pytest.raises(ValueError, match="table must be the name"):
        Outbox(table)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"delay": 1, "at": 2}, "exclude each other"),
        ({"at": datetime(2030, 1, 1)}, "time zone"),
        ({"at": "tomorrow"}, "RFC 3339"),
        ({"id": 7}, "id must be a string"),
        ({"id": ""}, "id must be a string"),
        ({"topic": None}, "topic must be a string"),
        ({"delay": float("nan")}, "JSON"),
        ({"at": float("inf")}, "JSON"),
        ({"delay": "7"}, "delay must be"),
        ({"body": float("nan")}, "JSON"),
        ({}, "run_sync"),
    ],
)
def test_what_is_wrong_is_refused_before_anything_is_written(fields: dict[str, Any], words: str) -> None:
    with pytest.raises((TypeError, ValueError), match=words):
        BOX.add(object(), **{"topic": "t", "body": 1, **fields})
