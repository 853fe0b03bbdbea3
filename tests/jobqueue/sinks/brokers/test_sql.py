"""The kind `sql`: a row for each message, exactly, and what each database refuses."""

from __future__ import annotations

import asyncio
import functools
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from jobqueue_client import AsyncClient

from tests.jobqueue.sinks.brokers.stage import Stage
from tests.kit.brokers import new_broker
from tests.kit.brokers.databases import Database
from tests.kit.program import Missing
from tests.kit.redis_server import RedisServer
from tests.kit.service import ServiceProcess
from tests.kit.waiting import until


@pytest.fixture(params=["sql-sqlite", "sql-postgresql", "sql-mariadb"])
async def database(request: pytest.FixtureRequest) -> AsyncIterator[Database]:
    broker = new_broker(request.param)
    assert isinstance(broker, Database)
    try:
        await broker.start()
    except Missing as error:
        pytest.skip(str(error))
    yield broker
    broker.remove()


@pytest.fixture
async def stage(database: Database, own_server: RedisServer, tmp_path: Path) -> AsyncIterator[Stage]:
    async with ServiceProcess("--redis", own_server.url) as service, AsyncClient(service.url) as client:
        stage = Stage(database, service, client, tmp_path)
        stage.write()
        yield stage
        await stage.end()


async def is_down(stage: Stage, reason: str = "") -> bool:
    return any(reason in line["reason"] for line in stage.deliver.logged("sink.down"))


async def test_rows_are_jobs_exactly_whatever_is_killed(stage: Stage, database: Database) -> None:
    await database.prepare([])
    stage.write(in_flight=200)
    adding = asyncio.create_task(
        stage.add([{"topic": "jobs", "id": f"job:{n}", "body": n, "ttr": 1} for n in range(2_000)])
    )
    for _ in range(3):
        await stage.deliver.start()
        seen = await count(database)
        await until(functools.partial(is_more_or_all, stage, database, seen, adding), within_s=30)
        await stage.deliver.stop(signal.SIGKILL)
    await adding
    await stage.deliver.start()
    await stage.until_none_is_left()
    rows = await database.rows("SELECT id, topic, attempt, body FROM jobqueue_inbox")
    assert sorted(row[0] for row in rows) == sorted(f"job:{n}" for n in range(2_000))
    assert all(row[3] == row[0].removeprefix("job:") and row[1] == "jobs" for row in rows)


async def count(database: Database) -> int:
    return int((await database.rows("SELECT count(*) FROM jobqueue_inbox"))[0][0])


async def is_more_or_all(stage: Stage, database: Database, seen: int, adding: asyncio.Task[None]) -> bool:
    return await count(database) > seen or (adding.done() and not await stage.left())


async def test_a_new_life_of_an_id_is_a_row_of_its_own(stage: Stage, database: Database) -> None:
    await database.prepare([])
    await stage.deliver.start()
    for body in (1, 2):
        await stage.add([{"topic": "jobs", "id": "a", "body": body, "retention": 0}])
        await stage.until_none_is_left()
    rows = await database.rows("SELECT body, received_at FROM jobqueue_inbox ORDER BY body")
    assert [row[0] for row in rows] == ["1", "2"] and all(row[1] for row in rows)


async def test_a_row_that_the_database_refuses_is_a_dead_letter_and_its_batch_goes_on(
    stage: Stage, database: Database
) -> None:
    await database.rows(
        "CREATE TABLE checked (message_key VARCHAR(275) PRIMARY KEY, id VARCHAR(255), topic VARCHAR(255), due DOUBLE "
        "PRECISION, attempt INTEGER, headers TEXT, body TEXT CHECK (body <> '13'), received_at TIMESTAMP NULL)"
    )
    stage.write(table="checked")
    await stage.add([{"topic": "jobs", "id": f"job:{n}", "body": n} for n in range(30)])
    await stage.deliver.start()
    await stage.until_none_is_left()
    dead = await stage.dead()
    assert [*dead] == ["job:13"] and "refused it by its content" in dead["job:13"]
    assert len(await database.rows("SELECT id FROM checked")) == 29


async def test_a_table_that_is_not_there_is_an_outage_until_it_is_made(stage: Stage, database: Database) -> None:
    await stage.add([{"topic": "jobs", "id": "a", "body": 1, "tries": 1}])
    await stage.deliver.start()
    await until(lambda: is_down(stage), within_s=30)
    assert "the table is missing" in stage.deliver.logged("sink.down")[0]["reason"]
    await database.prepare([])
    await stage.until_none_is_left()
    assert await count(database) == 1


async def test_check_prints_the_statement_that_makes_the_table_where_it_is_missing(
    stage: Stage, database: Database
) -> None:
    assert await stage.check() == 1
    told, create, statement = stage.check_text.partition("CREATE TABLE")
    assert told.startswith("under-test: sql: the table is missing (")
    await database.rows((create + statement).strip().rstrip(";"))
    assert await stage.check() == 0 and create not in stage.check_text
    await stage.add([{"topic": "jobs", "id": "é-is-escaped".replace("é", "e"), "body": "é"}])
    await stage.deliver.start()
    await stage.until_none_is_left()
    assert [each.body for each in await stage.received()] == ['"é"'.encode()]


@pytest.mark.parametrize("database", ["sql-postgresql", "sql-mariadb"], indirect=True)  # root may write to any file
async def test_a_read_only_window_is_an_outage_that_costs_no_try(stage: Stage, database: Database) -> None:
    await database.prepare([])
    await stage.add([{"topic": "jobs", "id": "before", "body": 1}])
    await stage.deliver.start()
    await stage.until_none_is_left()
    await database.set_read_only(read_only=True)
    try:
        await stage.add([{"topic": "jobs", "id": f"late:{n}", "body": n, "tries": 1} for n in range(20)])
        await until(lambda: is_down(stage, "read-only"), within_s=30)
        assert await stage.check() == 1 and "read-only" in stage.check_text
    finally:
        await database.set_read_only(read_only=False)
    await stage.until_none_is_left()
    assert await stage.dead() == {} and await count(database) == 21
    assert len(stage.deliver.logged("sink.up")) == 2  # while it could not be written to, it did not count as up


async def test_a_wrong_password_is_told_without_it(stage: Stage, database: Database, tmp_path: Path) -> None:
    wrong: dict[str, Any] = {"url": "postgresql://u:secret-word@127.0.0.1:1/none"}
    stage.write(**wrong)
    assert await stage.check() == 1
    assert "secret-word" not in stage.check_text
