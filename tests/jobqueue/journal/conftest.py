"""Databases for the journal's tests: each test has one of its own, on servers that all tests of a process share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.kit.databases import MariaDB, PostgreSQL, Server
from tests.kit.program import Missing


@dataclass
class Database:
    """An empty database."""

    kind: str
    url: str
    server: Server | None
    """It may be killed, if the test starts it again; None for SQLite."""


def _running(kind: type[PostgreSQL] | type[MariaDB]) -> Iterator[Server]:
    try:
        server = kind()
    except Missing as missing:
        pytest.skip(str(missing))
    with server:
        yield server


@pytest.fixture(scope="session")
def postgresql() -> Iterator[Server]:
    """A PostgreSQL; the test is skipped where there is none."""
    yield from _running(PostgreSQL)


@pytest.fixture(scope="session")
def mariadb() -> Iterator[Server]:
    """A MariaDB; the test is skipped where there is none."""
    yield from _running(MariaDB)


@pytest.fixture(params=["sqlite", "postgresql", "mariadb"])
def journal_database(request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    """An empty database of each kind in turn."""
    if request.param == "sqlite":
        return Database("sqlite", f"sqlite:///{tmp_path}/journal.db", None)
    server: Server = request.getfixturevalue(request.param)
    server.start()  # again, where a test before had killed it
    return Database(request.param, server.new_database(), server)


@pytest.fixture
def journal_url(journal_database: Database) -> str:
    """The URL of an empty database of each kind in turn."""
    return journal_database.url


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    """The URL of an empty SQLite journal, for what is the same with each database."""
    return f"sqlite:///{tmp_path}/journal.db"
