"""The servers that the journal's tests use."""

from __future__ import annotations

from tests.jobqueue.journal.conftest import Database


def test_what_was_committed_is_there_when_a_killed_server_is_started_again(journal_database: Database) -> None:
    server = journal_database.server
    if server is None:
        return
    name = server.new_database().partition("@/")[2].partition("?")[0]
    server.sql("CREATE TABLE t (a INT)", name)
    server.sql("INSERT INTO t VALUES (7)", name)
    server.kill()
    server.start()
    assert server.sql("SELECT a FROM t", name).strip() == "7"
