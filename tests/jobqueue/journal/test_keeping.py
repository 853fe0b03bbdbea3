"""What is too old goes, what lives stays, and days come."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import date, timedelta
from typing import Any

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine
from structlog.testing import capture_logs

from buckets.job import State, Verb
from jobqueue.journal import keeping, schema
from jobqueue.journal.database import open_engine, open_store
from jobqueue.journal.keeping import DAY_MS, Keeper, Periods, day_of
from jobqueue.journal.store import Batch, Store
from tests.jobqueue.journal.conftest import Database
from tests.jobqueue.journal.telling import NOW, Teller, event, life, read

_TODAY = day_of(NOW)
_MINUTE_MS = 60_000


@pytest.fixture(autouse=True)
def _founded_now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "_now_ms", lambda: NOW)


@pytest.fixture
async def store(journal_url: str) -> AsyncIterator[Store]:
    store = await open_store(journal_url)
    yield store
    await store.close()


@pytest.fixture
async def engine(journal_url: str, store: Store) -> AsyncIterator[AsyncEngine]:
    engine = await open_engine(journal_url)
    yield engine
    await engine.dispose()


async def days(engine: AsyncEngine) -> list[int]:
    """The days that have a partition, counted from today."""
    async with engine.connect() as connection:
        return [(day - _TODAY).days for day in await connection.run_sync(keeping.there)]


async def count(url: str, table: str, where: str = "1 = 1") -> int:
    (row,) = await read(url, f"SELECT COUNT(*) AS n FROM {table} WHERE {where}")
    return int(row["n"])


async def test_there_are_days_from_yesterday_to_the_day_after_tomorrow(
    journal_database: Database, engine: AsyncEngine
) -> None:
    assert await days(engine) == ([] if journal_database.kind == "sqlite" else [-1, 0, 1, 2])


async def test_days_come(journal_database: Database, engine: AsyncEngine, store: Store) -> None:
    if journal_database.kind == "sqlite":
        return
    keeper = Keeper(engine, Periods())
    await keeper.step(NOW)
    assert await days(engine) == [-1, 0, 1, 2]
    await keeper.step(NOW + 2 * DAY_MS)
    assert await days(engine) == [-1, 0, 1, 2, 3, 4]
    await keeper.step(NOW + 9 * DAY_MS)  # nobody was there for a while
    assert await days(engine) == [-1, 0, 1, 2, 3, 4, 8, 9, 10, 11]
    teller = Teller(store)
    await teller.tell(*(each for day in (0, 4, 9, 11) for each in life(f"{day}", start=NOW + day * DAY_MS)))
    assert await outside(journal_database) == 0
    assert await count(journal_database.url, "jq_event") == 16


async def outside(database: Database) -> int:
    kind = "mysql" if database.kind == "mariadb" else database.kind
    (row,) = await read(database.url, f"SELECT COUNT(*) AS n FROM {keeping.default_of(kind)}")
    return int(row["n"])


async def test_events_go_by_whole_days_where_there_are_days(
    journal_database: Database, engine: AsyncEngine, store: Store
) -> None:
    url, keeper = journal_database.url, Keeper(engine, Periods(events=DAY_MS))
    await Teller(store).tell(*life("old", start=NOW - DAY_MS), *life("new"))
    await keeper.step(NOW + 1)
    has_days = journal_database.kind != "sqlite"
    assert await count(url, "jq_event", "id = 'old'") == (4 if has_days else 3)  # the day is not over yet
    midnight = (_TODAY - date(1970, 1, 1) + timedelta(days=1)) / timedelta(milliseconds=1)
    await keeper.step(int(midnight))
    assert await count(url, "jq_event", "id = 'old'") == 0
    assert await count(url, "jq_event", "id = 'new'") == 4
    assert 0 not in await days(engine) or -1 not in await days(engine)
    assert await count(url, "jq_job") == 2


async def test_events_that_no_day_takes_are_told_of_and_go_in_steps(
    journal_database: Database, engine: AsyncEngine, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeping, "STEP", 3)
    url, keeper = journal_database.url, Keeper(engine, Periods(events=30 * DAY_MS))
    teller = Teller(store)
    await teller.tell(*life("next year", start=NOW + 365 * DAY_MS), *life("last year", start=NOW - 365 * DAY_MS))
    with capture_logs() as logs:
        await keeper.step(NOW)
        # In MariaDB the first day has all that is from before it.
        assert await count(url, "jq_event", "id = 'last year'") == (4 if journal_database.kind == "mariadb" else 1)
        await keeper.step(NOW)
        await keeper.step(NOW + 30 * DAY_MS)
    assert await count(url, "jq_event", "id = 'last year'") == 0
    assert await count(url, "jq_event", "id = 'next year'") == 4
    told = [entry for entry in logs if entry["event"] == "journal.outside_days"]
    if journal_database.kind == "sqlite":
        assert told == []
    else:
        assert (told[0]["log_level"], told[-1]["last"]) == ("warning", f"{day_of(NOW + 365 * DAY_MS)}")


async def test_ended_jobs_go_after_their_time_and_live_ones_never(
    journal_url: str, engine: AsyncEngine, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeping, "STEP", 2)
    keeper = Keeper(engine, Periods(jobs=DAY_MS))
    others = [event(Verb.BURY, State.DEAD, "dead"), event(job_id="delayed")]
    ended = [each for number in range(5) for each in life(f"{number}")]
    await Teller(store).tell(*others, *ended, *life("later", start=NOW + 1))
    await keeper.step(NOW + 3000 + DAY_MS)
    assert await count(journal_url, "jq_job") == 8  # not a moment too early
    left = []
    for _ in range(4):
        await keeper.step(NOW + 3001 + DAY_MS + _MINUTE_MS)
        left.append(await count(journal_url, "jq_job"))
    assert left == [6, 4, 2, 2]
    assert [row["id"] for row in await read(journal_url, "SELECT id FROM jq_job ORDER BY id")] == ["dead", "delayed"]


async def test_sums_and_what_was_refused_go(journal_url: str, engine: AsyncEngine, store: Store) -> None:
    teller = Teller(store)
    await teller.tell(*life("old"), *life("new", start=NOW + DAY_MS))
    refused = [("jq", 0, ms, 0, 0, ms * 1000, "why", b"raw") for ms in (NOW, NOW + DAY_MS)]
    assert teller.position
    await store.write(Batch("jq", 0, teller.position, teller.position, refused=refused))
    await Keeper(engine, Periods(events=DAY_MS, minutes=DAY_MS)).step(NOW + DAY_MS + _MINUTE_MS)
    assert await count(journal_url, "jq_minute") == 4
    assert await count(journal_url, "jq_refused") == 1


async def test_nothing_is_looked_for_again_within_a_minute(journal_url: str, engine: AsyncEngine, store: Store) -> None:
    keeper = Keeper(engine, Periods(jobs=0))
    await keeper.step(NOW + DAY_MS)
    await Teller(store).tell(*life())
    await keeper.step(NOW + DAY_MS + _MINUTE_MS - 1)
    assert await count(journal_url, "jq_job") == 1
    await keeper.step(NOW + DAY_MS + _MINUTE_MS)
    assert await count(journal_url, "jq_job") == 0


async def test_a_day_that_someone_reads_is_dropped_later(
    journal_database: Database, engine: AsyncEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeping, "_PATIENCE_S", 1)
    if journal_database.kind == "sqlite":
        return
    keeper = Keeper(engine, Periods(events=0))
    reader = await open_engine(journal_database.url)
    async with reader.connect() as connection:
        await connection.exec_driver_sql("SELECT * FROM jq_event")
        with capture_logs() as logs:
            await keeper.step(NOW + DAY_MS)
    assert {(entry["event"], entry["log_level"]) for entry in logs} == {("journal.days_not_changed", "warning")}
    assert -1 in await days(engine)
    await reader.dispose()
    await keeper.step(NOW + DAY_MS + _MINUTE_MS)
    assert -1 not in await days(engine)


async def test_a_journal_that_another_process_keeps_is_left_to_it(
    journal_database: Database, engine: AsyncEngine, store: Store
) -> None:
    if journal_database.kind == "sqlite":
        return
    await Teller(store).tell(*life())
    async with engine.connect() as connection:
        assert await connection.run_sync(keeping._is_alone)
        await Keeper(engine, Periods(jobs=0)).step(NOW + DAY_MS)
        assert await count(journal_database.url, "jq_job") == 1
        await connection.run_sync(keeping._let_others)
    await Keeper(engine, Periods(jobs=0)).step(NOW + DAY_MS)
    assert await count(journal_database.url, "jq_job") == 0


async def test_a_file_gets_smaller(sqlite_url: str) -> None:
    store = await open_store(sqlite_url)
    await Teller(store).tell(*(event(job_id=f"{number}", body=b"x" * 4000) for number in range(500)))
    before = await pages(sqlite_url)
    engine = await open_engine(sqlite_url)
    await store.write(Batch("jq", 1, None, Teller(store).batch([]).after))
    await Keeper(engine, Periods(events=0)).step(NOW + DAY_MS)
    assert await pages(sqlite_url) < before
    await engine.dispose()
    await store.close()


async def pages(url: str) -> Any:
    (row,) = await read(url, "SELECT page_count AS n FROM pragma_page_count()")
    return row["n"]


async def test_days_are_made_of_which_there_are_events_already(
    journal_database: Database, engine: AsyncEngine, store: Store
) -> None:
    if journal_database.kind == "sqlite":
        return
    # Nobody kept the journal for two days, but events came, also of a later day than any that is to be made.
    coming = [each for day in (2, 3, 4, 5, 9) for each in life(f"{day}", start=NOW + day * DAY_MS)]
    await Teller(store).tell(*coming)
    assert await outside(journal_database) == 16
    with capture_logs() as logs:
        await Keeper(engine, Periods(events=DAY_MS)).step(NOW + 3 * DAY_MS)
    assert await days(engine) == [2, 3, 4, 5]  # older ones went
    assert await outside(journal_database) == 4
    assert await count(journal_database.url, "jq_event") == 20
    assert [line["event"] for line in logs] == ["journal.outside_days"]
    await store.write(Batch("jq", 1, None, Teller(store).batch([]).after))  # and the table takes batches


async def test_a_new_day_is_as_the_others_are(postgresql: Any) -> None:
    """With their key and index, so that it finds and refuses as they do."""
    postgresql.start()
    url = postgresql.new_database()
    store = await open_store(url)
    await Teller(store).tell(*life("a", start=NOW + 3 * DAY_MS))
    engine = await open_engine(url)
    await Keeper(engine, Periods()).step(NOW + 3 * DAY_MS)
    made = await read(
        url,
        "SELECT t.relname AS day, COUNT(*) AS n FROM pg_inherits h JOIN pg_index i ON i.indexrelid = h.inhrelid "
        "JOIN pg_class t ON t.oid = i.indrelid WHERE t.relname LIKE 'jq_event_2%' GROUP BY 1",
    )
    assert len(made) >= 5 and {row["n"] for row in made} == {2}
    await engine.dispose()
    await store.close()


async def test_a_day_that_cannot_be_made_keeps_no_other_from_being_made_or_dropped(
    journal_database: Database, engine: AsyncEngine, store: Store
) -> None:
    if journal_database.kind != "postgresql":
        return
    taken = f"jq_event_{day_of(NOW + 3 * DAY_MS):%Y%m%d}"
    async with engine.begin() as connection:
        await connection.exec_driver_sql(f"CREATE TABLE {taken} (id INTEGER)")
    keeper = Keeper(engine, Periods(events=DAY_MS))
    with capture_logs() as logs:
        await keeper.step(NOW + 3 * DAY_MS)
    assert await days(engine) == [2, 4, 5]
    assert [line["event"] for line in logs] == ["journal.days_not_changed"]
    async with engine.begin() as connection:
        await connection.exec_driver_sql(f"DROP TABLE {taken}")
    await keeper.step(NOW + 3 * DAY_MS + _MINUTE_MS)
    assert await days(engine) == [2, 3, 4, 5]


async def test_days_come_while_someone_reads_an_old_one(
    journal_database: Database, engine: AsyncEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeping, "_PATIENCE_S", 1)
    if journal_database.kind != "postgresql":
        return
    reader = await open_engine(journal_database.url)
    async with reader.connect() as connection:
        await connection.exec_driver_sql(f"SELECT * FROM jq_event_{day_of(NOW - DAY_MS):%Y%m%d}")
        await Keeper(engine, Periods(events=0)).step(NOW + DAY_MS)
    assert await days(engine) == [-1, 0, 1, 2, 3]
    await reader.dispose()
