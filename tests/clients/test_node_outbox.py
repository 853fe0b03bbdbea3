"""The outbox of the Node client, with pg, knex and mysql2 from npm, on a real PostgreSQL and a real MariaDB."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.clients import test_node_testing
from tests.clients.test_packages import NODE, packed, project, run
from tests.kit.databases import MariaDB, PostgreSQL

PACKAGES = ["knex@3", "pg@8", "mysql2@3"]
COMPILER = ["typescript@7", "@types/node@20", "@types/pg@8"]


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project of a user: with our package as it would be published, and the others from npm."""
    folder = tmp_path_factory.mktemp("shop")
    return project(folder, packed(folder), *PACKAGES, *COMPILER)


@pytest.fixture(scope="module")
def databases() -> Iterator[dict[str, str]]:
    """An empty database of each kind, as the program is told of it."""
    with PostgreSQL() as postgresql, MariaDB() as mariadb:
        # Node does not run as nobody, as this PostgreSQL may: anyone may pass through its folder to the socket.
        postgresql.folder.chmod(0o755)
        url = urlsplit(mariadb.new_database())
        yield {
            "POSTGRESQL_URL": postgresql.new_database(),
            "MARIADB_SOCKET": parse_qs(url.query)["unix_socket"][0],
            "MARIADB_DATABASE": url.path.removeprefix("/"),
        }


async def test_rows_are_written_in_the_transaction_of_the_caller(shop: Path, databases: dict[str, str]) -> None:
    program = str(shutil.copy(NODE / "test/databases/sql_outbox.test.js", shop))
    code, output = await test_node_testing.run("--test", program, **databases)
    assert code == 0, output


TYPED = """
import knex from 'knex';
import mysql from 'mysql2/promise';
import pg from 'pg';
import { Outbox } from 'jobqueue-client';

const outbox = new Outbox();
const db = knex({ client: 'pg' });
const pool = new pg.Pool();
await outbox.add(db, 't', null);
(await db.transaction((trx) => outbox.add(trx, 't', { order: 1 }, { delay: 1800 }))) satisfies string;
await outbox.update(new pg.Client(), 'x', { body: null });
await outbox.delete(await pool.connect(), 'x');
// @ts-expect-error: a Pool
await outbox.delete(pool, 'x');
// @ts-expect-error: a connection of another library
await outbox.delete(await mysql.createConnection(''), 'x');
"""


def test_the_types_accept_connections_of_knex_and_pg_and_no_others(shop: Path) -> None:
    (shop / "typed.ts").write_text(TYPED)
    flags = ("--ignoreConfig", "--noEmit", "--strict", "--module", "nodenext", "--target", "es2022", "--types", "node")
    run(shop, "npx", "tsc", *flags, "typed.ts")
