"""Founding a journal, recognising one, and bringing an older one up to date."""

from __future__ import annotations

import asyncio
import re
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from sqlalchemy import Connection, inspect, text

from jobqueue.cli.main import main
from jobqueue.health.journal import check_journal
from jobqueue.journal import database, schema
from jobqueue.journal.database import open_engine, open_store
from jobqueue.journal.reading.sql import Sql
from jobqueue.journal.store import Away
from jobqueue.journal.stores import mysql, postgresql, sqlite
from jobqueue.journal.tables import metadata
from jobqueue.journal.url import Refused, address
from jobqueue.settings import Settings
from tests.jobqueue.journal.conftest import Database
from tests.jobqueue.journal.telling import Teller, life, read

_NEXT = '''"""A column more."""

import sqlalchemy as sa
from alembic import op

revision = "4"
down_revision = "3"


def upgrade() -> None:
    """Add it."""
    op.add_column("jq_job", sa.Column("colour", sa.String(10)))
'''
_VIEWS = {"jq_timeline", "jq_delivery", "jq_life", "jq_lateness", "jq_timetable"}


async def change(url: str, *statements: str) -> None:
    """Change a database behind the back of the journal."""
    async with database._engine(address(url)) as engine, engine.begin() as connection:
        for statement in statements:
            await connection.execute(text(statement))


async def found(url: str) -> None:
    await (await open_store(url)).close()


async def names(url: str) -> tuple[set[str], set[str]]:
    """The tables and views of a journal."""
    engine = await open_engine(url)
    async with engine.connect() as connection:
        tables = set(await connection.run_sync(lambda sync: inspect(sync).get_table_names()))
        views = set(await connection.run_sync(lambda sync: inspect(sync).get_view_names()))
    await engine.dispose()
    return {name for name in tables if not re.match(r"jq_event_", name)}, views


async def test_an_empty_database_is_founded(journal_url: str) -> None:
    await found(journal_url)
    assert await names(journal_url) == ({*metadata.tables, "jq_version"}, _VIEWS)
    await found(journal_url)  # and recognised


async def test_readers_found_nothing(journal_database: Database) -> None:
    with pytest.raises(Refused, match="`jobqueue journal run` creates"):
        await open_engine(journal_database.url)
    if journal_database.kind == "sqlite":
        assert _files(journal_database.url) == []


def _files(url: str) -> list[Path]:
    return list(Path(address(url).path).parent.iterdir())


async def test_other_tables_of_the_database_stay(journal_url: str) -> None:
    await change(journal_url, "CREATE TABLE orders (id INT)", "CREATE TABLE alembic_version (version_num VARCHAR(32))")
    await found(journal_url)
    assert {"orders", "alembic_version"} < (await names(journal_url))[0]


async def test_tables_of_these_names_that_are_no_journals_are_refused(journal_url: str) -> None:
    await change(journal_url, "CREATE TABLE jq_job (id INT)")
    for opened in (open_store, open_engine):
        with pytest.raises(Refused, match="no journal's"):
            await opened(journal_url)
    with pytest.raises(Refused, match="no journal's"):
        await database.migrate(journal_url)


async def test_a_newer_journal_is_refused(journal_url: str) -> None:
    await found(journal_url)
    await change(journal_url, "UPDATE jq_version SET version_num = 'x9'")
    for opened in (open_store, open_engine, database.migrate):
        with pytest.raises(Refused, match="revision x9, which only a newer version"):
            await opened(journal_url)


@pytest.fixture
def newer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A version of jobqueue whose tables have a revision more."""
    folder = tmp_path / "migrations"
    shutil.copytree(schema.MIGRATIONS, folder)
    (folder / "versions" / "fourth.py").write_text(_NEXT)
    monkeypatch.setattr(schema, "MIGRATIONS", folder)


async def test_an_older_journal_is_refused_until_it_is_migrated(
    journal_url: str, request: pytest.FixtureRequest
) -> None:
    store = await open_store(journal_url)
    await Teller(store).tell(*life())
    await store.close()
    await change(journal_url, "DROP VIEW jq_life")
    request.getfixturevalue("newer")
    for opened in (open_store, open_engine):
        with pytest.raises(Refused, match=r"older than 4: .* `jobqueue journal migrate`"):
            await opened(journal_url)
    assert await database.migrate(journal_url) == ("3", "4")
    assert await database.migrate(journal_url) == ("4", "4")
    (row,) = await read(journal_url, "SELECT colour, body FROM jq_job")
    assert row == {"colour": None, "body": '{"n":1}'}
    assert (await names(journal_url))[1] == _VIEWS


async def columns(url: str) -> dict[str, list[tuple[Any, ...]]]:
    engine = await open_engine(url)

    def read_all(connection: Connection) -> dict[str, list[tuple[Any, ...]]]:
        found = inspect(connection)
        return {
            table: [(each["name"], str(each["type"]), each["nullable"]) for each in found.get_columns(table)]
            + [tuple(found.get_pk_constraint(table)["constrained_columns"])]
            for table in metadata.tables
        }

    async with engine.connect() as connection:
        made = await connection.run_sync(read_all)
    await engine.dispose()
    return made


async def test_a_journal_of_the_first_revision_gets_the_later_tables_and_is_to_be_walked(journal_url: str) -> None:
    store = await open_store(journal_url)
    await Teller(store).tell(*life())
    await store.close()
    founded = await columns(journal_url)
    older = ("DROP VIEW jq_timetable", "DROP TABLE jq_schedule", "DROP TABLE jq_token")
    await change(journal_url, *older, "UPDATE jq_version SET version_num = '1'")
    assert await database.migrate(journal_url) == ("1", schema.head())
    assert await columns(journal_url) == founded
    assert await names(journal_url) == ({*metadata.tables, "jq_version"}, _VIEWS)
    sql = Sql(journal_url)
    await sql.open()
    assert await sql.to_walk("jq", 0) is not None
    await sql.close()


async def test_processes_that_found_at_the_same_time_found_once(journal_url: str) -> None:
    stores = await asyncio.gather(*(open_store(journal_url) for _ in range(8)))
    assert [row["version_num"] for row in await read(journal_url, "SELECT * FROM jq_version")] == [schema.head()]
    for store in stores:
        await store.close()


async def test_what_was_founded_in_part_is_founded_to_the_end(mariadb: Any) -> None:
    url = mariadb.new_database()  # its tables cannot be undone
    await found(url)
    await change(url, "DELETE FROM jq_version", "DROP TABLE jq_restore", "DROP VIEW jq_life")
    await found(url)
    assert await names(url) == ({*metadata.tables, "jq_version"}, _VIEWS)


async def test_the_printed_statements_found_a_journal(journal_database: Database) -> None:
    printed = CliRunner().invoke(main, ["journal", "ddl"], env={"JOBQUEUE_JOURNAL": journal_database.url})
    assert printed.exit_code == 0
    server, url = journal_database.server, journal_database.url
    if server is None:
        with sqlite3.connect(address(url).path) as connection:
            connection.executescript(printed.output)
        connection.close()
    else:
        server.sql(printed.output, address(url).database)
    store = await open_store(url)
    await Teller(store).tell(*life())
    await store.close()
    assert await names(url) == ({*metadata.tables, "jq_version"}, _VIEWS)


async def test_a_journal_of_printed_statements_is_as_one_that_was_founded(journal_database: Database) -> None:
    if journal_database.server is None:
        return
    other = journal_database.server.new_database()
    await found(journal_database.url)
    kind = journal_database.kind
    printed = CliRunner().invoke(main, ["journal", "ddl", "--for", kind]).output
    journal_database.server.sql(printed, address(other).database)
    tables = ", ".join(f"'{name}'" for name in metadata.tables)
    query = (
        "SELECT table_name, column_name, data_type, is_nullable, character_maximum_length, collation_name "
        f"FROM information_schema.columns WHERE table_name IN ({tables}) AND table_schema = "
        f"{'current_schema()' if kind == 'postgresql' else 'DATABASE()'} ORDER BY 1, 2"
    )
    assert await read(journal_database.url, query) == await read(other, query)


@pytest.mark.parametrize("kind", ["sqlite", "postgresql", "mysql"])
def test_an_older_server_is_refused(kind: str) -> None:
    with pytest.raises(Refused, match="is older than"):
        {
            "sqlite": lambda: sqlite.check_version((3, 34, 9)),
            "postgresql": lambda: postgresql.check_version(13, 22),
            "mysql": lambda: mysql.check_version("10.5.29-MariaDB-0+deb11u1"),
        }[kind]()


@pytest.mark.parametrize("version", ["10.6.0-MariaDB", "11.8.2-MariaDB-ubu2404", "8.0.36", "9.1.0"])
def test_newer_servers_are_taken(version: str) -> None:
    mysql.check_version(version)


async def test_a_database_of_another_encoding_is_refused(postgresql: Any) -> None:
    postgresql.sql("CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0")
    with pytest.raises(Refused, match="encoding LATIN1"):
        await open_store(postgresql.url("latin"))


async def test_a_missing_database_and_a_wrong_user_are_refused(postgresql: Any, mariadb: Any) -> None:
    for server in (postgresql, mariadb):
        with pytest.raises(Refused, match="nowhere"):
            await open_store(server.url("nowhere"))
    with pytest.raises(Refused, match="Access denied"):
        await open_store(mariadb.new_database().replace("//root@", "//nobody:secret@"))
    with pytest.raises(Refused, match="unknown option charset"):
        await open_store(f"{mariadb.new_database()}&charset=latin1")


async def test_a_server_that_is_not_there_is_away(postgresql: Any, mariadb: Any, tmp_path: Path) -> None:
    for server in (postgresql, mariadb):
        with pytest.raises(Away):
            await open_store(server.url("test").replace(str(server.folder), str(tmp_path)))


async def test_a_file_in_a_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="no folder"):
        await open_store(f"sqlite:///{tmp_path}/missing/journal.db")


async def test_a_user_who_may_not_make_tables_is_told_how_to_have_them(mariadb: Any, postgresql: Any) -> None:
    urls = []
    for server in (mariadb, postgresql):
        url = server.new_database()
        name = address(url).database
        if server is mariadb:
            server.sql(
                f"CREATE USER reader IDENTIFIED BY ''; GRANT SELECT, INSERT, UPDATE, DELETE ON {name}.* TO reader"
            )
        else:
            server.sql("CREATE ROLE reader LOGIN")
        urls.append(url.replace("//root@", "//reader@").replace("//jobqueue@", "//reader@"))
    for url, server in zip(urls, (mariadb, postgresql), strict=True):
        with pytest.raises(Refused, match=r"denied .*; .* `jobqueue journal ddl`"):
            await open_store(url)
        (finding,) = [each async for each in check_journal(Settings(journal=url, journal_run=True))]
        assert finding.level == "bad" and "may not make tables: run what `jobqueue journal ddl` prints" in str(finding)
        ours = url.replace("reader@", "root@" if server is mariadb else "jobqueue@")
        await found(ours)
        if server is postgresql:
            grant = "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO reader"
            server.sql(f"{grant}; GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO reader", address(url).database)
        store = await open_store(url)
        await Teller(store).tell(*life())
        await store.close()


async def test_what_a_role_gives_counts_where_it_is_to_make_tables(mariadb: Any) -> None:
    url = mariadb.new_database()
    name = address(url).database
    mariadb.sql(
        f"CREATE ROLE writes; GRANT SELECT, INSERT, UPDATE, DELETE ON `{name}`.* TO writes; CREATE USER member;"
        " GRANT writes TO member; SET DEFAULT ROLE writes FOR member; CREATE DATABASE other;"
        " GRANT ALL ON other.* TO member"
    )
    settings = Settings(journal=url.replace("//root@", "//member@"), journal_run=True)
    (finding,) = [each async for each in check_journal(settings)]
    assert finding.level == "bad" and "may not make tables" in str(finding)
    mariadb.sql(f"GRANT CREATE VIEW, CREATE ON `{name.replace('_', '%')}`.* TO writes")
    (finding,) = [each async for each in check_journal(settings)]
    assert "may not make tables" not in str(finding)


async def test_a_file_that_is_no_database_is_refused_and_stays(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    path.write_text("not a database, but a text that is long enough to be looked at " * 20)
    with pytest.raises(Refused, match="not a database"):
        await open_store(f"sqlite:///{path}")
    assert path.read_text().startswith("not a database")


async def test_users_with_passwords_come_in(mariadb: Any, postgresql: Any) -> None:
    mariadb.sql(
        "CREATE USER 'jour/nal'@'localhost' IDENTIFIED BY 'p@ss:/w#rd'; GRANT ALL ON *.* TO 'jour/nal'@'localhost'"
    )
    await found(mariadb.new_database().replace("//root@", "//jour%2Fnal:p%40ss%3A%2Fw%23rd@"))
    postgresql.sql("CREATE ROLE \"jour/nal\" SUPERUSER LOGIN PASSWORD 'p@ss'")
    await found(postgresql.new_database().replace("//jobqueue@", "//jour%2Fnal:p%40ss@"))


def test_migrate_tells_what_it_did(sqlite_url: str) -> None:
    asyncio.run(found(sqlite_url))
    done = CliRunner().invoke(main, ["journal", "migrate", "--to", sqlite_url])
    assert (done.exit_code, done.output) == (0, "the journal is up to date\n")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["migrate"], "name the journal by --to, --to-file or JOBQUEUE_JOURNAL"),
        (["migrate", "--to", "x://h"], "there are sqlite:///PATH"),
        (["migrate", "--to", "sqlite:////nowhere/x.db"], "no folder /nowhere"),
        (["migrate", "--to", "sqlite:///a", "--to-file", "b"], "exclude each other"),
        (["migrate", "--to-file", "/nowhere"], "/nowhere of --to-file cannot be read"),
        (["migrate", "--to", "postgresql://u:secret@127.0.0.1:1/db"], "use --to-file"),
        (["migrate", "--to", "postgresql://u:secret@127.0.0.1:1/db"], "cannot be reached"),
        (["ddl", "--for", "oracle"], "'sqlite', 'postgresql', 'mariadb', 'mysql'"),
        (["ddl"], "--for or JOBQUEUE_JOURNAL"),
    ],
)
def test_commands_that_cannot_begin_say_why(arguments: list[str], said: str) -> None:
    done = CliRunner().invoke(main, ["journal", *arguments], env={"JOBQUEUE_JOURNAL": ""})
    assert done.exit_code == 2
    assert said in done.output
    assert "secret" not in done.output


def test_only_its_owner_may_read_a_new_journal_in_sqlite(tmp_path: Path) -> None:
    asyncio.run(found(f"sqlite:///{tmp_path}/journal.db"))
    assert {path.stat().st_mode & 0o077 for path in tmp_path.iterdir()} == {0}
