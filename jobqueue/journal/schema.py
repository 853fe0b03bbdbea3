"""The schema of a journal: creating it, recognising it, and bringing an older one up to date.

`jq_version` says which revision a database has (migrations/). A new database is created at the newest revision, from
the tables; migrations are for databases that an older version has created.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

from alembic.operations import Operations
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Column, Connection, MetaData, String, Table, insert, inspect, text
from sqlalchemy.engine import Dialect
from sqlalchemy.schema import CreateIndex, CreateTable, ExecutableDDLElement

from jobqueue.journal import keeping, views
from jobqueue.journal.tables import metadata
from jobqueue.journal.url import Empty, Refused

MIGRATIONS = Path(__file__).parent / "migrations"
_version = Table("jq_version", MetaData(), Column("version_num", String(32), primary_key=True))
_PATIENCE_S = 60
_SQLITE_SETTINGS = ("PRAGMA auto_vacuum = INCREMENTAL", "PRAGMA journal_mode = WAL")
_GRANT = re.compile(r"GRANT (.+?) ON (?:`(.+?)`|\*)\.\* TO ")
"""A line of SHOW GRANTS, with the pattern of a database, or without one if it applies to all databases."""
_LOCK = 0x6A715F6A  # a number of our own among PostgreSQL's advisory locks


def head() -> str:
    """The revision that this version of jobqueue creates."""
    newest = _scripts().get_current_head()
    assert newest is not None
    return newest


def _scripts() -> ScriptDirectory:
    return ScriptDirectory(str(MIGRATIONS))


def set_up_sqlite(connection: Connection) -> None:
    """Apply the settings that must be in a file before its first table is created."""
    _run(connection, _SQLITE_SETTINGS)


def found_or_check(connection: Connection) -> None:
    """Create the tables in a database that has none, otherwise check that they are ours. Raises Refused."""
    with _alone(connection):
        if _has_none(connection):
            _found(connection)
        check(connection)


def check(connection: Connection) -> None:
    """Check that the database has a journal that this version can use. Raises Refused."""
    there = _revision(connection)
    if there == head():
        return
    if there is None:
        if _has_none(connection):
            raise Empty("this database has no journal; `jobqueue journal run` creates one")
        raise Refused("this database has tables of these names, jq_…, that are no journal's")
    raise Refused(_other(there))


def may_make_tables(connection: Connection) -> bool:
    """Return False if the user of a connection certainly may not create tables. MySQL does not show the rights of a
    role."""
    if connection.dialect.name == "postgresql":
        return bool(connection.execute(text("SELECT has_schema_privilege(current_schema(), 'CREATE')")).scalar())
    return not getattr(connection.dialect, "is_mariadb", False) or any(_grants_create(connection))


def _grants_create(connection: Connection) -> Iterator[bool]:
    """For each right to create tables that the user or an active role has: whether it applies to this database."""
    here = text("SELECT DATABASE() LIKE :pattern")
    for line in connection.execute(text("SHOW GRANTS")).scalars().all():
        grant = _GRANT.match(line)
        if grant and {"CREATE", "ALL PRIVILEGES"} & {*grant[1].split(", ")}:
            pattern = (grant[2] or "%").replace("``", "`")
            yield bool(connection.execute(here, {"pattern": pattern}).scalar())


def _is_older(revision: str) -> bool:
    return revision in {script.revision for script in _scripts().walk_revisions()} - {head()}


def _other(there: str) -> str:
    if _is_older(there):
        return (
            f"the journal's tables are of revision {there}, older than {head()}: stop those who write and read it, "
            "and run `jobqueue journal migrate`"
        )
    return f"the journal's tables are of revision {there}, which only a newer version of jobqueue knows"


def migrate(connection: Connection) -> tuple[str, str]:
    """Bring the tables up to date. Returns the revisions before and after. Raises Refused."""
    with _alone(connection):
        before = _revision(connection)
        if before is None or not _is_older(before):
            check(connection)
        scripts = _scripts()
        context = MigrationContext.configure(
            connection,
            opts={
                "version_table": _version.name,
                "fn": lambda revision, _: scripts._upgrade_revs("head", revision),
            },
        )
        with Operations.context(context):
            context.run_migrations()
        _run(connection, views.statements(connection.dialect.name))
        return str(before), head()


def _revision(connection: Connection) -> str | None:
    """The revision of the journal, or None if no journal was created here, or not completely."""
    if not inspect(connection).has_table(_version.name):
        return None
    found = connection.execute(_version.select()).scalar()
    return None if found is None else str(found)


def _has_none(connection: Connection) -> bool:
    """Returns True if no journal was created, or not completely, which only happens in a database that cannot roll back
    the creation of tables."""
    tables = set(inspect(connection).get_table_names())
    return not tables & {*metadata.tables, _version.name} or (
        _version.name in tables and connection.execute(_version.select()).first() is None
    )


def _found(connection: Connection) -> None:
    kind = connection.dialect.name
    _version.create(connection, checkfirst=True)
    metadata.create_all(connection)
    if not keeping.there(connection):
        _run(connection, keeping.first(kind, _now_ms()))
    _run(connection, views.statements(kind))
    connection.execute(insert(_version).values(version_num=head()))


def _run(connection: Connection, statements: Iterable[str]) -> None:
    for statement in statements:
        connection.exec_driver_sql(statement)


@contextmanager
def _alone(connection: Connection) -> Iterator[None]:
    """A transaction in which no other process creates or changes the tables of this journal."""
    kind = connection.dialect.name
    if kind == "sqlite":
        connection.exec_driver_sql("BEGIN IMMEDIATE")
    elif kind == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
    elif not connection.execute(
        text("SELECT GET_LOCK(CONCAT('jq ', MD5(DATABASE())), :patience)"), {"patience": _PATIENCE_S}
    ).scalar():
        raise Refused("another process is making the tables of this journal, and does not end")
    try:
        yield
        connection.commit()
    finally:
        connection.rollback()
        if kind == "mysql":
            connection.execute(text("SELECT RELEASE_LOCK(CONCAT('jq ', MD5(DATABASE())))"))
            connection.commit()


def _makers(table: Table) -> list[ExecutableDDLElement]:
    indexes = sorted(table.indexes, key=lambda index: str(index.name))
    return [CreateTable(table), *map(CreateIndex, indexes)]


def ddl(kind: str) -> list[str]:
    """All statements that create a journal, for an administrator. `kind`: sqlite, postgresql, mysql or mariadb."""
    kind = "mysql" if kind == "mariadb" else kind
    dialect: Dialect = import_module(f"sqlalchemy.dialects.{kind}").dialect()
    made = [
        re.sub(r"\s*\n\s*", "\n  ", str(clause.compile(dialect=dialect)).strip())
        for table in (_version, *metadata.sorted_tables)
        for clause in _makers(table)
    ]
    founded = f"INSERT INTO {_version.name} (version_num) VALUES ('{head()}')"
    before = _SQLITE_SETTINGS if kind == "sqlite" else ()
    return [*before, *made, *keeping.first(kind, _now_ms()), *views.statements(kind), founded]


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
